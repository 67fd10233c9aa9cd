"""Who may act on a gate: whoever has its token, and no web page."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.status.actions import ACTIONS
from backoff_ctrl.k8s.status.serving import Service
from backoff_ctrl.k8s.status.token import Token, read_token, token_file
from tests.status.asking import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tokens in a folder of this test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("BACKOFF_CTRL_STATUS_TOKEN", raising=False)


@pytest.fixture
def service(_own_folder: None) -> Iterator[Service]:
    """A gate with its status."""
    made = Service()
    made.add(Gate().ledger)
    made.serve("127.0.0.1:0")
    yield made
    made.close()


def pause(
    service: Service, headers: Mapping[str, str] | None = None, *, method: str = "POST", body: bytes | None = None
) -> Answer:
    """Ask to pause a namespace, with a right request unless the caller says otherwise."""
    assert service.server is not None
    right = {
        "Authorization": f"Bearer {read_token(service.server.port)}",
        "Content_Type": "application/json",
    }
    text = json.dumps({"namespace": "team"}).encode() if body is None else body
    given = {name: value for name, value in {**right, **(headers or {})}.items() if value}
    return ask(service.server.url, "/v1/actions/pause", method=method, body=text, **given)


def paused(service: Service) -> bool:
    """Say whether it is paused."""
    return service.sources[0].ledger.is_halted("team")


def test_the_drawn_token_lies_in_a_file_of_this_user_alone_while_the_server_runs(service: Service) -> None:
    """0600 in a folder 0700; it goes with the server."""
    assert service.server is not None
    file = token_file(service.server.port)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert len(file.read_text().strip()) >= 32
    assert pause(service).status == 200
    assert paused(service)
    service.close()
    assert not file.exists()


@pytest.mark.parametrize(
    ("headers", "status", "pointer"),
    [
        ({"Authorization": ""}, 401, "#/headers/Authorization"),
        ({"Authorization": "Bearer wrong"}, 401, "#/headers/Authorization"),
        ({"Authorization": "Bearer "}, 401, "#/headers/Authorization"),
        ({"Authorization": "Basic {token}"}, 401, "#/headers/Authorization"),
        ({"Origin": "https://evil.example"}, 403, "#/headers/Origin"),
        ({"Origin": "null"}, 403, "#/headers/Origin"),
        ({"Origin": "http://127.0.0.1:1"}, 403, "#/headers/Origin"),
        ({"Sec_Fetch_Site": "cross-site"}, 403, "#/headers/Sec-Fetch-Site"),
        ({"Sec_Fetch_Site": "same-site"}, 403, "#/headers/Sec-Fetch-Site"),
        ({"Host": "evil.example"}, 403, "#/headers/Host"),
        ({"Content_Type": "text/plain"}, 415, "#/headers/Content-Type"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415, "#/headers/Content-Type"),
    ],
)
def test_whoever_has_no_right_to_act_does_nothing(
    service: Service, headers: dict[str, str], status: int, pointer: str
) -> None:
    """Pages, rebound names, forms, and whoever has not the token."""
    assert service.server is not None
    token = read_token(service.server.port)
    found = pause(service, {name: value.format(token=token) for name, value in headers.items()})
    assert (found.status, [each["pointer"] for each in found.json["errors"]]) == (status, [pointer])
    assert not paused(service)
    if status == 401:
        assert found.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_only_a_post_acts(service: Service, method: str) -> None:
    """A link or an image of a page can't, and a preflight is not answered."""
    found = pause(service, method=method)
    assert (found.status, found.headers.get("Allow")) == (405, "POST")
    assert "Access-Control-Allow-Origin" not in found.headers
    assert not paused(service)


def test_the_page_of_this_very_server_may_act(service: Service) -> None:
    """With the token."""
    assert service.server is not None
    assert pause(service, {"Origin": service.server.url, "Sec_Fetch_Site": "same-origin"}).status == 200


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        (b"{", 400, "#/body"),
        (b"[]", 400, "#/body"),
        (b"{}", 400, "#/body/namespace"),
        (b'{"namespace": ""}', 400, "#/body/namespace"),
        (b'{"namespace": 1}', 400, "#/body/namespace"),
        (b'{"namespace": "team", "all": true}', 400, "#/body"),
        (b'{"namespace": "team", "why": 7}', 400, "#/body/why"),
        (b'{"namespace": "' + b"a" * 600 + b'"}', 400, "#/body/namespace"),
        (b"[" * 100_000, 400, "#/body"),
        (b" " * 300_000, 413, "#/body"),
    ],
)
def test_a_wrong_body_is_a_problem_that_points_at_it(service: Service, body: bytes, status: int, pointer: str) -> None:
    """Nothing is done."""
    found = pause(service, body=body)
    assert (found.status, [each["pointer"] for each in found.json["errors"]]) == (status, [pointer])
    assert not paused(service)


def test_a_token_of_the_environment_counts_and_is_written_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that is too short is not used, and then nobody may act."""
    monkeypatch.setenv("BACKOFF_CTRL_STATUS_TOKEN", "x" * 16)
    token = Token(1)
    assert token.allows("Bearer " + "x" * 16)
    assert not token.allows("Bearer " + "x" * 15)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("BACKOFF_CTRL_STATUS_TOKEN", "short")
    assert not Token(1).allows("Bearer short")
    assert not Token(1).allows("Bearer ")


def test_a_folder_of_somebody_else_holds_no_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It could be read or replaced there; the status goes on without actions."""
    folder = tmp_path / "backoff-ctrl"
    folder.mkdir()
    folder.chmod(0o777)
    token = Token(1)
    assert token.file is None
    assert not token.allows("Bearer ")
    assert "actions on this gate are disabled" in caplog.text
    (folder / "status-1.token").write_text("planted-by-somebody")
    assert read_token(1) == ""
    folder.chmod(0o700)
    (folder / "status-2.token").symlink_to(tmp_path / "elsewhere")
    assert Token(2).file is not None  # the link is replaced, not followed
    assert not (tmp_path / "elsewhere").exists()
    assert os.fspath(token_file(2)).startswith(str(tmp_path))


def test_every_action_has_a_command() -> None:
    """What the API does, the command line does."""
    from backoff_ctrl.api.commands.act import command  # noqa: PLC0415

    assert sorted(command.commands) == sorted(ACTIONS)

"""``backoff-ctrl doctor``: one line per check, and an exit code that scripts can rely on."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.cluster.asking import Reach, ReachError, find_place
from tests.kubeconfigs import write_kubeconfig
from tests.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    from pathlib import Path

    from backoff_ctrl.k8s.sandbox import BackgroundSandbox


def cluster(denied: set[str], *, version: int = 200) -> Any:
    """An API server that denies some rights."""

    def answer(seen: Seen) -> Any:
        if seen.path == "/version":
            return version, {"gitVersion": "v1.36.3"}
        if seen.path.endswith("selfsubjectaccessreviews"):
            asked = seen.body["spec"]["resourceAttributes"]
            return 201, {"status": {"allowed": f"{asked['verb']} {asked['resource']}" not in denied}}
        return failure(403, "Forbidden", "no") if "list resourcequotas" in denied else (200, {"items": []})

    return answer


def kubeconfig(folder: Path, server: str, token: str = "t", **cluster_has: str) -> str:
    """Write a kubeconfig with a token, for the namespace ``team``; return its path."""
    return write_kubeconfig(folder / "config", server, {"token": token}, namespace="team", **cluster_has)


def only_error(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """Return the one sentence with which doctor ends for a cluster that can't be used."""
    errors = capsys.readouterr().err.splitlines()
    assert (code, len(errors)) == (2, 1), errors
    return errors[0]


def test_all_is_well(sandbox: BackgroundSandbox, capsys: pytest.CaptureFixture[str]) -> None:
    """One line per check, and exit code 0."""
    sandbox.create_quota("team", "pods", {"pods": "3"})

    code = run(["doctor", "--server", sandbox.url, "-n", "team"])
    lines = capsys.readouterr().out.splitlines()

    assert code == 0
    assert all(line.startswith("ok") for line in lines)
    assert lines[-1].endswith("team has pods")


def test_a_missing_right_says_what_is_worse_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """The gate works without watching, but the operator should know: exit code 1."""
    with scripted_server(cluster({"watch resourcequotas", "list resourcequotas"})) as server:
        code = run(["doctor", "--server", server.url])
    out = capsys.readouterr().out

    assert code == 1
    assert "no  watch resourcequotas    not allowed in default" in out
    assert "bind the role view" in out


@pytest.mark.parametrize("page", [b"<html>Sign in</html>", b"[]", {"items": 3}])
def test_an_answer_that_is_no_list_of_quotas_is_reported(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """ "No quotas: creates are not limited" would be wrong."""
    well = cluster(set())
    with scripted_server(lambda seen: (200, page) if "resourcequotas" in seen.path else well(seen)) as server:
        code = run(["doctor", "--server", server.url])
    out = capsys.readouterr().out

    assert code == 1
    assert "what is answered is no list" in out
    assert "not limited" not in out


def test_json_is_one_document(sandbox: BackgroundSandbox, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing else on stdout."""
    code = run(["doctor", "--server", sandbox.url, "--json"])
    document = json.loads(capsys.readouterr().out)

    assert code == 0
    assert document["ok"] is True
    assert {"versions", "cluster", "create pods", "quotas"} <= {check["name"] for check in document["checks"]}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["--server", "http://127.0.0.1:9"], "can't be reached", id="nobody there"),
        pytest.param(["--server", "127.0.0.1:9"], "must be a URL", id="no URL"),
        pytest.param(["--server", "http://"], "must be a URL", id="no host"),
        pytest.param(["--server", "http://[::1"], "must be a URL", id="half an address"),
        pytest.param(["--server", "http://127.0.0.1:99999"], "must be a URL", id="no port"),
        pytest.param(["--kubeconfig", "/does/not/exist"], "--kubeconfig", id="no kubeconfig"),
        pytest.param(["--server", "http://a", "--context", "b"], "give one of them", id="two clusters"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_sentence_and_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no traceback."""
    code = run(["doctor", *arguments])
    errors = capsys.readouterr().err

    assert code == 2
    assert sentence in errors
    assert len(errors.splitlines()) == 1


def test_refused_credentials_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """The server was reached, but denied access: exit code 2, and what to do."""
    with scripted_server(cluster(set(), version=401)) as server:
        code = run(["doctor", "--server", server.url])

    assert code == 2
    assert "refuses the credentials" in capsys.readouterr().err


def test_the_kubeconfigs_context_names_cluster_and_namespace(
    sandbox: BackgroundSandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are what kubectl would use."""
    code = run(["doctor", "--kubeconfig", kubeconfig(tmp_path, sandbox.url)])
    out = capsys.readouterr().out

    assert code == 0
    assert "context here of the kubeconfig" in out
    assert "allowed in team" in out


@pytest.mark.parametrize("content", [b"a: [", b"\xd1\xff", b"[1]", b"x: 1", b""], ids=repr)
def test_a_malformed_kubeconfig_is_one_sentence_and_2(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the bytes; the sentence says which option selects another file."""
    path = tmp_path / "config"
    path.write_bytes(content)
    code = run(["doctor", "--kubeconfig", str(path)])
    errors = capsys.readouterr().err.splitlines()

    assert code == 2
    assert len(errors) == 1
    assert "the kubeconfig" in errors[0]
    assert errors[0].endswith("name another with --kubeconfig")


def test_a_namespace_that_does_not_exist_is_reported(
    sandbox: BackgroundSandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt namespace has no quotas either, which must not look like unlimited room."""
    code = run(["doctor", "--server", sandbox.url, "-n", "taem"])

    assert code == 1
    assert "there is no namespace taem" in capsys.readouterr().out


def test_a_server_that_is_no_api_server_ends_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    """A web server answers 404 to everything: one sentence and exit code 2, not seven lines."""
    with scripted_server(cluster(set(), version=404)) as server:
        code = run(["doctor", "--server", server.url])

    assert code == 2
    assert "answers 404 to /version: is it an API server?" in capsys.readouterr().err


def test_an_answer_nested_too_deeply_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Parsing ends at the depth that Python allows, with a line about it, not a traceback."""
    text = b"[" * 100_000 + b"]" * 100_000

    with scripted_server(lambda seen: (200, text)) as server:
        code = run(["doctor", "--server", server.url])

    assert code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_server_that_never_ends_its_answer_is_given_up() -> None:
    """It may send a byte now and then for ever: the time limit is for the whole answer, not for each piece."""
    over = threading.Event()

    def answer(_: Seen) -> Any:
        over.wait(30)
        return 200, {}

    with scripted_server(answer) as server:
        reach = Reach(find_place(server.url, None, None, None), limit=0.1)
        with pytest.raises(ReachError, match=r"no answer in time \(not whole after 0\.1 s\); is it an API server"):
            reach.version()
        over.set()
        reach.close()


def test_a_too_long_answer_is_not_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory. (The limit is lowered here.)"""
    monkeypatch.setattr("backoff_ctrl.k8s.cluster.asking.ANSWER_MAX", 1000)
    with scripted_server(lambda _: (200, b"x" * 1001)) as server:
        assert "more than 1000 bytes" in only_error(capsys, run(["doctor", "--server", server.url]))


def test_a_token_with_a_line_break_is_reported_and_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``token: |`` leaves one at its end; the client's error would show the whole header."""
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", token="s3cr3t-s3cr3t\n")
    error = only_error(capsys, run(["doctor", "--kubeconfig", path]))

    assert "write it on one line" in error
    assert "s3cr3t" not in error


@pytest.mark.parametrize("server", ["127.0.0.1:1", "", "https://127.0.0.1:99999", "https://127.0.0.1:abc", "ftp://a"])
def test_an_invalid_address_is_reported_before_anything_is_sent(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a scheme the client would use plain HTTP, and send the token over it."""
    error = only_error(capsys, run(["doctor", "--kubeconfig", kubeconfig(tmp_path, server)]))

    assert "must be a URL such as https://10.0.0.1:6443" in error


def test_a_socks_proxy_needs_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kubectl supports SOCKS, the official Python client only with another package."""
    path = kubeconfig(tmp_path, "http://127.0.0.1:1", **{"proxy-url": "socks5://127.0.0.1:1"})

    assert "pip install pysocks" in only_error(capsys, run(["doctor", "--kubeconfig", path]))


def test_an_account_without_any_rights_is_reported_as_unauthenticated(capsys: pytest.CaptureFixture[str]) -> None:
    """Every client may ask for the version; one without credentials is refused at the next request."""

    def answer(seen: Seen) -> Any:
        return (200, {"gitVersion": "v1"}) if seen.path == "/version" else failure(401, "Unauthorized", "Unauthorized")

    with scripted_server(answer) as server:
        assert "refuses the credentials" in only_error(capsys, run(["doctor", "--server", server.url]))


@pytest.mark.parametrize("odd", [{"status": "Failure"}, {"status": None}, {"status": [1]}, {}])
@pytest.mark.parametrize("items", [[1], [{"metadata": None}], [{"metadata": {"name": "a\x1b[31m\nb"}}], "x", None])
def test_malformed_answers_do_no_harm(odd: Any, items: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One line per check as usual, and no control characters of the server reach the terminal."""

    def answer(seen: Seen) -> Any:
        if seen.path == "/version":
            return 200, {"gitVersion": "v1\x1b]0;x\x07\nok  FAKE LINE"}
        return (201, odd) if seen.path.endswith("reviews") else (200, {"items": items})

    with scripted_server(answer) as server:
        code = run(["doctor", "--server", server.url])
    out, err = capsys.readouterr()

    assert code == 2  # by its answer, not even creates of pods are allowed
    assert "\x1b" not in out + err
    assert not [line for line in out.splitlines() if line.startswith("ok  FAKE")]
    assert "Traceback" not in err

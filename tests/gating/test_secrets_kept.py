"""Commands never print a secret from a kubeconfig or an environment, even if they can't use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.kube.answers.printing import without_passwords
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.official import skip_without_proxy
from tests.kit.scripted_server import scripted_server

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2"
OIDC = {"name": "oidc", "config": {"refresh-token": SECRET, "client-secret": SECRET}}


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command; return the one sentence it ends with."""
    code = run(list(arguments))
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert (code, len(lines)) == (2, 1), lines
    assert SECRET not in said.out + said.err
    return lines[0]


def test_of_a_kubeconfig_only_the_path_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The client's own error shows the whole user entry in which something is missing."""
    path = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:1", {"token": SECRET, "auth-provider": OIDC})
    assert "id-token" in complaint(capsys, "doctor", "--kubeconfig", path)


@pytest.mark.parametrize(
    "server", [f"https://u:{SECRET}@127.0.0.1:1", f"https://u:{SECRET}@127.0.0.1:x", f"u//u:{SECRET}@127.0.0.1"]
)
def test_of_an_address_no_password_is_shown(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The address can't be reached or is invalid, and comes from a kubeconfig or an option."""
    assert "127.0.0.1" in complaint(capsys, "doctor", "--kubeconfig", write_kubeconfig(tmp_path / "k", server))
    assert "127.0.0.1" in complaint(capsys, "doctor", "--apiserver", server)


@pytest.mark.parametrize(
    ("proxy", "shown"),
    [
        (f"http://u:{SECRET}@127.0.0.1:99999", "http://127.0.0.1:99999"),
        (f"ftp://u:{SECRET}@127.0.0.1", "ftp://127.0.0.1"),
        ("foo", "foo"),
    ],
)
def test_an_invalid_proxy_is_named(
    proxy: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may come from the environment: the sentence says where else to look, and shows no password."""
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    kubeconfig = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:1")
    skip_without_proxy(kubeconfig)
    sentence = complaint(capsys, "doctor", "--kubeconfig", kubeconfig)

    assert f"the proxy '{shown}'" in sentence
    assert "HTTPS_PROXY" in sentence


@pytest.mark.parametrize(
    ("token", "said"), [(f"日本{SECRET}", "the token of context here"), (f"{SECRET}\n", "write it on one line")]
)
def test_a_token_with_invalid_characters_is_reported_and_not_shown(
    token: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No header can carry it: the sentence blames the token, not the network. ``token: |`` leaves a line break."""
    path = write_kubeconfig(tmp_path / "k", "https://127.0.0.1:1", {"token": token})
    assert said in complaint(capsys, "doctor", "--kubeconfig", path)


def test_passwords_with_odd_letters_are_left_out_too() -> None:
    """Everything up to the last @ before the path is removed; a text without a user stays unchanged."""
    assert without_passwords("see https://u:p@ss@host:1/a@b and http://v@w") == "see https://host:1/a@b and http://w"
    assert without_passwords("mail a@b // c@d https://host/a@b") == "mail a@b // c@d https://host/a@b"


def test_a_server_as_given_is_shown_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    """This holds for a successful check, too: people paste its output into tickets."""
    with scripted_server(lambda _: (200, {"gitVersion": "v1.36.3"})) as script:
        run(["doctor", "--apiserver", script.url.replace("//", f"//u:{SECRET}@")])
    said = capsys.readouterr()
    assert "v1.36.3 at http://127.0.0.1" in said.out
    assert SECRET not in said.out + said.err

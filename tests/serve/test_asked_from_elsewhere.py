"""Who may ask, and what ``serve`` refuses to begin with."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from backoff_ctrl.api.commands.bounded_log import AT_ONCE
from tests.kit.patience import PATIENCE
from tests.serve.serving import fails, serving
from tests.status.asking import ask

if TYPE_CHECKING:
    from pathlib import Path

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.serve.conftest import Served


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1:9095", ""])
def test_a_foreign_name_for_this_machine_is_refused(alone: str, host: str) -> None:
    """A web page may bind its own name to 127.0.0.1 and would then read everything."""
    for path in ("/", "/v1/ceilings", "/pieces/namespaces", "/livez"):
        assert ask(alone, path, Host=host).status == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://[", "https://localhost.evil.example"])
def test_a_foreign_page_is_refused(alone: str, origin: str) -> None:
    """It can neither read nor post."""
    assert ask(alone, "/v1/ceilings", Origin=origin).status == 403
    found = ask(alone, "/v1/explain", method="POST", body=b"{}", Content_Type="application/json", Origin=origin)
    assert found.status == 403
    assert "access-control-allow-origin" not in {name.lower() for name in found.headers}


def test_a_page_of_another_port_posts_nothing(alone: str) -> None:
    """It may read what any user of this machine may; its own page posts."""
    other, own = "http://127.0.0.1:1", alone
    assert ask(alone, "/v1/ceilings", Origin=other).status == 200
    for origin, status in ((other, 403), (own, 400)):
        found = ask(alone, "/v1/explain", method="POST", body=b"{}", Content_Type="application/json", Origin=origin)
        assert (found.status, "headers/Origin" in found.body.decode()) == (status, status == 403)


def test_every_answer_tells_browsers_what_is_allowed(alone: str) -> None:
    """Nothing of another host, no frames, no guessing of types."""
    for path in ("/", "/v1/ceilings", "/nowhere", "/files/page.js"):
        headers = {name.lower(): value for name, value in ask(alone, path).headers.items()}
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_on_this_machine_one_acts_at_the_gate_itself(served: Served) -> None:
    """Nobody is known here: any page, and any user, comes from the same address. The gate has a token of its own."""
    body = b'{"namespace": "team"}'
    found = ask(served.url, "/v1/actions/pause", method="POST", body=body, Content_Type="application/json")
    assert (found.status, "backoff-ctrl act --gate" in found.json["detail"]) == (403, True)
    assert not served.gates[0].gate.ledger.is_halted("team")


def test_beyond_this_machine_it_needs_a_certificate() -> None:
    """A token in clear text would be anybody's."""
    assert "--tls-cert" in fails("--listen", "0.0.0.0:0", "--apiserver", "http://127.0.0.1:9")


@pytest.mark.long
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    """Exit code 2, and what to do."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    here = ("--apiserver", "http://127.0.0.1:9")
    assert "belong together" in fails(*here, "--tls-cert", str(broken))
    assert "can't be used together" in fails(*here, "--tls-cert", str(broken), "--tls-key", str(broken))
    absent = str(tmp_path / "absent.pem")
    assert "can't be read: No such file" in fails(*here, "--tls-cert", absent, "--tls-key", str(broken))
    assert "no server is listening there" in fails("--listen", "127.0.0.1:0", *here)
    assert "--gate" in fails(*here, "--gate", "ftp://x")
    assert "--listen" in fails(*here, "--listen", "nonsense:port")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} (Address already in use)" in fails(*here, "--listen", f"127.0.0.1:{port}")


@pytest.mark.long
def test_what_is_no_request_fills_no_log(filled: BackgroundSandbox) -> None:
    """Each made a line, of whomever it came."""
    log = list[str]()
    with serving("--apiserver", filled.url, quiet=False, log=log) as url:
        place = urlsplit(url)
        for _ in range(3 * AT_ONCE):
            with socket.create_connection((place.hostname, place.port), timeout=PATIENCE) as sent:
                sent.sendall(b"nonsense\r\n\r\n")
                while sent.recv(4096):
                    pass
    assert AT_ONCE <= len(log) < 2 * AT_ONCE, log[-3:]
    assert "Invalid HTTP request received." in log[0]

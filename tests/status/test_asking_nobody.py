"""``backoff-ctrl ceilings`` and ``waiting`` where no instance answers as it should: one sentence, exit code 2."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.main import run
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import scripted_server
from tests.proxying.passing.certificates import make_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.status.asking import Crowd

AS_OF = "2026-11-22T10:00:00Z"
CEILING = {
    "namespace": "n", "quota": "q", "resource": "pods", "limited": "1", "used": "0", "held": "0", "reserved": "0",
    "headroom": "1", "unsettled": "0", "kept": False, "source": "learned", "heard_at": AS_OF, "block": None,
}  # fmt: skip


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that fails, with and without JSON; return its sentence."""
    lines = set()
    for more in ([], ["--json"]):
        assert run([*arguments, *more]) == 2
        out, err = capsys.readouterr()
        assert not out
        lines.add(err)
    (line,) = lines
    assert line.count("\n") == 1
    return line.rstrip("\n")


@pytest.fixture
def free() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("command", ["ceilings", "waiting"])
def test_where_nobody_listens_it_says_how_to_begin(
    command: str, free: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable to set, with the address that was asked."""
    line = refusal(capsys, command, "--gate", f"http://127.0.0.1:{free}")
    assert line.startswith(f"backoff-ctrl: nothing listens at http://127.0.0.1:{free}: set ")
    assert f"BACKOFF_CTRL_STATUS=127.0.0.1:{free} in the program that contains the gate" in line
    monkeypatch.setenv("BACKOFF_CTRL_STATUS", str(free))
    assert refusal(capsys, command) == line
    assert "check --gate" in refusal(capsys, command, "--gate", f"https://127.0.0.1:{free}/x")


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("", "is not the URL of an instance: write one such as http://127.0.0.1:9095"),
        ("ftp://127.0.0.1", "is not the URL of an instance"),
        ("http://", "is not the URL of an instance"),
        ("http://127.0.0.1:port", "is not the URL of an instance"),
        ("http://127.0.0.1:0", "is not the URL of an instance"),
        ("http://[::1", "is not the URL of an instance"),
        ("http://127.0.0.1:9/\x1b[31m\r\nX: y", "is not the URL of an instance"),
        ("http://me:secret@127.0.0.1:9095", "leave the credentials out of the URL"),
        ("http://127.0.0.1:9095?namespace=a", "must end before the ? or #"),
        ("http://no-such-host.invalid:9", "can't be reached"),
        ("http://" + "a" * 70 + ".example:9", "can't be reached"),
    ],
)
def test_a_url_that_can_not_be_asked_is_refused(server: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without printing a password, or control characters."""
    line = refusal(capsys, "ceilings", "--gate", server)
    assert words in line
    assert "secret" not in line
    assert "\x1b" not in line


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("0.0.0.0:9095", "BACKOFF_CTRL_STATUS: the status of a gate is served on this machine alone"),
        ("127.0.0.1:x", "BACKOFF_CTRL_STATUS: the address of the status must look like"),
        ("127.0.0.1:0", "BACKOFF_CTRL_STATUS=127.0.0.1:0 lets the program choose a port"),
    ],
)
def test_a_wrong_variable_is_named(
    listen: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the program that serves would name it."""
    monkeypatch.setenv("BACKOFF_CTRL_STATUS", listen)
    assert words in refusal(capsys, "waiting")


def test_the_instances_own_words_are_passed_on(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """A problem of the real server, with what to do."""
    line = refusal(capsys, "ceilings", "--gate", crowd.url, "-n", "a" * 600)
    assert line == f"backoff-ctrl: {crowd.url} answers 400: namespace is longer than 512 characters"
    assert "unknown path" in refusal(capsys, "ceilings", "--gate", f"{crowd.url}/elsewhere")


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>Sign in</html>", "it answers 200 with application/json, which is not JSON"),
        (200, b"[]", "it answers with unexpected JSON"),
        (200, b"[" * 100_000, "which is not JSON"),
        (200, {"items": []}, "it answers with unexpected JSON: 'as_of'"),
        (200, {"as_of": "now", "items": [], "next": None}, "unexpected JSON"),
        (200, {"as_of": "2026-11-22T10:00:00", "items": [], "next": None}, "has no time zone"),
        (200, {"as_of": AS_OF, "items": [3], "next": None}, "unexpected JSON"),
        (200, {"as_of": AS_OF, "items": [{}], "next": None}, "namespace is missing"),
        (200, {"as_of": AS_OF, "items": [{**CEILING, "used": 3}], "next": None}, "3 is not of type str"),
        (200, {"as_of": AS_OF, "items": [{**CEILING, "used": "much"}], "next": None}, "not a quantity"),
        (200, {"as_of": AS_OF, "items": [{**CEILING, "block": []}], "next": None}, "[] is not of type dict"),
        (200, {"as_of": AS_OF, "items": [CEILING], "next": "for ever"}, "its pages lead nowhere"),
        (200, {"as_of": AS_OF, "items": [], "next": "a"}, "its pages lead nowhere"),
        (404, {"kind": "Status", "message": "not found"}, "it answers 404"),
        (302, b"{}", "it answers 302"),
    ],
)
def test_who_answers_otherwise_is_no_instance(
    status: int, body: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A web server, an API server, a login proxy: the sentence says what came, and what to check."""
    with scripted_server(lambda _: (status, body)) as script:
        line = refusal(capsys, "ceilings", "--gate", script.url)
    assert line.startswith(f"backoff-ctrl: {script.url} is not the status API of a gate (")
    assert words in line
    assert line.endswith("): check --gate")


def test_a_certificate_is_trusted_by_its_authority_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the variable; with that it is asked."""
    pair = make_pair(tmp_path)

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"as_of": AS_OF, "items": [CEILING], "next": None}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        server.socket = pair.server().wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"https://localhost:{server.server_port}"
        line = refusal(capsys, "ceilings", "--gate", url)
        assert line.startswith(f"backoff-ctrl: {url} has a certificate that is not trusted (self")
        assert line.endswith("name its certificate authority with SSL_CERT_FILE")
        monkeypatch.setenv("SSL_CERT_FILE", str(pair.certificate))
        assert run(["ceilings", "--gate", url]) == 0
        server.shutdown()
        thread.join()


@pytest.fixture
def raw() -> Iterator[tuple[str, dict[str, bytes | None]]]:
    """A server that sends the ``"answer"`` that the test puts in; None: nothing, ever."""
    answer: dict[str, bytes | None] = {"answer": None}
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                if (text := answer["answer"]) is not None:
                    connection.recv(65536)
                    connection.sendall(text)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", answer
        server.shutdown(socket.SHUT_RDWR)
        for connection in kept:
            connection.close()
    thread.join(PATIENCE)


def test_a_server_that_hangs_is_given_up(
    raw: tuple[str, dict[str, bytes | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """After the time that ``--timeout`` says."""
    line = refusal(capsys, "waiting", "--gate", raw[0], "--timeout", "0.05")
    assert f"{raw[0]} did not answer within 0.05 s" in line
    assert "--timeout" in line


def test_a_server_that_trickles_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    """The time is for the whole answer, not for its next byte."""
    enough = threading.Event()

    def trickle() -> Iterator[bytes]:
        while not enough.wait(0.01):
            yield b" "

    with scripted_server(lambda _: (200, trickle())) as script:
        try:
            assert "did not answer within 0.3 s" in refusal(capsys, "waiting", "--gate", script.url, "--timeout", "0.3")
        finally:
            enough.set()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it does not speak HTTP"),
        (b"", "closed the connection without an answer: try again"),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n%s",
         "answers 503: bu?y: try again"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_said(
    answer: bytes, words: str, raw: tuple[str, dict[str, bytes | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Another protocol, a hang-up, and an instance that is too busy."""
    problem = json.dumps({"title": "x", "status": 503, "detail": "bu\x1by"}).encode()
    raw[1]["answer"] = answer % (len(problem), problem) if b"%d" in answer else answer
    assert words in refusal(capsys, "ceilings", "--gate", raw[0])


def test_empty_pages_that_go_on_are_no_list(capsys: pytest.CaptureFixture[str]) -> None:
    """With a new cursor on each they could go on for ever."""
    cursors = iter(["a", "b", None] * 2)
    with scripted_server(lambda _: (200, {"as_of": AS_OF, "items": [], "next": next(cursors)})) as script:
        assert run(["ceilings", "--gate", script.url]) == 2
    assert "its pages lead nowhere" in capsys.readouterr().err

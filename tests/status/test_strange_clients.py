"""Clients that are slow, silent or strange, and ends in the middle of an answer: the gate's server outlasts them."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.status.serving import Service
from tests.kit.patience import PATIENCE

HOST = "Host: localhost\r\n"
SPEC = {"containers": [{"name": "c", "image": "i"}]}
META = {"name": "p", "namespace": "team"}
POD = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": META, "spec": SPEC}).encode()
LIVE = f"GET /livez HTTP/1.1\r\n{HOST}\r\n".encode()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    made.add(Gate().ledger)
    made.serve("127.0.0.1:0")
    yield made
    made.close()


def connected(service: Service) -> socket.socket:
    assert service.server is not None
    return socket.create_connection(("127.0.0.1", service.server.port), 20)


def said(connection: socket.socket) -> bytes:
    """Return all that comes until the server ends the connection."""
    with connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def answer(service: Service, request: bytes, *, ends: bool = False) -> tuple[int, str]:
    """Send this, and perhaps the end of it; return the status and the body of the answer."""
    connection = connected(service)
    connection.sendall(request)
    if ends:
        connection.shutdown(socket.SHUT_WR)
    head, _, body = said(connection).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def get(target: str, headers: str = HOST, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    return f"{method} {target} {version}\r\n{headers}Connection: close\r\n\r\n".encode()


def explain(body: bytes, headers: str = "", length: int | None = None) -> bytes:
    said = len(body) if length is None else length
    head = f"POST /v1/explain HTTP/1.1\r\n{HOST}Content-Type: application/json\r\nContent-Length: {said}\r\n"
    return f"{head}{headers}\r\n".encode() + body


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        pytest.param(get("http://localhost/livez"), 200, "ok", id="the target is a whole URL"),
        pytest.param(get("http://evil.example/livez"), 403, "'evil.example'", id="a whole URL of another host"),
        pytest.param(get("/livez#part"), 200, "ok", id="a fragment"),
        pytest.param(get("/readyz?verbose"), 200, "ok", id="a probe's own parameter"),
        pytest.param(get("/livez", HOST + "Origin: http://[\r\n"), 403, "web pages of", id="an origin that is no URL"),
        pytest.param(get("/livez", HOST + f"Cookie: a={'b' * 30_000}\r\n"), 200, "ok", id="many cookies"),
        pytest.param(get("/livez", HOST + f"A: {'b' * 70_000}\r\n"), 431, "65536 bytes", id="too long a header"),
        pytest.param(get("/livez", method="BREW"), 405, "GET and POST, not BREW", id="an unknown method"),
        pytest.param(get("/livez", version="HTTP/2.0"), 505, "HTTP/1.1", id="another version"),
        pytest.param(b"NONSENSE\r\n\r\n", 400, "can't be read: Invalid method", id="no HTTP"),
        pytest.param(explain(b""), 400, "contains no manifest", id="an empty body"),
        pytest.param(explain(gzip.compress(POD), "Content-Encoding: gzip\r\n"), 400, "not UTF-8", id="packed"),
        pytest.param(explain(POD, "Content-Encoding: gzip\r\n"), 200, "verdict", id="said to be packed"),
        pytest.param(explain(POD, "If-None-Match: *\r\n"), 200, "verdict", id="a POST is never unchanged"),
    ],
)
def test_strange_requests_are_answered(
    service: Service, caplog: pytest.LogCaptureFixture, request_: bytes, status: int, words: str
) -> None:
    found, body = answer(service, request_)
    assert (found, words in body) == (status, True), body
    assert not [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")]


def test_a_client_that_ends_its_side_gets_all_answers(service: Service) -> None:
    """As ``nc`` does at the end of its input. A body that ends too early is said to do so."""
    connection = connected(service)
    connection.sendall(LIVE * 3)
    connection.shutdown(socket.SHUT_WR)
    assert said(connection).count(b"200 OK") == 3
    status, body = answer(service, explain(POD, length=len(POD) + 5), ends=True)
    assert (status, "ends before its Content-Length" in body) == (400, True)
    connection = connected(service)
    connection.shutdown(socket.SHUT_WR)
    assert said(connection) == b""


def test_a_client_that_expects_to_be_told_to_go_on_is(service: Service) -> None:
    """As curl does before a large body."""
    connection = connected(service)
    connection.sendall(explain(b"", "Expect: 100-continue\r\n", len(POD)))
    assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(POD)
    assert b"200 OK" in said(connection)


def test_a_body_that_does_not_come_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backoff_ctrl.k8s.status.server.PATIENCE", 0.3)
    service = Service()
    service.serve("127.0.0.1:0")
    status, body = answer(service, explain(POD, length=len(POD) + 5))
    assert (status, "did not come within 0.3 seconds" in body) == (408, True)
    service.close()


def test_whoever_takes_no_answers_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else 64 of them would keep everybody else away."""
    monkeypatch.setattr("backoff_ctrl.k8s.status.server.PATIENCE", 0.3)
    service = Service()
    service.add(Gate().ledger)
    service.serve("127.0.0.1:0")
    connection = connected(service)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    questions = get("/metrics").replace(b"Connection: close\r\n", b"") * 100

    def ask_on() -> None:
        while True:
            connection.sendall(questions)

    with connection, pytest.raises(ConnectionError):
        ask_on()
    service.close()


def test_the_runtime_may_end_the_server_itself(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """It can't wait for the end there; yet all connections and the port end, and the next server answers."""
    kept, stream = connected(service), connected(service)
    kept.sendall(LIVE)
    stream.sendall(LIVE.replace(b"/livez", b"/v1/decisions"))
    assert kept.recv(100).startswith(b"HTTP/1.1 200")
    assert stream.recv(100).startswith(b"HTTP/1.1 200")
    closed = threading.Event()

    def close() -> None:
        service.close()
        closed.set()

    RUNTIME.post(close)
    assert closed.wait(10)
    said(kept)
    said(stream)
    service.serve("127.0.0.1:0")
    assert answer(service, get("/livez")) == (200, "ok\n")
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_who_closes_the_server_itself_may_serve_again(service: Service) -> None:
    """As ``serve_status`` promises: what it returns has a ``close``."""
    first = service.serve("127.0.0.1:0")
    first.close()
    first.close()
    again = service.serve("127.0.0.1:0")
    assert again is not first
    assert answer(service, get("/livez")) == (200, "ok\n")
    assert service.serve("127.0.0.1:0") is again


PROGRAM = textwrap.dedent(
    """\
    import gc, logging, os, socket, sys
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
    from backoff_ctrl.engine.facts.quotas import ObservedQuota
    from backoff_ctrl.k8s.gate.threads import Gate
    from backoff_ctrl.k8s.status.serving import SERVICE
    ledger = Gate().ledger
    SERVICE.add(ledger)
    amounts = {"pods": 10**9}
    for number in range(2000):
        ledger.observe_quota(f"team-{number}", "q", ObservedQuota(amounts, amounts, amounts))
    port = SERVICE.serve("127.0.0.1:0").port
    def ask(path):
        connection = socket.create_connection(("127.0.0.1", port), 20)
        connection.sendall(f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
        return connection
    kept, stream = ask("/livez"), ask("/v1/decisions")
    kept.recv(10), stream.recv(10)
    if sys.argv[1] == "forks":
        child = os.fork()
        gc.collect()
        if not child:
            sys.exit()
        os.waitpid(child, 0)
    else:
        asked = [ask("/metrics") for _ in range(10)]
    """
)


@pytest.mark.parametrize("how", ["forks", "is asked"])
def test_a_program_that_ends_meanwhile_says_nothing(how: str) -> None:
    """While it forks, or answers: nothing is in its log, and it does not wait for those who ask."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        env={**os.environ, "PYTHONASYNCIODEBUG": ""}, capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")

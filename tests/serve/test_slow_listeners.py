"""A listener of ``serve`` that takes nothing: it is dropped, and nobody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.responses import StreamingResponse

from backoff_ctrl.api.status.access import while_permitted
from backoff_ctrl.api.status.gates import Merged
from backoff_ctrl.api.status.listening import bind
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.streams import RETRY
from tests.kit.patience import PATIENCE
from tests.serve.serving import serving, until
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

DECISION = json.dumps({"namespace": "team", "name": "x" * 2000})
STALLED = 1.0


class Talk:
    """A stream of decisions, served as ``serve`` does, that a test tells what to say."""

    def __init__(self, bound: socket.socket) -> None:
        """Serve it at a socket."""
        self.port = bound.getsockname()[1]
        self.merged = Merged()
        self.streams = self.merged.streams()
        self.loop: asyncio.AbstractEventLoop | None = None
        app = FastAPI()

        async def listen() -> StreamingResponse:
            self.loop = asyncio.get_running_loop()
            return StreamingResponse(self.streams.listen(0, None, RETRY), media_type="text/event-stream")

        app.add_api_route("/v1/decisions", listen, response_model=None)
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [bound]})

    def tell(self, count: int) -> None:
        """Take in decisions, in the loop that they belong to."""
        assert self.loop is not None

        def tell() -> None:
            for _ in range(count):
                self.merged.take("decision", DECISION)

        self.loop.call_soon_threadsafe(tell)

    def connect(self, buffer: int) -> socket.socket:
        """Begin to listen, with room for so many bytes."""
        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        taken.connect(("127.0.0.1", self.port))
        taken.sendall(b"GET /v1/decisions HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return taken


@contextlib.contextmanager
def talking() -> Iterator[Talk]:
    """A stream, until the end of the block."""
    talk = Talk(bind("127.0.0.1", 0, STALLED))
    talk.thread.start()
    try:
        yield talk
    finally:
        if talk.loop is not None:
            talk.loop.call_soon_threadsafe(talk.streams.close)
        talk.server.should_exit = True
        talk.thread.join(PATIENCE)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the kernel can't drop who takes nothing")
def test_who_takes_nothing_is_dropped_while_others_listen() -> None:
    """Its place is free again; who reads gets all decisions meanwhile."""
    with talking() as talk, talk.connect(2048) as slow, talk.connect(1 << 20) as quick:
        until(lambda: len(talk.streams) == 2)
        talk.tell(2000)  # 4 MB: more than the kernel keeps for both ends
        read, last = quick.makefile("rb"), 0
        while last < 2000:
            line = read.readline()
            if line.startswith(b"id: "):
                last = int(line.rpartition(b"-")[2])
        until(lambda: len(talk.streams) == 1)
        slow.settimeout(30)
        with contextlib.suppress(ConnectionError):
            while slow.recv(1 << 16):
                pass
        talk.tell(1)
        while last < 2001:
            line = read.readline()
            last = int(line.rpartition(b"-")[2]) if line.startswith(b"id: ") else last
        read.close()


async def test_a_listener_hears_no_longer_than_it_may() -> None:
    """Its rights are asked for again as often as the API server's word is kept; then it is told nothing more."""
    now = [0.0]
    asked: list[float] = []
    merged = Merged()
    streams = merged.streams()

    async def permit() -> None:
        asked.append(now[0])
        if now[0] > 20:
            raise ProblemError(403, "no longer")

    heard = []
    stream = while_permitted(streams.listen(0, None, RETRY), permit, lambda: now[0])
    async for _ in stream:
        heard.append(now[0])
        now[0] += 6
        merged.take("decision", DECISION)
    assert heard == [0, 6, 12, 18]
    assert asked == [12, 24]
    assert len(streams) == 0


@pytest.mark.long
def test_a_body_that_ends_too_soon_is_no_error_of_ours(filled: BackgroundSandbox) -> None:
    """Whoever hangs up in the middle of a manifest leaves nothing in the log."""
    head = "POST /v1/explain?namespace=team HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with serving("--apiserver", filled.url) as url:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as hasty:
            hasty.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            assert ask(url, "/livez").status == 200
        for _ in range(3):
            assert ask(url, "/livez").status == 200

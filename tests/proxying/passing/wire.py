"""Conversations with a proxy over real sockets: a caller that sends bytes, an upstream that a test plays by hand."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from socket import AF_INET, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET, socket
from typing import Any, Final

from backoff_ctrl.k8s.sidecar.finding import UpstreamConfig, upstream_at
from backoff_ctrl.k8s.sidecar.http.messages import Head, Headers, Request, Response
from backoff_ctrl.k8s.sidecar.listening import Listener
from backoff_ctrl.k8s.sidecar.passing import Limits, Shared
from backoff_ctrl.k8s.sidecar.upstream import ApiServer
from tests.kit.patience import PATIENCE

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
VERSION_ANSWER: Final = b'HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{"gitVersion": "v1.36.0"}'
"""What an API server answers at ``/version``."""
GET: Final = b"GET /api HTTP/1.1\r\nHost: a\r\n\r\n"


class Side:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def gets(self, expected: bytes) -> None:
        got = b""
        with suppress(asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                got = await self.reader.readexactly(len(expected))
        assert got == expected

    async def head(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionResetError):
                return await self.reader.read()
        return b""

    async def ended(self) -> None:
        """Demand that the other side ends, and says nothing more."""
        assert await self.rest() == b""

    async def floods(self, data: bytes) -> None:
        """Demand that who sends this again and again comes to a stop: nobody reads, and what is buffered is bounded."""
        for _ in range(64 * 2**20 // len(data)):
            self.send(data)
            try:
                async with asyncio.timeout(0.3):
                    await self.writer.drain()
            except TimeoutError:
                return
        raise AssertionError("64 MiB were taken that nobody has read")

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Upstream:
    """An API server that a test plays: it takes connections, the test says what comes of them."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[Side] = asyncio.Queue()
        self.all: list[Side] = []
        self.server: asyncio.Server
        self.port = 0

    async def listen(self, tls: ssl.SSLContext | None = None) -> None:
        """Take connections, at the port of before if there was one."""
        self.server = await asyncio.start_server(self._take, "127.0.0.1", self.port, ssl=tls)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        side = Side(reader, writer)
        self.all.append(side)
        self.arrived.put_nowait(side)

    async def connection(self) -> Side:
        async with asyncio.timeout(PATIENCE):
            return await self.arrived.get()

    async def stop(self) -> None:
        self.server.close()
        for each in self.all:
            each.writer.transport.abort()
        self.all.clear()


class NothingHeld:
    """A room of held creates that chooses none: all requests pass."""

    def reads(self, head: Head) -> bool:
        del head
        return False

    async def answer(self, request: Request) -> Response:
        raise AssertionError(f"nothing is held, so {request.head.method!r} should have passed")

    def watches(self, head: Head, status: int) -> bool:
        del head, status
        return False

    def passed(self, head: Head, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Learn nothing."""

    async def close(self, limit: float = 10.0) -> None:
        del limit


@dataclass
class Chosen(NothingHeld):
    """A room of held creates whose answers a test gives: POSTs of pods are held."""

    asked: asyncio.Queue[tuple[Request, asyncio.Future[Response]]] = field(default_factory=asyncio.Queue)
    seen: list[tuple[bytes, int, Headers, bytes]] = field(default_factory=list)
    given_up: list[Request] = field(default_factory=list)
    closing: bool = False

    def reads(self, head: Head) -> bool:
        return head.method == b"POST" and head.target.endswith(b"/pods")

    async def answer(self, request: Request) -> Response:
        answer = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((request, answer))
        try:
            response: Response = await answer
        except asyncio.CancelledError:
            self.given_up.append(request)
            raise
        return response

    def watches(self, head: Head, status: int) -> bool:
        return status == 403 or head.method == b"DELETE"

    def passed(self, head: Head, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.seen.append((head.method + b" " + head.target, status, list(headers), body))


class Proxied:
    """A running proxy."""

    def __init__(self, listener: Listener, shared: Shared, bound: socket, upstream: Upstream) -> None:
        self.listener = listener
        self.shared = shared
        self.port = bound.getsockname()[1]
        self.upstream = upstream
        self.client: ssl.SSLContext | None = None
        """What callers use who name nothing else."""
        self._callers: list[Side] = []

    async def caller(
        self, tls: ssl.SSLContext | None = None, sent: bytes = b"", *, bare: bool = False, at: str = "127.0.0.1"
    ) -> Side:
        """Connect from the address ``at``, of this machine."""
        tls = None if bare else tls or self.client
        name, near = "localhost" if tls else None, (at, 0)
        made = Side(
            *await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, server_hostname=name, local_addr=near)
        )
        self._callers.append(made)
        if sent:
            made.send(sent)
        return made

    async def pair(self, sent: bytes) -> tuple[Side, Side]:
        """Connect and send; return the caller, and the connection to the upstream that is made for it."""
        caller = await self.caller(sent=sent)
        return caller, await self.upstream.connection()

    async def close(self) -> None:
        for each in self._callers:
            each.writer.transport.abort()
        await self.listener.close(0.0)


@asynccontextmanager
async def proxied(
    creates: Any = None,
    limits: Limits | None = None,
    tls: ssl.SSLContext | None = None,
    upstream_tls: ssl.SSLContext | None = None,
    place: Callable[[int], UpstreamConfig] = lambda port: upstream_at(f"http://127.0.0.1:{port}"),
    **more: Any,
) -> AsyncIterator[Proxied]:
    """Run a proxy before an upstream that the test plays."""
    upstream = Upstream()
    await upstream.listen(upstream_tls)
    bound = socket(AF_INET, SOCK_STREAM)
    bound.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    use_own = more.pop("use_own", False)
    server = ApiServer(place(upstream.port), use_own=use_own)
    shared = Shared(server, creates or NothingHeld(), limits or Limits(), **more)
    listener = Listener(shared, bound, tls)
    await listener.start()
    running = Proxied(listener, shared, bound, upstream)
    try:
        yield running
    finally:
        await running.close()
        server.close()
        await upstream.stop()


async def answered(caller: Side, server: Side) -> None:
    """Answer a request, so that its connection is kept."""
    await server.head()
    server.send(OK)
    await caller.gets(OK)


async def idle(proxy: Proxied) -> Side:
    """Leave one idle connection to the server, and return the server's end of it."""
    caller, server = await proxy.pair(GET)
    await answered(caller, server)
    await caller.close()
    return server


def below(side: Side) -> socket:
    """Return the socket below a connection: what is done to it happens now, and as others on its way could do it."""
    return socket(fileno=os.dup(side.writer.get_extra_info("socket").fileno()))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)

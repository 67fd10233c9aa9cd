"""The server of a gate's status: aiohttp.web on the runtime's loop, for this machine alone.

The loop only reads requests and writes answers; two threads of our own make the answers (``gate_endpoints``), in
slices. A web page could post to loopback or rebind a name to it. So the server answers only requests for a loopback
host, none that a page of another site sends, and changes nothing without a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod
from aiohttp.web_protocol import RequestHandler

from backoff_ctrl.k8s.runtime.host import RUNTIME, Task

from .address import host_of, is_loopback, name_of, named_hosts
from .asked import ProblemError, problem_text
from .bodies import too_large
from .endpoints import find, methods_of
from .gate_endpoints import PIECE, GateEndpoints, Reply, Sent, in_blocks, matches, read
from .streams import Streams

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
"""Open connections at a time, streams apart."""
PATIENCE: Final = 15.0
"""Seconds that a connection may be silent, in the middle of a request too."""
STALLED: Final = 10.0
"""Seconds that a listener may take none of what was sent to it; then it is dropped."""
GOODBYE: Final = 1.0
"""Seconds for answers under way when the server ends."""
THREADS: Final = 2
BACKLOG: Final = 64
PROBLEM: Final = "application/problem+json"


class StatusServer:
    """Serves from its start until ``close``. ``url`` is where."""

    def __init__(
        self,
        address: tuple[str, int],
        endpoints: GateEndpoints,
        streams: Streams,
        *,
        shared: bool = False,
        stalled: float | None = None,
    ) -> None:
        """Listen. ``shared``: other processes of this user may listen there, too (SO_REUSEPORT).

        A listener that takes nothing for ``stalled`` seconds is dropped. Raises ``OSError`` if the address can't be
        used.
        """
        self.endpoints = endpoints
        self.streams = streams
        self._stalled = STALLED if stalled is None else stalled
        self._hosts = named_hosts()
        self._socket = _bound(address, shared=shared)
        self._address = self._socket.getsockname()
        self._making = ThreadPoolExecutor(THREADS, "backoff-ctrl-status")
        self._connections: set[_Connection] = set()
        self._streaming: set[_Connection] = set()
        self._task: Task | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._address[1])

    @property
    def url(self) -> str:
        """Where it is."""
        host = str(self._address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self) -> None:
        """Begin to answer."""
        self._task = RUNTIME.spawn(self._run, GOODBYE)

    def close(self) -> None:
        """End, and close the streams. A second call does nothing."""
        task, self._task = self._task, None
        if task is not None:
            task.stop()
            if not RUNTIME.is_here:
                task.join(3 * GOODBYE)
        self._socket.close()

    def abandon(self) -> None:
        """Drop the sockets in a forked child, where nothing serves them. The parent's stay open."""
        self._task = None
        self._socket.close()
        null = os.open(os.devnull, os.O_RDWR)
        for connection in self._connections:  # not closed: what still holds the number would close another file later
            os.dup2(null, connection.number)
        os.close(null)

    # -- on the loop ---------

    async def _run(self, task: Task) -> None:
        loop = asyncio.get_running_loop()
        web_server = web.Server(self._answer)
        server = await loop.create_server(
            lambda: _Connection(self, web_server, loop), sock=self._socket, backlog=BACKLOG
        )
        try:
            while not task.ending:
                await task.wait()
        finally:
            server.close()
            self.streams.close()
            web_server.pre_shutdown()
            await web_server.shutdown(GOODBYE / 2)
            for connection in list(self._connections):
                connection.hang_up()
            self._making.shutdown(wait=False)

    def opened(self, connection: _Connection) -> bool:
        """Note a connection. False: there are too many."""
        if len(self._connections) - len(self._streaming) >= CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        return True

    def lost(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._streaming.discard(connection)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        response: web.StreamResponse
        try:
            self._check(request)
            endpoint, in_path = find(request.method, path)
            asked = read(endpoint, query, in_path)
            if endpoint.answers == "stream":
                return await self._stream(request, asked.namespace, asked.after)
            headers = {name.lower(): value for name, value in request.headers.items()}
            sent = Sent(headers, await _body(request) if endpoint.method == "POST" else b"")
            reply = await self._made(lambda: self.endpoints.reply_at(endpoint, asked, sent))
            response = await _respond(request, reply)
        except ProblemError as error:
            response = _problem(error, path)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - law 18: status only helps
            self.endpoints.failed(error)
            response = _problem(ProblemError(500, "an internal error; it is counted, and logged once"), path)
        if request.method != "GET":
            response.force_close()  # it may have a body that nobody reads to its end
        return response

    async def _made(self, make: Callable[[], Reply]) -> Reply:
        def made() -> Reply:
            reply = make()
            reply.body = in_blocks(reply.body)
            return reply

        return await asyncio.get_running_loop().run_in_executor(self._making, made)

    def _check(self, request: web.BaseRequest) -> None:
        host = request.headers.get("Host")
        if host is None or not (is_loopback(host) or name_of(host) in self._hosts):
            raise ProblemError(
                403,
                f"this server answers for localhost only, not for {host!r}: reach it through kubectl port-forward",
                "#/headers/Host",
            )
        origin = request.headers.get("Origin")
        if origin is not None and not is_loopback(host_of(origin)):
            raise ProblemError(403, f"this server does not answer web pages of {origin!r}", "#/headers/Origin")

    async def _stream(self, request: web.BaseRequest, namespace: str | None, after: str | None) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        response.force_close()
        if request.method == "HEAD":
            return response
        if self.streams.full:
            raise ProblemError(503, "too many listeners of decisions: try again later")
        seq, first = self.streams.place(request.headers.get("Last-Event-ID") or after)
        connection = request.protocol
        assert isinstance(connection, _Connection)
        self._streaming.add(connection)
        await response.prepare(request)
        async with contextlib.aclosing(self.streams.listen(seq, namespace, b"retry: 2000\n\n" + first)) as pieces:
            async for piece in pieces:
                if not await self._taken(response, piece):
                    self.streams.dropped += 1
                    connection.hang_up()
                    break
        return response

    async def _taken(self, response: web.StreamResponse, piece: bytes) -> bool:
        """Send a piece. False: for too long nothing of it was taken."""
        for start in range(0, len(piece), PIECE):
            try:
                async with asyncio.timeout(self._stalled):
                    await response.write(piece[start : start + PIECE])
            except TimeoutError:
                return False
        return True


class _Connection(RequestHandler):
    """One connection of a client: aiohttp's, with our limits and error messages."""

    __slots__ = ("_server", "number")

    def __init__(self, server: StatusServer, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # as aiohttp takes it
            keepalive_timeout=PATIENCE,
            lingering_time=1.0,
        )
        self._server = server
        self.number = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._server.opened(self):
            transport.close()
            return
        self.number = transport.get_extra_info("socket").fileno()
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.lost(self)
        if self.number >= 0:
            super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that can't even be read."""
        log.debug("a request to the status API from %s can't be read", request.remote, exc_info=exc)
        if isinstance(exc, BadHttpMethod):  # llhttp has a fixed list of methods
            status, message = 405, f"this server answers GET and POST, not {exc.line[:20]!r}"
        response = _problem(ProblemError(status, message or "the request can't be read"), "")
        response.force_close()
        return response

    def hang_up(self) -> None:
        """End the connection at once, also where a forked child has it open, too."""
        transport = self.transport
        if transport is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.number)) as same:
                same.shutdown(socket.SHUT_RDWR)
            transport.abort()


async def _body(request: web.BaseRequest) -> bytes:
    """Read the body, if it is not too large. Raises ``ProblemError``."""
    length = request.headers.get("Content-Length", "")
    if not (length.isascii() and length.isdecimal()):
        raise ProblemError(411, "send the body with its Content-Length", "#/headers/Content-Length")
    too_large(int(length))
    try:
        async with asyncio.timeout(PATIENCE):
            return await request.content.readexactly(int(length))
    except asyncio.IncompleteReadError:
        raise ProblemError(400, "the body ends before its Content-Length", "#/body") from None


async def _respond(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    """Send an answer block by block: a long one need not be in the connection's memory."""
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    if reply.etag:
        headers["ETag"] = reply.etag
        if matches(request.headers.get("If-None-Match", ""), reply.etag):
            return web.Response(status=304, headers=headers)
    headers["Content-Type"] = reply.content_type
    if len(reply.body) < 2:
        return web.Response(status=reply.status, headers=headers, body=b"".join(reply.body))
    response = web.StreamResponse(status=reply.status, headers=headers)
    response.content_length = sum(map(len, reply.body))
    if request.method != "HEAD":
        await response.prepare(request)
        for block in reply.body:
            async with asyncio.timeout(PATIENCE):
                await response.write(block)
    return response


def _problem(error: ProblemError, path: str) -> web.Response:
    problem = error.problem
    headers = {"Content-Type": PROBLEM, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    if problem.status == 405:
        headers["Allow"] = methods_of(path)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.status == 503:
        headers["Retry-After"] = "5"
    return web.Response(status=problem.status, headers=headers, body=problem_text(problem))


def _bound(address: tuple[str, int], *, shared: bool) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except BaseException:
        bound.close()
        raise
    bound.setblocking(False)
    return bound

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
import re
import socket
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from aiohttp.web_protocol import RequestHandler

from backoff_ctrl.k8s.gate.runtime.host import RUNTIME, Blocking, Task, leave_behind
from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.kube.cluster.address import host_of, is_loopback, name_of

from .asked import ProblemError, problem_text
from .bodies import too_large
from .decisions import Told
from .endpoints import find, methods_of
from .gate_endpoints import PIECE, GateEndpoints, Reply, Sent, in_blocks, matches, read
from .streams import RETRY, Streams

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
"""Open connections at a time, streams apart."""
PATIENCE: Final = 15.0
"""Seconds that a connection may take for a whole head, for a body, and until it takes what was sent to it."""
STALLED: Final = 10.0
"""Seconds that a listener may take none of what was sent to it; then it is dropped."""
GOODBYE: Final = 1.0
"""Seconds for answers under way when the server ends."""
THREADS: Final = 2
BACKLOG: Final = 64
LINE_MAX: Final = 65_536
"""Bytes of a header, and of the first line: browsers send whatever cookies a host has."""
PROBLEM: Final = "application/problem+json"


class StatusServer:
    """Serves from its start until ``close``. ``url`` is where."""

    def __init__(
        self,
        address: tuple[str, int],
        endpoints: GateEndpoints,
        streams: Streams[Told],
        *,
        shared: bool = False,
    ) -> None:
        """Listen. ``shared``: other processes of this user may listen there, too (SO_REUSEPORT).

        Raises ``OSError`` if the address can't be used.
        """
        self.endpoints = endpoints
        self.streams = streams
        self.patience = PATIENCE
        self.stalled = STALLED
        self._hosts = frozenset(map(name_of, settings().status_hosts)) - {""}
        self._socket = _bound(address, shared=shared)
        self._address = self._socket.getsockname()
        self._making = Blocking("backoff-ctrl-status", THREADS)
        self._connections: set[_Connection] = set()
        self._streaming: set[_Connection] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._task: Task | None = None

    @property
    def port(self) -> int:
        return int(self._address[1])

    @property
    def url(self) -> str:
        host = str(self._address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def is_closed(self) -> bool:
        return self._task is None

    def start(self) -> None:
        self._task = RUNTIME.spawn(self._run, GOODBYE)

    def close(self) -> None:
        """End, and close the streams. A second call does nothing. The runtime's own thread does not wait for it."""
        task, self._task = self._task, None
        if task is None:
            self._socket.close()
            return
        task.stop()
        if not RUNTIME.is_here:
            task.join(3 * GOODBYE)

    def abandon(self) -> None:
        """Drop the sockets in a forked child, where nothing serves them. The parent's stay open."""
        self._task = None
        self._socket.close()
        null = os.open(os.devnull, os.O_RDWR)
        for connection in self._connections:  # not closed: what still holds the number would close another file later
            os.dup2(null, connection.number)
        os.close(null)
        leave_behind(self)

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
            self._socket.close()
            self.streams.close()
            web_server.pre_shutdown()
            try:
                await self._served(GOODBYE / 2)
            finally:
                for connection in list(self._connections):
                    connection.hang_up()
                self._making.shutdown(wait=False)
                for each in self._serving:
                    each.cancel()
                await self._served(GOODBYE / 4)

    async def _served(self, seconds: float) -> None:
        """Wait until all connections are served, so many seconds at most."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=seconds)

    def opened(self, connection: _Connection) -> bool:
        """Note a connection. False: there are too many."""
        if len(self._connections) - len(self._streaming) >= CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        return True

    def serves(self, task: asyncio.Task[None]) -> None:
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def lost(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._streaming.discard(connection)

    def stalls(self, connection: _Connection) -> None:
        """Drop a client that takes too little."""
        self.streams.dropped += self.streams_to(connection)
        connection.hang_up()

    def streams_to(self, connection: _Connection) -> bool:
        return connection in self._streaming

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        host, target = _target_of(request)
        path, _, query = target.partition("?")
        response: web.StreamResponse
        try:
            self._check(request, host)
            endpoint, in_path = find(request.method, path)
            asked = read(endpoint, query, in_path)
            if endpoint.answers == "stream":
                return await self._stream(request, asked.namespace, asked.after)
            headers = {name.lower(): value for name, value in request.headers.items()}
            sent = Sent(headers, await self._body(request) if endpoint.method == "POST" else b"")
            reply = await self._made(lambda: self.endpoints.reply_at(endpoint, asked, sent))
            response = await _respond(request, reply)
        except ProblemError as error:
            response = _problem(error, path)
        except ConnectionError:
            raise
        except Exception as error:  # fails open: status only helps
            self.endpoints.failed(error)
            if request.writer.output_size:  # the head of another answer is out already
                raise ConnectionError("an answer broke off") from error
            response = _problem(ProblemError(500, "an internal error; it is counted, and logged once"), path)
        connection = request.protocol
        assert isinstance(connection, _Connection)
        if request.method != "GET" or connection.is_last:
            response.force_close()  # it may have a body that nobody reads to its end
        return response

    async def _made(self, make: Callable[[], Reply]) -> Reply:
        def made() -> Reply:
            reply = make()
            reply.body = in_blocks(reply.body)
            return reply

        return await asyncio.get_running_loop().run_in_executor(self._making, made)

    def _check(self, request: web.BaseRequest, host: str | None) -> None:
        if request.version.major != 1:
            raise ProblemError(505, "this server speaks HTTP/1.1")
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
        async with contextlib.aclosing(self.streams.listen(seq, namespace, RETRY + first)) as pieces:
            async for piece in pieces:
                for start in range(0, len(piece), PIECE):  # taken piece by piece, a large one is no stall
                    await response.write(piece[start : start + PIECE])
        return response

    async def _body(self, request: web.BaseRequest) -> bytes:
        """Read the body, if it is not too large. Raises ``ProblemError``."""
        length = request.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise ProblemError(411, "send the body with its Content-Length", "#/headers/Content-Length")
        too_large(int(length))
        if int(length) == 0:
            return b""
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # as aiohttp does: this was no answer
        cast(_Connection, request.protocol).end_body(request)
        try:
            async with asyncio.timeout(self.patience):
                return await request.content.readexactly(int(length))
        except TimeoutError:
            raise ProblemError(408, f"the body did not come within {self.patience:g} seconds", "#/body") from None
        except asyncio.IncompleteReadError:
            raise ProblemError(400, "the body ends before its Content-Length", "#/body") from None


class _Connection(RequestHandler):
    """One connection of a client: aiohttp's, with our limits and error messages."""

    __slots__ = ("_ended", "_server", "_stalling", "_wire", "number")

    def __init__(self, server: StatusServer, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # as aiohttp takes it
            keepalive_timeout=server.patience,
            lingering_time=1.0,
            max_line_size=LINE_MAX,
            max_field_size=LINE_MAX,
            auto_decompress=False,
        )
        self._server = server
        self._ended = False
        self._stalling: asyncio.TimerHandle | None = None
        self._wire: asyncio.Transport | None = None
        self.number = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._server.opened(self):
            transport.close()
            return
        self._wire = cast(asyncio.Transport, transport)
        self._wire.set_write_buffer_limits(high=0)  # the least that is not taken counts as a stall
        self.number = transport.get_extra_info("socket").fileno()
        super().connection_made(transport)
        assert self._task_handler is not None
        self._server.serves(self._task_handler)

    def pause_writing(self) -> None:
        super().pause_writing()
        server = self._server
        seconds = server.stalled if server.streams_to(self) else server.patience
        self._stalling = self._loop.call_later(seconds, server.stalls, self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def _taken(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio keeps the connection for who returns True
        """Answer what came before a client said that nothing more comes. A listener is gone then."""
        is_idle = self._waiter is not None and not self._waiter.done()
        self._ended = not is_idle and not self._server.streams_to(self)
        if self._ended and self._current_request is not None:
            self.end_body(self._current_request)
        return self._ended

    def end_body(self, request: web.BaseRequest) -> None:
        """Let a body end that does not go on."""
        if self._ended and not request.content.is_eof():
            request.content.feed_eof()

    @property
    def is_last(self) -> bool:
        """Whether nothing comes after the request that is answered now."""
        return self._ended and not self._messages

    def connection_lost(self, exc: BaseException | None) -> None:
        self._taken()
        if self._server.streams_to(self) and self._task_handler is not None:
            self._task_handler.cancel()  # it waits for decisions, which nobody hears
        self._server.lost(self)
        if self._wire is not None:
            self._wire = None
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
        why, _, line = (message or "").partition("\n")
        found = _FIRST_LINE.search(line)
        path = ""
        if isinstance(exc, LineTooLong):
            error = ProblemError(431, f"a line of the request has more than {LINE_MAX} bytes")
        elif isinstance(exc, BadHttpMethod) and found is not None:  # the parser knows a list of methods
            error, path = ProblemError(405, f"this server answers GET and POST, not {found[1]}"), found[2]
        else:
            error = ProblemError(status, f"the request can't be read: {why.rstrip(':')}" if why else UNREADABLE)
        response = _problem(error, path)
        response.force_close()
        return response

    def log_exception(self, *args: object, **more: object) -> None:
        """Log quietly what a client did; what we do wrong is counted where it happens."""
        log.debug(*args, **more)  # type: ignore[arg-type]  # as aiohttp gives them

    def hang_up(self) -> None:
        """End the connection at once, also where a forked child has it open, too."""
        transport = self._wire
        if transport is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.number)) as same:
                same.shutdown(socket.SHUT_RDWR)
            transport.abort()


_FIRST_LINE: Final = re.compile(r"b['\"](\S+) ([^\s?]+)\S* HTTP/")
UNREADABLE: Final = "the request can't be read"


def _target_of(request: web.BaseRequest) -> tuple[str | None, str]:
    """Return the host that a request is for, and its path with the query: a target may be a whole URL."""
    target, host = request.raw_path.partition("#")[0], request.headers.get("Host")
    scheme, there, rest = target.partition("://")
    if not there or scheme.lower() != "http":
        return host, target
    host, slash, rest = rest.partition("/")
    return host, slash + rest


async def _respond(request: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    """Send an answer block by block: a long one need not be in the connection's memory."""
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    if reply.etag and request.method != "POST":
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

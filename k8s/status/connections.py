"""The connections of a gate's status server: aiohttp's, with our limits, and our words for what can't be read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from aiohttp.web_protocol import RequestHandler

from .asked import ProblemError
from .conversation import Answer, problem
from .endpoints import other_method

if TYPE_CHECKING:
    from .decisions import KeptDecision
    from .streams import Streams

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
"""Open connections at a time, streams apart."""
LINE_MAX: Final = 65_536
"""Bytes of a header, and of the first line: browsers send whatever cookies a host has."""
UNREADABLE: Final = "the request can't be read"
_FIRST_LINE: Final = re.compile(r"b['\"](\S+) ([^\s?]+)\S* HTTP/")
HEADERS: Final = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
"""Of every answer but streams."""
HEADERS_OF_STREAM: Final = {"Cache-Control": "no-store"}


class Connections:
    """The open connections of one server. They belong to its loop."""

    def __init__(self, streams: Streams[KeptDecision], patience: float, stalled: float) -> None:
        """Drop a client that takes nothing for ``patience`` seconds, or a listener for ``stalled``."""
        self.streams = streams
        self.patience = patience
        self.stalled = stalled
        self.open: set[Connection] = set()
        self.serving: set[asyncio.Task[None]] = set()

    @property
    def are_too_many(self) -> bool:
        return sum(not each.listens for each in self.open) >= CONNECTIONS_MAX

    async def served(self, seconds: float) -> None:
        """Wait until all connections are served, so many seconds at most."""
        if self.serving:
            await asyncio.wait(self.serving, timeout=seconds)

    def cancel(self) -> None:
        for each in self.serving:
            each.cancel()

    def hang_up(self) -> None:
        for connection in list(self.open):
            connection.hang_up()

    def abandon(self) -> None:
        """Drop the sockets in a forked child. They are not closed: what holds the number would close another file."""
        null = os.open(os.devnull, os.O_RDWR)
        for connection in self.open:
            os.dup2(null, connection.number)
        os.close(null)


class Connection(RequestHandler):
    """One connection of a client."""

    __slots__ = ("_ended", "_stalling", "_wire", "connections", "listens", "number")

    def __init__(self, connections: Connections, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # as aiohttp takes it
            keepalive_timeout=connections.patience,
            lingering_time=1.0,
            max_line_size=LINE_MAX,
            max_field_size=LINE_MAX,
            auto_decompress=False,
        )
        self.connections = connections
        self.listens = False
        """Whether a stream is sent to it."""
        self._ended = False
        self._stalling: asyncio.TimerHandle | None = None
        self._wire: asyncio.Transport | None = None
        self.number = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.connections.are_too_many:
            transport.close()
            return
        self.connections.open.add(self)
        self._wire = cast(asyncio.Transport, transport)
        self._wire.set_write_buffer_limits(high=0)  # the least that is not taken counts as a stall
        self.number = transport.get_extra_info("socket").fileno()
        super().connection_made(transport)
        assert self._task_handler is not None
        self.connections.serving.add(self._task_handler)
        self._task_handler.add_done_callback(self.connections.serving.discard)

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = self.connections.stalled if self.listens else self.connections.patience
        self._stalling = self._loop.call_later(seconds, self._drop)

    def _drop(self) -> None:
        """Hang up on a client that takes too little."""
        self.connections.streams.dropped += self.listens
        self.hang_up()

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
        self._ended = not is_idle and not self.listens
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
        if self.listens and self._task_handler is not None:
            self._task_handler.cancel()  # it waits for decisions, which nobody hears
        self.connections.open.discard(self)
        self.listens = False
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
        if isinstance(exc, LineTooLong):
            error = ProblemError(431, f"a line of the request has more than {LINE_MAX} bytes")
        elif isinstance(exc, BadHttpMethod) and found is not None:  # the parser knows a list of methods
            error = other_method(found[1], found[2])
        else:
            error = ProblemError(status, f"the request can't be read: {why.rstrip(':')}" if why else UNREADABLE)
        response = response_of(problem(error))
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


def response_of(found: Answer) -> web.StreamResponse:
    """Return the response for an answer; what it has in several blocks, or in a stream, is to be written yet."""
    headers = {**(HEADERS if found.stream is None else HEADERS_OF_STREAM), **found.headers}
    if found.content_type:
        headers["Content-Type"] = found.content_type
    if found.stream is None and len(found.body) < 2:
        return web.Response(status=found.status, headers=headers, body=found.whole)
    response = web.StreamResponse(status=found.status, headers=headers)
    if found.stream is None:
        response.content_length = sum(map(len, found.body))
    else:
        response.force_close()
    return response

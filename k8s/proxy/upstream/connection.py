"""A connection to the API server: one request at a time, and where its answer goes."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Final, Protocol

from backoff_ctrl.k8s.proxy.gathering import Gathering, Outbox
from backoff_ctrl.k8s.proxy.http.answers import AnswerHead, AnswerReader, BrokenAnswerError, Framing

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFER: Final = 256 * 1024
"""Bytes that wait for a slow reader on either side; then its writer is slowed."""


class Taker(Protocol):
    """Who asked on a connection, and takes what comes of it."""

    def informed(self, raw: bytes) -> None:
        """Take an informational answer, such as 100 Continue."""

    def answered(self, head: AnswerHead, raw: bytes, body: bytes, *, whole: bool) -> None:
        """Take the head of the answer, and the beginning of its body. ``whole``: there is no more."""

    def continued(self, data: bytes, *, whole: bool) -> None:
        """Take more of the body, as it was received; behind a 101: of the tunnel."""

    def ended(self) -> None:
        """Learn that the server has ended its half of a tunnel."""

    def lost(self, why: str) -> None:
        """Learn that the connection is lost before the answer was whole."""

    def clogged(self) -> None:
        """Send no more for now: the server reads slowly."""

    def cleared(self) -> None:
        """Go on sending."""


class UpstreamConnection(asyncio.Protocol):
    """A connection of a pool. ``taker`` is who uses it, None while it is idle."""

    __slots__ = ("_closed", "_held", "_outbox", "_reader", "begun", "idle_since", "taker", "transport", "used")

    def __init__(self, closed: Callable[[UpstreamConnection], None], outbox: Outbox) -> None:
        """``closed`` is called when it is lost."""
        self._closed = closed
        self._outbox = outbox
        self._reader = AnswerReader()
        self._held = False
        self.taker: Taker | None = None
        self.transport: Gathering | None = None
        self.begun = False
        """Whether anything of the present answer has come."""
        self.used = False
        """Whether an answer came on it before."""
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one of a stream
        """Keep the transport."""
        transport.set_write_buffer_limits(BUFFER)
        self.transport = Gathering(transport, self._outbox)

    @property
    def alive(self) -> bool:
        """Whether it can be used, as far as this process has heard."""
        return self.transport is not None and not self.transport.is_closing()

    def silent(self) -> bool:
        """Say whether nothing has come from the server that was not read: an end, above all."""
        assert self.transport is not None
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLHUP)
        return not poll.poll(0)

    def ask(self, taker: Taker, method: bytes) -> None:
        """Let ``taker`` have the answer to a request of this method, which it sends itself."""
        self.taker = taker
        self.begun = False
        self._reader.expect(method)

    def hold(self) -> None:
        """Read nothing more for now."""
        if self.alive and not self._held:
            self._held = True
            self.transport.pause_reading()  # type: ignore[union-attr]  # it is alive

    def go_on(self) -> None:
        """Undo ``hold``: the rest of the answer is read."""
        if self._held and self.alive:
            self._held = False
            self.transport.resume_reading()  # type: ignore[union-attr]

    def abort(self) -> None:
        """Close it at once; nobody is told."""
        self.taker = None
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand on what the server says."""
        taker = self.taker
        if taker is None:
            self.abort()  # nobody asked: it can't be trusted to keep answers apart
            return
        self.begun = True
        reader = self._reader
        try:
            if reader.head is not None:
                if reader.head.framing is Framing.TUNNEL:
                    taker.continued(data, whole=False)
                    return
                body = reader.read_body(data)
                if reader.whole:
                    self.taker = None
                taker.continued(body, whole=reader.whole)
            else:
                self._begin(taker, data)
        except BrokenAnswerError as error:
            self.abort()
            taker.lost(f"its answer is not valid HTTP/1.1: {error}")

    def _begin(self, taker: Taker, data: bytes) -> None:
        """Read heads: informational ones, then that of the answer."""
        reader = self._reader
        while (found := reader.read_head(data)) is not None:
            raw, data = found
            head = reader.head
            assert head is not None
            if head.status < 200 and head.framing is not Framing.TUNNEL:
                taker.informed(raw)
                reader.head = None
                reader.whole = False
                if not data or self.taker is not taker:
                    return
                continue
            body = reader.read_body(data) if data and head.framing is not Framing.TUNNEL else data
            if reader.whole:
                self.taker = None
            taker.answered(head, raw, body, whole=reader.whole)
            return

    @property
    def reusable(self) -> bool:
        """Whether it may be asked again after the answer that has just ended."""
        head = self._reader.head
        return self.alive and head is not None and head.kept and self._reader.whole

    def eof_received(self) -> bool:
        """Let a tunnel's other half live on."""
        head = self._reader.head
        if self.taker is not None and head is not None and head.framing is Framing.TUNNEL:
            self.taker.ended()
            return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who uses it, and the pool."""
        self._closed(self)
        taker, self.taker = self.taker, None
        if taker is None:
            return
        head = self._reader.head
        if head is not None and head.framing is Framing.CLOSE and exc is None:
            head.kept = False
            taker.continued(b"", whole=True)
        else:
            taker.lost("it closed the connection" if exc is None else f"the connection broke: {type(exc).__name__}")

    def pause_writing(self) -> None:
        """Slow down who sends a body."""
        if self.taker is not None:
            self.taker.clogged()

    def resume_writing(self) -> None:
        """Let it go on."""
        if self.taker is not None:
            self.taker.cleared()

"""A create whose body is read here, and that the room of held creates answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.proxy.http.heads import note_for
from backoff_ctrl.k8s.proxy.http.refusals import CONTINUE, refusal, whole
from backoff_ctrl.k8s.proxy.messages import Request

if TYPE_CHECKING:
    import asyncio

    from backoff_ctrl.k8s.proxy.http.requests import Asked
    from backoff_ctrl.k8s.proxy.messages import Response

    from .sides import Waiting

log = logging.getLogger(__name__)


class Held:
    """One request. Its caller hangs up by closing even its half of the connection."""

    __slots__ = ("_asked", "_caller", "_continued", "_pieces", "_size", "_task", "blocked", "endless", "half_closable")

    def __init__(self, caller: Waiting, asked: Asked) -> None:
        """Read the body; who waits to be asked for it is asked."""
        self._caller = caller
        self._asked = asked
        self._pieces: list[bytes] = []
        self._size = 0
        self._task: asyncio.Task[Response] | None = None
        self.blocked = False
        self.half_closable = False
        self.endless = False
        self._continued = asked.expects and asked.has_body and not caller.reader.parts
        if self._continued:
            caller.transport.write(CONTINUE)

    def body(self, piece: bytes) -> None:
        """Keep a piece, or let everything pass where it is too much."""
        caller, limits = self._caller, self._caller.shared.limits
        self._pieces.append(piece)
        self._grow(len(piece))
        if self._size > limits.body_bytes or caller.shared.held_bytes > limits.held_bytes:
            pieces, self._pieces = self._pieces, []
            self._grow(-self._size)
            passage = caller.pass_on(self._asked, continued=self._continued)
            passage.body(b"".join(pieces))

    def _grow(self, size: int) -> None:
        self._size += size
        self._caller.shared.held_bytes += size

    def end(self, trailers: list[tuple[bytes, bytes]]) -> None:
        """Ask for the answer; trailers say nothing about a create."""
        del trailers
        caller = self._caller
        request = Request(self._asked.head, b"".join(self._pieces))
        self._pieces = []
        self._task = caller.loop.create_task(caller.shared.creates.answer(request))
        self._task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[Response]) -> None:
        self._grow(-self._size)
        caller = self._caller
        close = self._asked.closing or caller.closes
        if task.cancelled():
            caller.finished(self, close=True)
            return
        error = task.exception()
        if error is None:
            response = task.result()
            if caller.transport.is_closing():  # it went in this very moment: uvloop takes no bytes any more
                caller.told(response.if_unread)
                caller.finished(self, close=True)
                return
            known = self._asked.has_credentials or caller.shared.server.uses_own
            note = b"" if known else note_for(response.status, response.body)
            caller.transport.write(whole(response, close=close, note=note))
            caller.told(response.if_unread)
        else:
            log.error("a create failed inside the proxy", exc_info=error)
            caller.shared.counts.failed += 1
            caller.transport.write(refusal(500, "the proxy failed on this create: see its log", close=close))
        caller.finished(self, close=close)

    def flush(self) -> None:
        """Send nothing: the body is kept."""

    def gone(self) -> None:
        """Give the create up."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._grow(-self._size)
            self._pieces = []

    def full(self) -> None:
        """A caller that reads slowly slows nothing: its answer is written in one piece, at the end."""

    def emptied(self) -> None:
        """Nothing was paused: see ``full``."""

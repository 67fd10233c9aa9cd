"""A request that passes: its bytes go to the API server as they come, the answer's come back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.proxy.http.answers import Framing, WholeBody
from backoff_ctrl.k8s.proxy.http.heads import answer_head, note_for, request_head
from backoff_ctrl.k8s.proxy.http.refusals import refusal
from backoff_ctrl.k8s.proxy.upstream import REPEATABLE, Unreachable

if TYPE_CHECKING:
    import asyncio

    from backoff_ctrl.k8s.proxy.http.answers import AnswerHead
    from backoff_ctrl.k8s.proxy.http.requests import Asked
    from backoff_ctrl.k8s.proxy.upstream import Pool, UpstreamConnection

    from .sides import Waiting

log = logging.getLogger(__name__)

WATCHED_MAX: Final = 64 * 1024
"""Bytes of an answer that the room of held creates looks at."""
_ENDLESS: Final = (b"watch=true", b"watch=1", b"follow=true", b"follow=1", b"/watch/")


class Passage:
    """One request, and its answer or its tunnel."""

    __slots__ = (
        "_answer",
        "_asked",
        "_caller",
        "_close",
        "_connecting",
        "_connection",
        "_continued",
        "_out",
        "_own_lines",
        "_pool",
        "_repeated",
        "_slow",
        "_tunnel",
        "_watched",
        "blocked",
    )

    def __init__(self, caller: Waiting, asked: Asked, *, continued: bool = False) -> None:
        """``continued``: the caller got its ``100 Continue`` already."""
        self._caller = caller
        self._asked = asked
        self._continued = continued
        self._pool: Pool
        self._own_lines: tuple[bytes, ...] = ()
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[UpstreamConnection] | None = None
        self._out: list[bytes] = []
        self._answer: AnswerHead | None = None
        self._watched: WholeBody | None = None
        self._close = False
        self._repeated = False
        self._slow = False
        self._tunnel = False
        self.blocked = False

    @property
    def endless(self) -> bool:
        """Whether its answer ends only with its caller, or the server: a watch, or a log that is followed."""
        target = self._asked.head.target
        return any(sign in target for sign in _ENDLESS)

    @property
    def half_closable(self) -> bool:
        """Whether the answer still comes to a caller that sends nothing more."""
        return not self.endless

    # Towards the API server.

    def start(self) -> None:
        """Send the head on a kept connection, else on a new one as soon as there is one."""
        server = self._caller.shared.server
        asked = self._asked
        self._pool, self._own_lines = server.way(has_credentials=asked.has_credentials)
        self._out.append(request_head(asked, server.host, server.prefix, self._own_lines, answered=self._continued))
        connection = self._pool.take(careful=asked.head.method not in REPEATABLE)
        if connection is None:
            self._connect()
        else:
            self._connected(connection)

    def _connect(self) -> None:
        self.blocked = True
        self._connecting = self._caller.loop.create_task(self._pool.open())
        self._connecting.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[UpstreamConnection]) -> None:
        self._connecting = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            why = str(error) if isinstance(error, Unreachable) else type(error).__name__
            self._fail(503, f"the API server can't be reached, nothing was sent: {why}", retry_after=1)
            return
        self.blocked = False
        self._connected(task.result())
        self._caller.regulate()

    def _connected(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        connection.ask(self, self._asked.head.method)
        if self._slow:
            connection.hold()
        self.flush()

    def body(self, piece: bytes) -> None:
        """Take a piece of the body, in a chunk if it came in chunks."""
        self._out.append(b"%x\r\n%b\r\n" % (len(piece), piece) if self._asked.chunked else piece)

    def end(self, trailers: list[tuple[bytes, bytes]]) -> None:
        """End the body."""
        if self._asked.chunked:
            lines = [b"%b: %b\r\n" % each for each in trailers]
            self._out += [b"0\r\n", *lines, b"\r\n"]

    def flush(self) -> None:
        """Send what was taken, if there is a connection."""
        connection = self._connection
        if connection is not None and self._out:
            assert connection.transport is not None
            out, self._out = self._out, []
            connection.transport.write(out[0] if len(out) == 1 else b"".join(out))

    def full(self) -> None:
        """Let the server slow down: the caller reads slowly."""
        self._slow = True
        if self._connection is not None:
            self._connection.hold()

    def emptied(self) -> None:
        """Let the server go on: the caller reads again."""
        self._slow = False
        if self._connection is not None:
            self._connection.go_on()

    def clogged(self) -> None:
        """Take nothing more of the body: the server reads slowly."""
        self.blocked = True
        self._caller.regulate()

    def cleared(self) -> None:
        """Take more of the body."""
        self.blocked = False
        self._caller.regulate()

    def gone(self) -> None:
        """Let the server know by closing: the caller is gone."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort()

    # From the API server: see ``Taker``.

    def informed(self, raw: bytes) -> None:
        """Pass 100 Continue and the like on; HTTP/1.0 knows none."""
        if not self._asked.old:
            self._caller.transport.write(raw)

    def answered(self, head: AnswerHead, raw: bytes, body: bytes, *, whole: bool) -> None:
        """Pass the head on, with what of the body came along."""
        caller = self._caller
        if head.status == 101:
            self._switch(head, raw, body)
            return
        self._answer = head
        self._close = self._asked.closing or caller.closes or head.framing is Framing.CLOSE
        note = b"" if self._asked.has_credentials or self._own_lines else note_for(head.status, body)
        out = answer_head(head, raw, closing=self._close, note=note)
        caller.transport.write(out + body if body else out)
        self._watch(head, raw, body)
        if whole:
            self._finish()

    def _watch(self, head: AnswerHead, raw: bytes, body: bytes) -> None:
        """Keep the answer if the room of held creates wants to see it."""
        try:
            if self._caller.shared.creates.watches(self._asked.head, head.status):
                self._watched = WholeBody(raw)
                if body:
                    self._watched.feed(body)
        except Exception:  # whatever it is: the answer passes
            log.exception("an answer passes unseen: the gate failed")
            self._watched = None

    def continued(self, data: bytes, *, whole: bool) -> None:
        """Pass more of the body on, or of the tunnel."""
        if data:
            self._caller.transport.write(data)
            watched = self._watched
            if watched is not None and watched.size <= WATCHED_MAX:
                watched.feed(data)
        if whole:
            self._finish()

    def _finish(self) -> None:
        """Keep the connection for the next request, and let the caller go on."""
        caller, connection, answer = self._caller, self._connection, self._answer
        assert connection is not None
        assert answer is not None
        self._connection = None
        connection.go_on()
        if caller.incomplete or self._out:
            connection.abort()
        else:
            self._pool.give(connection)
        if self._watched is not None:
            body = self._watched.body if self._watched.size <= WATCHED_MAX else b""
            try:
                caller.shared.creates.passed(self._asked.head, answer.status, answer.headers, body)
            except Exception:  # whatever it is: the answer has passed
                log.exception("an answer passed unseen: the gate failed")
        caller.finished(self, close=self._close)

    def lost(self, why: str) -> None:
        """Ask once more where that is safe, else tell the caller."""
        connection, self._connection = self._connection, None
        assert connection is not None
        if self._tunnel or self._answer is not None:
            self._caller.transport.close()  # the answer is cut, as it would be without us
            return
        asked = self._asked
        again = connection.used and not connection.begun and not self._repeated
        if again and asked.head.method in REPEATABLE and not asked.has_body:
            self._repeated = True
            server = self._caller.shared.server
            self._out = [request_head(asked, server.host, server.prefix, self._own_lines, answered=self._continued)]
            self._connect()
            return
        self._fail(502, f"the API server gave no answer, so the outcome is unknown: {why}")

    def _fail(self, status: int, sentence: str, *, retry_after: int | None = None) -> None:
        caller = self._caller
        caller.shared.counts.failed += 1
        caller.skip()
        close = self._asked.closing or caller.closes
        caller.transport.write(refusal(status, sentence, close=close, retry_after=retry_after))
        caller.finished(self, close=close)

    # Tunnels: exec, attach, port-forward.

    def _switch(self, head: AnswerHead, raw: bytes, early: bytes) -> None:
        """Speak no HTTP any more, in both directions."""
        connection = self._connection
        assert connection is not None
        if not self._asked.upgrade:
            connection.abort()
            self.lost("it switched the protocol unasked")
            return
        self._tunnel = True
        self._caller.transport.write(answer_head(head, raw, closing=False) + early)
        sent = self._caller.tunnel(self)
        if sent:
            self.from_caller(sent)

    def from_caller(self, data: bytes) -> None:
        """Send what the caller says in the tunnel."""
        connection = self._connection
        if connection is not None and connection.transport is not None:
            connection.transport.write(data)

    def caller_ended(self) -> bool:
        """Let the server know that the caller says nothing more; return whether the tunnel lives on."""
        connection = self._connection
        if connection is None or connection.transport is None or not connection.transport.can_write_eof():
            self.gone()
            return False
        connection.transport.write_eof()
        return self._caller.transport.can_write_eof()

    def ended(self) -> None:
        """Let the caller know that the server says nothing more."""
        transport = self._caller.transport
        if transport.can_write_eof() and not self._caller.sends_no_more:
            transport.write_eof()
        else:
            transport.close()

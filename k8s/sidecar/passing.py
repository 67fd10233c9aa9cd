"""A request that is under way on a creator's connection: it passes to the API server, or its create is held here."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from backoff_ctrl.k8s.sidecar.http.answers import AnswerHead, Framing, WholeBody
from backoff_ctrl.k8s.sidecar.http.messages import LARGEST, Head, Request, Response
from backoff_ctrl.k8s.sidecar.http.requests import Asked, RequestReader
from backoff_ctrl.k8s.sidecar.http.transports import Gathering
from backoff_ctrl.k8s.sidecar.http.writing import CONTINUE, answer_head, note_for, refusal, request_head, whole

from .held_bytes import HeldBytes
from .upstream import REPEATABLE, ApiServer, Pool, Unreachable, UpstreamConnection

log = logging.getLogger(__name__)

WATCHED_MAX: Final = 64 * 1024
"""Bytes of an answer that the room of held creates looks at."""
_ENDLESS: Final = (b"watch=true", b"watch=1", b"follow=true", b"follow=1", b"/watch/")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of sizes and times."""

    connections: int = 2000
    """Connections of callers. One more replaces another (``crowding``); if all are in use, it gets a 503 at once."""
    head_s: float = 10.0
    """Seconds for a connection's first head, and for a later head from its first byte."""
    idle_s: float = 180.0
    """Seconds that a connection is kept between two requests."""
    spare_s: float = 10.0
    """Seconds without a request, or without more of a body, after which a connection may be replaced by a new one."""
    body_s: float = 60.0
    """Seconds that a body may pause."""
    half_closed_s: float = 30.0
    """Seconds that an answer may take if its caller closed its half."""
    linger_s: float = 2.0
    """Seconds in which a refused caller can read why."""
    body_bytes: int = LARGEST
    """Longer bodies are never held: they pass."""
    held_bytes: int = 256 * 2**20
    """Bytes of all bodies that are held, those of an address no more than they leave free; bodies beyond that pass."""


class Creates(Protocol):
    """The interface of the room that holds creates, for the listener."""

    def reads(self, head: Head) -> bool:
        """Return whether the body of this request is to be read whole, for ``answer``. Called for each request."""

    async def answer(self, request: Request) -> Response:
        """Answer a request that ``reads`` chose: hold it while the quota is full, then create the object.

        Cancelled when the caller hangs up. Never raises for what the server answers, or for no answer.
        """

    def watches(self, head: Head, status: int) -> bool:
        """Return whether ``passed`` needs the body of this answer to a request that passes, if it is short."""

    def passed(self, head: Head, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Learn from an answer to a request that passed, if ``watches`` chose it: a refusal, or a deletion.

        ``body`` is without its framing, and empty where it was long.
        """

    async def close(self, limit: float = 10.0) -> None:
        """Answer all held creates at the end: each ``answer`` under way returns soon, and no further one is held.

        Returns once what was sent has been answered, after ``limit`` seconds at most.
        """


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    connections: int = 0
    passed: int = 0
    held: int = 0
    refused: int = 0
    failed: int = 0
    turned_away: int = 0


@dataclass(slots=True)
class Shared:
    """What the connections of one listener share."""

    server: ApiServer
    creates: Creates
    limits: Limits = field(default_factory=Limits)
    counts: Counts = field(default_factory=Counts)
    callers: set[Connection] = field(default_factory=set)
    silent: dict[Connection, float] = field(default_factory=dict)
    """The callers that have sent no head yet, and since when, the oldest first."""
    idle: dict[Connection, float] = field(default_factory=dict)
    """The callers between two requests, and since when, the oldest first."""
    handshakes: dict[Guest, float] = field(default_factory=dict)
    """The TLS handshakes under way, and since when, the oldest first."""
    addresses: Counter[str] = field(default_factory=Counter)
    """How many places each address has; all who come by a unix socket have the same."""
    held: HeldBytes = field(init=False)
    """The bytes of bodies, by the addresses that sent them."""
    draining: bool = False
    """Whether each connection ends with its present request."""
    local_hosts_only: bool = False
    """Whether requests must name this machine: a web page could rebind a name of its own to it."""
    lends_exec: bool = False
    """Whether exec and attach, too, get the proxy's own credentials."""

    def __post_init__(self) -> None:
        self.held = HeldBytes(self.limits.held_bytes)

    @property
    def places_taken(self) -> int:
        return len(self.callers) + len(self.handshakes)

    def take_in(self, caller: Connection, now: float) -> None:
        """Give a place to a connection that has been made."""
        self.callers.add(caller)
        self.silent[caller] = now
        self.addresses[caller.address] += 1
        self.counts.connections += 1

    def forget(self, caller: Connection) -> None:
        if caller in self.callers:
            self.callers.remove(caller)
            self._leaves(caller.address)
        self.silent.pop(caller, None)
        self.idle.pop(caller, None)

    def begins(self, handshake: Guest, now: float) -> None:
        """Give a place to a connection whose handshake begins."""
        self.handshakes[handshake] = now
        self.addresses[handshake.address] += 1

    def is_over(self, handshake: Guest) -> None:
        """Take its place from a handshake that has ended. Twice is no error."""
        if self.handshakes.pop(handshake, None) is not None:
            self._leaves(handshake.address)

    def _leaves(self, address: str) -> None:
        self.addresses[address] -= 1
        if not self.addresses[address]:
            del self.addresses[address]


class Guest(Protocol):
    """What takes a place: a connection, or a handshake under way."""

    address: str

    def give_way(self) -> None:
        """End, since another connection needs the place."""


class Connection(Protocol):
    """A creator's connection, as its present request and its listener see it: ``Caller``, which makes both.

    It is described here, since requests and their connection call each other.
    """

    transport: Gathering
    address: str
    """Of its other side."""
    loop: asyncio.AbstractEventLoop
    shared: Shared
    reader: RequestReader
    heard: float
    """When it last sent something."""
    sends_no_more: bool

    @property
    def incomplete(self) -> bool:
        """Whether the present request has not come to its end yet."""

    @property
    def owes(self) -> bool:
        """Whether the proxy waits for the rest of its body, without holding it up."""

    @property
    def closes(self) -> bool:
        """Whether the present request is the last of this connection."""

    def pass_on(self, asked: Asked, *, continued: bool = False) -> Passage:
        """Let the present request pass to the API server."""

    def notice_unread(self, if_unread: Callable[[], object] | None) -> None:
        """Call ``if_unread`` if the connection breaks before the answer that was just written can have been read."""

    def skip(self) -> None:
        """Discard the rest of the present request if all of it has come."""

    def tunnel(self, through: Passage) -> bytes:
        """Stop speaking HTTP; return what came already."""

    def finished(self, current: Passage | Held, *, close: bool) -> None:
        """Continue with the next request, or end the connection, once ``current`` has been answered."""

    def regulate(self) -> None:
        """Resume or pause reading, after the request's readiness has changed."""

    def look(self, now: float) -> None:
        """End what takes too long; called periodically."""

    def drain(self, *, at_once: bool) -> None:
        """End the connection after its present request; an idle one after its next request, or ``at_once``."""

    def give_way(self) -> None:
        """End for another connection. The caller of a held create is asked to come again."""


class Passage:
    """One request, and its answer or its tunnel."""

    def __init__(self, caller: Connection, asked: Asked, *, continued: bool = False) -> None:
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
        """Whether a caller that closed its half still gets the answer."""
        return not self.endless

    # To the API server.

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
            self._fail(503, f"the API server can't be reached, the request was not sent: {why}", retry_after=1)
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
        self._out.append(b"%x\r\n%b\r\n" % (len(piece), piece) if self._asked.chunked else piece)

    def end(self, trailers: list[tuple[bytes, bytes]]) -> None:
        if self._asked.chunked:
            lines = [b"%b: %b\r\n" % each for each in trailers]
            self._out += [b"0\r\n", *lines, b"\r\n"]

    def flush(self) -> None:
        connection = self._connection
        if connection is not None and self._out:
            assert connection.transport is not None
            out, self._out = self._out, []
            connection.transport.write(out[0] if len(out) == 1 else b"".join(out))

    def full(self) -> None:
        """Slow the server down: the caller reads slowly."""
        self._slow = True
        if self._connection is not None:
            self._connection.hold()

    def emptied(self) -> None:
        """Resume the server: the caller reads again."""
        self._slow = False
        if self._connection is not None:
            self._connection.go_on()

    def clogged(self) -> None:
        self.blocked = True
        self._caller.regulate()

    def cleared(self) -> None:
        self.blocked = False
        self._caller.regulate()

    def gone(self) -> None:
        """Close towards the server: the caller is gone."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort()

    # From the API server: see ``Taker``.

    def informed(self, raw: bytes) -> None:
        """Pass 100 Continue and the like on; HTTP/1.0 has no such answers."""
        if not self._asked.old:
            self._caller.transport.write(raw)

    def answered(self, head: AnswerHead, raw: bytes, body: bytes, *, whole: bool) -> None:
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
        try:
            if self._caller.shared.creates.watches(self._asked.head, head.status):
                self._watched = WholeBody(raw)
                if body:
                    self._watched.feed(body)
        except Exception:  # of any kind: the answer passes
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
        """Keep the connection for the next request, and let the caller continue."""
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
            except Exception:  # of any kind: the answer has passed
                log.exception("an answer passed unseen: the gate failed")
        caller.finished(self, close=self._close)

    def lost(self, why: str) -> None:
        """Send once more where that is safe, else answer with an error."""
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
        """Stop speaking HTTP, in both directions."""
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
        connection = self._connection
        if connection is not None and connection.transport is not None:
            connection.transport.write(data)

    def caller_ended(self) -> bool:
        """Pass on that the caller closed its half; return whether the tunnel stays open."""
        connection = self._connection
        if connection is None or connection.transport is None or not connection.transport.can_write_eof():
            self.gone()
            return False
        connection.transport.write_eof()
        return self._caller.transport.can_write_eof()

    def ended(self) -> None:
        """Pass on that the server closed its half."""
        transport = self._caller.transport
        if transport.can_write_eof() and not self._caller.sends_no_more:
            transport.write_eof()
        else:
            transport.close()


class Held:
    """One request. Its caller hangs up by closing even its half of the connection."""

    def __init__(self, caller: Connection, asked: Asked) -> None:
        """Read the body; a caller that waits for 100 Continue gets it."""
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
        caller, limits = self._caller, self._caller.shared.limits
        self._pieces.append(piece)
        self._grow(len(piece))
        if self._size > limits.body_bytes or not caller.shared.held.have_room(caller.address, 0):
            pieces, self._pieces = self._pieces, []
            self._grow(-self._size)
            passage = caller.pass_on(self._asked, continued=self._continued)
            passage.body(b"".join(pieces))

    def _grow(self, size: int) -> None:
        self._size += size
        self._caller.shared.held.add(self._caller.address, size)

    def end(self, trailers: list[tuple[bytes, bytes]]) -> None:
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
            if caller.transport.is_closing():  # it closed just now: uvloop takes no more bytes
                caller.notice_unread(response.if_unread)
                caller.finished(self, close=True)
                return
            known = self._asked.has_credentials or caller.shared.server.uses_own
            note = b"" if known else note_for(response.status, response.body)
            caller.transport.write(whole(response, close=close, note=note))
            caller.notice_unread(response.if_unread)
        else:
            log.error("a create failed inside the proxy", exc_info=error)
            caller.shared.counts.failed += 1
            caller.transport.write(refusal(500, "the proxy failed on this create: see its log", close=close))
        caller.finished(self, close=close)

    def flush(self) -> None:
        """Keep the body: the server does not get it."""

    def gone(self) -> None:
        """Give up the create."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._grow(-self._size)
            self._pieces = []

    def full(self) -> None:
        """A caller that reads slowly delays no other: its answer is written in one piece, at the end."""

    def emptied(self) -> None:
        """Resume no reading: see ``full``."""

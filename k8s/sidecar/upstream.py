"""A pool of connections to the API server, and whole requests on them.

One connection carries one request at a time; its ``Taker`` takes what comes back. ``ApiServer`` chooses the connection
for a request.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final, Protocol

from backoff_ctrl.k8s.kube.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.cluster.recognizing import SPEAKS_TLS, other_than_api_server, speaks_tls
from backoff_ctrl.k8s.sidecar.http.answers import AnswerHead, AnswerReader, BrokenAnswerError, Framing, WholeBody
from backoff_ctrl.k8s.sidecar.http.messages import HOP_BY_HOP, Head, Request, Response
from backoff_ctrl.k8s.sidecar.http.transports import Gathering, Outbox, connect
from backoff_ctrl.k8s.sidecar.http.writing import whole_request

from .finding import Account, Trust, UpstreamConfig

BUFFER: Final = 256 * 1024
"""Bytes that may wait for a slow reader on either side; beyond that its writer is slowed."""


class Taker(Protocol):
    """The user of a connection, which takes the answer."""

    def informed(self, raw: bytes) -> None:
        """Take an informational answer, such as 100 Continue."""

    def answered(self, head: AnswerHead, raw: bytes, body: bytes, *, whole: bool) -> None:
        """Take the head of the answer, and the beginning of its body. ``whole``: there is no more."""

    def continued(self, data: bytes, *, whole: bool) -> None:
        """Take more of the body, as it was received; behind a 101: of the tunnel."""

    def ended(self) -> None:
        """The server has closed its half of a tunnel."""

    def lost(self, why: str) -> None:
        """The connection was lost before the answer was whole."""

    def clogged(self) -> None:
        """Send no more for now: the server reads slowly."""

    def cleared(self) -> None:
        """Go on sending."""


class UpstreamConnection(asyncio.Protocol):
    """A connection of a pool. ``taker`` is its user, None while it is idle."""

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
        """Whether a part of the present answer has come."""
        self.used = False
        """Whether it has brought an answer before."""
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one of a stream
        transport.set_write_buffer_limits(BUFFER)
        self.transport = Gathering(transport, self._outbox)

    @property
    def alive(self) -> bool:
        """Whether it can be used, as far as this process knows."""
        return self.transport is not None and not self.transport.is_closing()

    def silent(self) -> bool:
        """Return whether the socket has no unread input, such as the end of the connection."""
        assert self.transport is not None
        # Asked of the kernel: the event loop reads the end only in its next round, after the request was written.
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLHUP)
        return not poll.poll(0)

    def ask(self, taker: Taker, method: bytes) -> None:
        """Pass the answer to a request of this method to ``taker``, which sends the request itself."""
        self.taker = taker
        self.begun = False
        self._reader.expect(method)

    def hold(self) -> None:
        """Read no more from the API server until ``go_on``: its client is slower."""
        if self.alive and not self._held:
            self._held = True
            self.transport.pause_reading()  # type: ignore[union-attr]  # it is alive

    def go_on(self) -> None:
        if self._held and self.alive:
            self._held = False
            self.transport.resume_reading()  # type: ignore[union-attr]

    def abort(self) -> None:
        """Close it at once, without notifying the taker."""
        self.taker = None
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        taker = self.taker
        if taker is None:
            self.abort()  # unsolicited bytes: answers could be mistaken for each other
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
        """Whether it may be used again after the answer that has just ended."""
        head = self._reader.head
        return self.alive and head is not None and head.kept and self._reader.whole

    def eof_received(self) -> bool:
        """Keep a tunnel's other half open."""
        head = self._reader.head
        if self.taker is not None and head is not None and head.framing is Framing.TUNNEL:
            self.taker.ended()
            return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self)
        taker, self.taker = self.taker, None
        if taker is None:
            return
        head = self._reader.head
        if head is not None and head.framing is Framing.CLOSE and exc is None:  # the end of such an answer is this
            head.kept = False
            taker.continued(b"", whole=True)
        else:
            taker.lost("it closed the connection" if exc is None else f"the connection broke: {type(exc).__name__}")

    def pause_writing(self) -> None:
        if self.taker is not None:
            self.taker.clogged()

    def resume_writing(self) -> None:
        if self.taker is not None:
            self.taker.cleared()


CONNECT_MAX: Final = 10.0
"""Seconds to connect, TLS included."""
IDLE_MAX: Final = 60.0
"""Seconds that an idle connection is kept: less than the 90 of a kube-apiserver."""
IDLE_CONNECTIONS_MAX: Final = 256
"""Idle connections that are kept at a time."""
_LOOK_AGAIN: Final = 1.0
_FRESH: Final = 0.005


class Unreachable(Exception):  # noqa: N818 - the state, in the words of its sentence
    """No connection was made, so no request was sent. The message gives the reason, and is safe to print.

    ``may_come``: whether one may succeed soon, since the only problem is that the server does not answer.
    """

    def __init__(self, why: str, *, may_come: bool = True) -> None:
        super().__init__(why)
        self.may_come = may_come


class Pool:
    """Connections to one place with one kind of credentials."""

    def __init__(self, place: UpstreamConfig, trust: Trust, outbox: Outbox) -> None:
        self.place = place
        self._trust = trust
        self._outbox = outbox
        self._idle: list[UpstreamConnection] = []
        self._open: set[UpstreamConnection] = set()
        self._looked_at = 0.0

    @property
    def connections(self) -> int:
        return len(self._open)

    def take(self, *, careful: bool) -> UpstreamConnection | None:
        """Return an idle connection, the one used last; or None.

        ``careful``: for requests that must not be sent twice. The server may have closed the connection just now, so
        the socket is checked for unread input first.
        """
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_AGAIN:
            self._look(now)
        while self._idle:
            found = self._idle.pop()  # the one used last: the others grow old, and are closed
            if not found.alive:
                continue
            if careful and now - found.idle_since > _FRESH and not found.silent():
                found.abort()
                continue
            return found
        return None

    def give(self, connection: UpstreamConnection) -> None:
        if connection.reusable and len(self._idle) < IDLE_CONNECTIONS_MAX:
            connection.used = True
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        elif connection.transport is not None:
            connection.transport.close()

    async def open(self) -> UpstreamConnection:
        """Make a connection. Raises ``Unreachable``."""
        self._look(time.monotonic())
        loop = asyncio.get_running_loop()
        connection = UpstreamConnection(self._gone, self._outbox)
        context = self._trust.context
        try:
            async with asyncio.timeout(CONNECT_MAX):
                if context is None:
                    await loop.create_connection(lambda: connection, self.place.host, self.place.port)
                else:
                    await connect(context, self._trust.server_name or "", connection, self.place.host, self.place.port)
        except TimeoutError:
            raise Unreachable(f"no connection within {CONNECT_MAX:g} s") from None
        except (OSError, ssl.CertificateError, UnicodeError) as error:
            raise Unreachable(_reason(error), may_come=not isinstance(error, ssl.SSLError | UnicodeError)) from error
        assert connection.transport is not None
        bound = connection.transport.get_extra_info("socket")
        # A watch may be silent for minutes: without it a server that lost power is never noticed.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._open.add(connection)
        return connection

    def _gone(self, connection: UpstreamConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _look(self, now: float) -> None:
        """Use new certificates, and drop old connections."""
        self._looked_at = now
        if self._trust.renewed():  # those that are kept were made with certificates that may have been revoked
            self._drop(self._idle)
        self._drop([each for each in self._idle if now - each.idle_since > IDLE_MAX])

    def _drop(self, those: list[UpstreamConnection]) -> None:
        for each in list(those):
            each.abort()
            self._idle.remove(each)

    def close(self) -> None:
        self._idle.clear()
        for each in list(self._open):
            each.abort()


def _reason(error: Exception) -> str:
    """Return why no connection could be made, on one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message.rstrip('.')})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no reason given'}): perhaps it speaks plain HTTP"
    if isinstance(error, socket.gaierror):
        return "its name can't be resolved"
    if isinstance(error, ConnectionResetError):
        return "it closes the connection at once"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__


REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE"})
"""Methods without effects: resent if a kept connection proves to be closed, as Go's transport does."""
ASKS_MAX: Final = 256
"""Whole requests in flight at a time; further ones wait. The gate sends no more creates than that."""
ANSWER_MAX: Final = 3 * 2**20


class ApiServer:
    """The upstream. Requests without credentials get the proxy's own only if ``use_own`` is set."""

    def __init__(self, place: UpstreamConfig, *, use_own: bool = False) -> None:
        """Read certificates and credentials. Raises ``UpstreamError``."""
        self.place = place
        self.host = place.netloc
        self.prefix = place.prefix.encode()
        self.uses_own = use_own
        self.outbox = Outbox()
        self._account = Account(place)
        self._callers = self._mine = Pool(place, Trust(place, own=False), self.outbox)
        if place.certificate and place.tls:
            self._mine = Pool(place, Trust(place, own=True), self.outbox)
        self._asks = asyncio.Semaphore(ASKS_MAX)
        self.may_come = True
        """Whether an API server that did not answer may do so soon: its address and certificate are right."""
        if use_own:
            self._account.check()

    @property
    def connections(self) -> int:
        return self._callers.connections + (self._mine.connections if self._mine is not self._callers else 0)

    def way(self, *, has_credentials: bool) -> tuple[Pool, tuple[bytes, ...]]:
        """Return the connections for a caller's request, and the header lines to add to it."""
        if has_credentials or not self.uses_own:
            return self._callers, ()
        return self._mine, self._account.lines()

    async def ask(self, request: Request, limit: int = ANSWER_MAX) -> Response:
        """Send a caller's request and read the whole answer: see ``messages.Ask``."""
        has_credentials = request.head.get(b"authorization") is not None
        pool, lines = self.way(has_credentials=has_credentials)
        return await self._ask(request, pool, lines, limit)

    async def ask_as_proxy(self, request: Request, limit: int = ANSWER_MAX) -> Response:
        """Send a request of the proxy's own, with its own credentials; raises as ``ask`` does."""
        return await self._ask(request, self._mine, self._account.lines(), limit)

    async def _ask(self, request: Request, pool: Pool, lines: tuple[bytes, ...], limit: int) -> Response:
        repeatable = request.head.method in REPEATABLE
        message = whole_request(request, self.host, self.prefix, lines)
        async with self._asks:
            connection = pool.take(careful=not repeatable)
            while True:
                if connection is None:
                    try:
                        connection = await pool.open()
                    except Unreachable as error:
                        raise NotSent(f"the API server can't be reached: {error}") from error
                asking = _Asking(pool, connection, limit)
                try:
                    return await asking.ask(request.head.method, message)
                except OutcomeUnknown:
                    if not (repeatable and connection.used and not connection.begun):
                        raise
                connection = None

    async def answers(self) -> str:
        """Return "" if an API server answers, busy or not, else what is wrong."""
        request = Request(Head(b"GET", b"/version", [(b"Accept", b"application/json")]), b"")
        try:
            async with asyncio.timeout(10):
                answer = await self.ask_as_proxy(request)
        except TimeoutError:
            return "it does not answer within 10 s"
        except NotSent as error:
            self.may_come = isinstance(error.__cause__, Unreachable) and error.__cause__.may_come
            return str(error.__cause__ or error)
        except OutcomeUnknown as error:
            self.may_come = False
            return f"it {SPEAKS_TLS}" if await asyncio.to_thread(speaks_tls, self.place.url) else str(error)
        why = self._is_none(answer)
        self.may_come = not why
        return why

    def _is_none(self, answer: Response) -> str:
        """Return why an answer shows no usable API server; "" if it is one, even if it refuses the credentials."""
        if flaw := other_than_api_server(answer.status, answer.body):
            return f"it {flaw}"
        if answer.status == 401 and self.uses_own:
            return "it does not accept the proxy's own credentials (401), which --use-own-credentials would add"
        return ""

    def close(self) -> None:
        self._callers.close()
        self._mine.close()


class _Asking:
    """One whole request on a connection."""

    __slots__ = ("_body", "_connection", "_future", "_head", "_limit", "_pool")

    def __init__(self, pool: Pool, connection: UpstreamConnection, limit: int) -> None:
        self._pool = pool
        self._connection = connection
        self._limit = limit
        self._future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._head: AnswerHead | None = None
        self._body: WholeBody | None = None

    async def ask(self, method: bytes, message: bytes) -> Response:
        if not self._connection.alive:
            raise NotSent("the connection was closed before anything was sent")
        self._connection.ask(self, method)
        assert self._connection.transport is not None
        self._connection.transport.write(message)
        try:
            return await self._future
        except asyncio.CancelledError:
            self._connection.abort()
            raise

    def informed(self, raw: bytes) -> None:
        """Ignore a 1xx answer: the final one follows."""

    def answered(self, head: AnswerHead, raw: bytes, body: bytes, *, whole: bool) -> None:
        if head.status == 101:
            self._connection.abort()
            self.ended()
            return
        self._head = head
        self._body = WholeBody(raw)
        self.continued(body, whole=whole)

    def continued(self, data: bytes, *, whole: bool) -> None:
        assert self._body is not None
        assert self._head is not None
        if data:
            self._body.feed(data)
        if self._body.size > self._limit:
            self._connection.abort()
            self.lost(f"its answer is longer than {self._limit} bytes")
        elif whole:
            headers = [
                (name, value)
                for name, value in self._head.headers
                if (low := name.lower()) not in HOP_BY_HOP
                and low != b"content-length"
                and low not in self._head.dropped
            ]
            self._pool.give(self._connection)
            self._settle(Response(self._head.status, self._head.reason, headers, self._body.body))

    def _settle(self, response: Response) -> None:
        if not self._future.done():
            self._future.set_result(response)

    def ended(self) -> None:
        self.lost("it switched the protocol unasked")

    def lost(self, why: str) -> None:
        if not self._future.done():
            self._future.set_exception(OutcomeUnknown(f"the API server gave no whole answer: {why}"))

    def clogged(self) -> None:
        """The transport has the whole message already."""

    def cleared(self) -> None:
        """Do nothing: a connection that is closing sends no more."""

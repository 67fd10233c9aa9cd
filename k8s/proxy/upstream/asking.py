"""The API server for the proxy's other rooms: which connection a request goes on, and whole requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.proxy.gathering import Outbox
from backoff_ctrl.k8s.proxy.http.answers import WholeBody
from backoff_ctrl.k8s.proxy.http.fields import HOP_BY_HOP
from backoff_ctrl.k8s.proxy.http.heads import whole_request
from backoff_ctrl.k8s.proxy.messages import Head, Request, Response

from .pool import Pool, Unreachable
from .trust import Account, Trust

if TYPE_CHECKING:
    from backoff_ctrl.k8s.proxy.http.answers import AnswerHead

    from .connection import UpstreamConnection
    from .place import Place

REPEATABLE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE"})
"""Methods that change nothing: sent once more if a kept connection proves to be closed, as Go's transport does."""
ASKS_MAX: Final = 256
"""Whole requests on their way at a time; further ones wait. The gate sends no more creates than that."""
ANSWER_MAX: Final = 3 * 2**20
ANSWERS: Final = frozenset({200, 401, 403, 429})
"""What an API server says to ``/version``, or an error of its own: it need not know the proxy's account."""


class ApiServer:
    """The upstream. Requests without credentials get the proxy's own only if ``use_own`` is set."""

    def __init__(self, place: Place, *, use_own: bool = False) -> None:
        """Read certificates and credentials. Raises ``PlaceError``."""
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
        """Whether an API server that did not answer may do so soon: nothing in its address or certificate is wrong."""
        if use_own:
            self._account.check()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._callers.connections + (self._mine.connections if self._mine is not self._callers else 0)

    def way(self, *, has_credentials: bool) -> tuple[Pool, tuple[bytes, ...]]:
        """Return the connections for a caller's request, and the header lines to add to it."""
        if has_credentials or not self.uses_own:
            return self._callers, ()
        return self._mine, self._account.lines()

    async def ask(self, request: Request, limit: int = ANSWER_MAX) -> Response:
        """Send a caller's request and read the whole answer: see ``messages.Upstream``."""
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
        """Return "" if an API server answers, busy or not, else why none does."""
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
            return str(error)
        why = self._is_none(answer)
        self.may_come = not why
        return why

    def _is_none(self, answer: Response) -> str:
        """Say by its answer why something is no API server that can be used; "" for one that refuses who asks."""
        if answer.status == 401 and self.uses_own:
            return "it does not accept the proxy's own credentials (401), which --use-own-credentials would add"
        if answer.status == 400 and not self.place.tls and b"HTTPS" in answer.body:
            return "it speaks TLS: its address begins with https://"
        if answer.status in ANSWERS or answer.status >= 500:
            return ""
        return f"it is not an API server: it answers /version with {answer.status}"

    def close(self) -> None:
        """Close all connections at once."""
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
        """Send nothing more anyway: the message is with the transport."""

    def cleared(self) -> None:
        """Send nothing more anyway."""

"""How a create reaches its server: what the gate asks of a transport, and what its errors mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from backoff_ctrl.k8s.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.creates.actions import (
    Answered,
    Broken,
    Call,
    Event,
    ListQuotas,
    LookUp,
    Refresh,
    Refreshed,
    Send,
    Unknown,
    Unsent,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.answers.answer import Answer

OURS = "backoff_ctrl."
"""The beginning of the names of our own modules."""


class Transport(Protocol):
    """One create's way to its server, blocking. Each call uses the credentials of that moment.

    Two more methods are optional. ``refresh()`` fetches new credentials after the server has refused the old ones.
    ``list_quotas()`` lists the quotas of the create's namespace, with little patience, so that not even the first
    create there is refused; it returns and raises as ``look_up`` does.
    """

    def send(self, body: dict[str, Any]) -> Answer:
        """POST the body. Raises ``NotSent`` (it was never sent) or ``OutcomeUnknown`` (it was, and no answer came)."""

    def look_up(self, name: str) -> Answer:
        """GET the object of that name. Raises as ``send`` does."""


class AsyncTransport(Protocol):
    """The same for asyncio: ``refresh`` and ``list_quotas`` are coroutines, too."""

    async def send(self, body: dict[str, Any]) -> Answer:
        """POST the body. Raises ``NotSent`` (it was never sent) or ``OutcomeUnknown`` (it was, and no answer came)."""

    async def look_up(self, name: str) -> Answer:
        """GET the object of that name. Raises as ``send`` does."""


class Hands(Protocol):
    """How a driver calls a transport and runs its steps: what differs between asyncio and threads."""

    lists_quotas: bool
    """Whether the transport can list the quotas of the create's namespace."""

    def post(self, step: Callable[[], object]) -> None:
        """Run the step soon, where the create's steps run. Safe from any thread."""

    def now(self, step: Callable[[], object]) -> None:
        """Run the step before this returns, if this thread may run steps, else soon."""

    def call(self, reply: Reply) -> None:
        """Call the transport, put what comes of it into the reply, then call ``reply.to.replied``."""


class Caller(Protocol):
    """A create that waits for a reply."""

    def replied(self, reply: Reply) -> None:
        """Go on with what is in the reply."""

    def lost(self, reply: Reply, error: Exception) -> None:
        """Go on after an error of ours, with the answer if that is in the reply."""


class Reply:
    """A call to the transport, and its answer or error, which is filled in before ``to.replied`` is called.

    So the server's answer is safe before code of ours runs that might fail. If ``to.replied`` raises, ``to.lost`` is
    called with the error.
    """

    __slots__ = ("answer", "call", "error", "sent", "to")

    def __init__(self, call: Call, sent: float, to: Caller) -> None:
        """``sent`` is when the call was handed over, by the gate's clock; ``to`` is the create that waits for it."""
        self.call = call
        self.sent = sent
        self.to = to
        self.answer: Any = None
        self.error: BaseException | None = None

    @property
    def word(self) -> Answer | None:
        """The server's answer to the create itself, if it has come."""
        return self.answer if isinstance(self.call, Send) else None

    @property
    def in_doubt(self) -> bool:
        """Whether the create may have been stored although no answer came."""
        return self.error is not None and isinstance(self.call, Send) and not isinstance(self.error, NotSent)

    def event(self, now: float) -> Event:
        """Return what it means for the create. An error that is not about sending is ``Broken``: the caller gets it."""
        error = self.error
        if error is None:
            return Refreshed() if isinstance(self.call, Refresh) else Answered(self.answer, self.sent, now)
        if isinstance(error, NotSent):
            return Unsent(error)
        return Unknown(error, now) if isinstance(error, OutcomeUnknown | TimeoutError) else Broken(error)


def ask(transport: Any, call: Call) -> Any:
    """Make a call. Return its answer, or an awaitable of it; to refresh credentials returns None."""
    if isinstance(call, Send):
        return transport.send(call.body)
    if isinstance(call, LookUp):
        return transport.look_up(call.name)
    if isinstance(call, ListQuotas):
        return transport.list_quotas()
    refresh = getattr(transport, "refresh", None)
    return None if refresh is None else refresh()


def raised_by_us(error: BaseException) -> TypeGuard[Exception]:
    """Say whether code of ours failed, rather than the client or the caller's transport that it called.

    A client's own error (a certificate, a token that can't be fetched) is raised to the caller; one of ours never is.
    """
    trace = error.__traceback__
    if trace is None or not isinstance(error, Exception) or isinstance(error, NotSent | OutcomeUnknown):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith(OURS)

"""How a create reaches its server: what the gate asks of a transport, and whose errors are whose."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.creates.actions import Call, ListQuotas, LookUp, Send

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

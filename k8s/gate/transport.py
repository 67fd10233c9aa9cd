"""How a create reaches its server: what the gate asks of a transport, and what its errors mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from backoff_ctrl.k8s.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.creates.actions import Broken, Call, ListQuotas, LookUp, Send, Unknown, Unsent

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Answer


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
    """Make a call: its answer, or what to await for it; None where credentials can't be refreshed or were."""
    if isinstance(call, Send):
        return transport.send(call.body)
    if isinstance(call, LookUp):
        return transport.look_up(call.name)
    if isinstance(call, ListQuotas):
        return transport.list_quotas()
    refresh = getattr(transport, "refresh", None)
    return None if refresh is None else refresh()


def failed(error: BaseException, now: float) -> Unsent | Unknown | Broken:
    """Turn a transport's error into an event. One that says nothing of the request is the caller's to see."""
    if isinstance(error, NotSent):
        return Unsent(error)
    return Unknown(error, now) if isinstance(error, OutcomeUnknown) else Broken(error)

"""What gated clients of any kind and generation have in common: their part in a ledger, and what calls mean to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from backoff_ctrl.k8s.creates.calls import creation, is_gated, read_target, teaching
from backoff_ctrl.k8s.gate.door import Door
from backoff_ctrl.k8s.sharing.process import Share

from .tokens import LastToken
from .waiting import current_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.creates.calls import Target
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.watching.status import WatchBook

G = TypeVar("G", bound=Door)


class Gating(Generic[G]):
    """Decides which calls of a client are gated, describes those to the gate, and learns from all others."""

    def __init__(self, configuration: Any, kind: type[G], gate: Door | None, events: bool | None) -> None:
        """Join the ledger of ``gate``, or the one that this process shares for the server, with a ``kind`` of gate."""
        self.configuration = configuration
        self.share = Share(configuration, gate, events)
        self.gate = kind(ledger=self.share.ledger)
        self.token = LastToken()

    def gated(self, method: str, url: str, body: object) -> Target | None:
        """Return the target of a create that waits its turn; None for any other call."""
        target = read_target(self.configuration.host, url)
        return target if target is not None and is_gated(method, target, body) else None

    def creation(self, target: Target, headers: Mapping[str, str] | None, body: dict[str, Any]) -> Creation:
        """Describe a gated call, with the options of the caller's context."""
        return creation(self.configuration.host, target, headers or {}, body, current_options())

    def teaches(self, url: str, status: int) -> bool:
        """Say whether ``learn`` needs the body of an ungated call's answer."""
        return status == 403 and read_target(self.configuration.host, url) is not None

    def learn(
        self, method: str, url: str, body: object, *, sent: float, status: int, headers: Any, refusal: bytes
    ) -> None:
        """Learn from an answer to an ungated call: a 401, a quota's refusal, or a deletion that makes room."""
        if status == 401:
            self.token.forget()
        elif status == 403:
            target = read_target(self.configuration.host, url)
            taught = None if target is None else teaching(target, status, headers, refusal, body)
            if target is not None and taught is not None:
                self.gate.ledger.learn(target.namespace, *taught, sent)
        elif status == 200 and method.upper() == "DELETE":
            target = read_target(self.configuration.host, url)
            if target is not None:
                self.gate.ledger.hint_release(target.namespace)

    def cancel(self) -> None:
        """Cancel the creates that wait in this client, and log which ones."""
        self.gate.cancel_own("the client was closed")


class GatedClient(Generic[G]):
    """The constructor and the attributes of every gated client. In its bases the adapter of a generation follows."""

    _kind: ClassVar[type[Door]]
    """The kind of gate that its callers wait at."""

    def __init__(
        self,
        configuration: Any = None,
        *args: Any,
        gate: Door | None = None,
        events: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Take what ``ApiClient`` takes, the gate, and whether to write events (None: ``BACKOFF_CTRL_EVENTS=1``)."""
        super().__init__(configuration, *args, **kwargs)  # type: ignore[call-arg]  # the adapter's
        self._gating: Any = Gating(self.configuration, self._kind, gate, events)

    configuration: Any

    @property
    def gate(self) -> G:
        """The gate of this client, in the ledger that it shares."""
        return self._gating.gate  # type: ignore[no-any-return]

    @property
    def sight(self) -> WatchBook | None:
        """How well the quotas of each namespace are watched; None: they are not."""
        return self._gating.share.sight  # type: ignore[no-any-return]

"""What gated clients of any kind and generation have in common: their part in a ledger, and what calls mean to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from backoff_ctrl.k8s.creates.calls import Target, creation, is_gated, read_target
from backoff_ctrl.k8s.creates.creation import Creation, Modes, Options, mode_of
from backoff_ctrl.k8s.creates.wait import Wait
from backoff_ctrl.k8s.gate.any_gate import AnyGate
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.locked_engine import Failure
from backoff_ctrl.k8s.gate.passing import Passed, heed
from backoff_ctrl.k8s.runtime.host import after_fork
from backoff_ctrl.k8s.sharing.environment import environment
from backoff_ctrl.k8s.sharing.process import Share
from backoff_ctrl.k8s.watching.status import WatchRecord

from .errors import annotate
from .transport import LastToken, mark_configured
from .waiting import current_options, given_options

Call: TypeAlias = tuple[str, str, dict[str, Any] | None, Any, Any]
"""Method, URL with its query, headers, body, and the caller's time limit for the request."""
T = TypeVar("T")
R = TypeVar("R")
G = TypeVar("G", bound=AnyGate)


@dataclass(frozen=True)
class ClientOptions:
    """What a client was given for all of its creates; None, or no entry: it was not."""

    mode: Modes | None = None
    of_creates: Mapping[str, Any] = field(default_factory=dict)


class Gating(Generic[G]):
    """Decides which calls of a client are gated, describes those to the gate, and learns from all others."""

    def __init__(
        self, configuration: Any, kind: type[G], gate: AnyGate | None, events: bool | None, options: ClientOptions
    ) -> None:
        """Join the ledger of ``gate``, or the one that this process shares for the server, with a ``kind`` of gate."""
        self.configuration = configuration
        set_outside = environment()
        mode = options.mode if options.mode is not None else gate.given_mode if gate is not None else None
        self.share = Share(configuration, gate, events)
        self.attempt = self.share.ledger.attempt
        self.gate = kind(ledger=self.share.ledger, mode=mode if mode is not None else set_outside.mode or None)
        self.token = LastToken()
        self._defaults = Options(**{"timeout": set_outside.timeout, **options.of_creates})

    def gated(self, method: str, url: str, body: object) -> Target | None:
        """Return the target of a create that waits its turn; None for any other call."""
        target = read_target(self.configuration.host, url)
        return target if target is not None and is_gated(method, target, body) else None

    def creation(self, target: Target, headers: Mapping[str, str] | None, body: dict[str, Any]) -> Creation:
        """Describe a gated call, with the options of the caller's context."""
        made = creation(self.configuration.host, target, headers or {}, body, current_options(self._defaults))
        if made.gang is not None:
            made.asked, made.body = body, made.gang.labelled(target.resource, body)
        return made

    def options(self) -> Options:
        """Return the options that a create would have here and now."""
        return current_options(self._defaults)

    def prepared(self, client: Any, transport: Callable[..., T], call: Call) -> tuple[Create, T] | None:
        """Prepare a create with its way to the server, ``transport(client, target, url, headers, limit)``.

        None: the call passes ungated. So it does after an error of ours; with a key that is raised instead: without the
        gate the create could be stored a second time.
        """
        made = self.attempt(self._prepared, client, transport, call)
        if isinstance(made, Failure):
            if current_options().key is not None:
                raise made.error
            return None
        return made

    def _prepared(self, client: Any, transport: Callable[..., T], call: Call) -> tuple[Create, T] | None:
        method, url, headers, body, limit = call
        target = self.gated(method, url, body)
        if target is None:
            return None
        way = transport(client, target, url, headers, limit)
        return Create(self.gate, self.creation(target, headers, body)), way

    def teaches(self, url: str, status: int) -> bool:
        """Say whether ``learn`` needs the body of an ungated call's answer."""
        return status == 403 and read_target(self.configuration.host, url) is not None

    def learn(
        self, method: str, url: str, body: object, *, sent: float, status: int, headers: Any, refusal: bytes
    ) -> None:
        """Learn from an answer to an ungated call: a 401, a quota's refusal, or a deletion that makes room.

        Never raises: the answer is the caller's.
        """
        passed = Passed(method, status, headers, refusal, sent, body)
        self.attempt(self._learn, url, passed)

    def _learn(self, url: str, passed: Passed) -> None:
        self.gate.ledger.met = True
        if passed.status == 401:
            self.token.forget()
        elif passed.status == 403 or (passed.status == 200 and passed.method.upper() == "DELETE"):
            target = read_target(self.configuration.host, url)
            if target is not None:
                heed(self.gate.ledger, target, passed)

    # -- errors of ours: law 18 ---------

    def respond(self, make: Callable[..., R], *given: Any) -> R:
        """Make the client's response to a create that has ended; once more after an error of ours: it is stored."""
        response = self.attempt(make, *given)
        return make(*given) if isinstance(response, Failure) else response

    def annotate(self, error: Exception, create: Create | None) -> None:
        """Add what the gate knows to the client's error. Never raises: that error is what matters."""
        self.attempt(annotate, error, create)

    def mark(self, headers: Any, arguments: Mapping[str, Any]) -> None:
        """Mark a header that came from the configuration. Never raises: that only helps."""
        self.attempt(mark_configured, headers, arguments)

    # -- the end ---------

    def cancel(self) -> None:
        """Cancel the creates that wait in this client, and log which ones."""
        self.gate.cancel_own("the client was closed")


class GatedClient(Generic[G]):
    """The constructor and the attributes of every gated client. In its bases the adapter of a generation follows."""

    _kind: ClassVar[type[AnyGate]]
    """The kind of gate that its callers wait at."""

    def __init__(
        self,
        configuration: Any = None,
        *args: Any,
        gate: AnyGate | None = None,
        events: bool | None = None,
        mode: Modes | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        on_wait: Callable[[Wait], object] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take what ``ApiClient`` takes, and our options. Raises ``OptionError`` for a wrong one.

        ``events``: whether to write events (None: ``BACKOFF_CTRL_EVENTS=1``). ``mode``: that of this client's creates
        (None: the gate's, else ``BACKOFF_CTRL_MODE``). The others hold for all creates for which ``waiting`` does not
        say otherwise (``timeout`` None: ``BACKOFF_CTRL_TIMEOUT``).
        """
        options = ClientOptions(mode, given_options(timeout, priority, None, on_wait))
        if mode is not None:
            mode_of(mode)
        super().__init__(configuration, *args, **kwargs)  # type: ignore[call-arg]  # the adapter's
        self._gating: Any = Gating(self.configuration, self._kind, gate, events, options)
        after_fork(self.renew)

    configuration: Any

    def renew(self) -> None:
        """Begin anew in a forked child. (The ledger does so by itself.)"""

    @property
    def gate(self) -> G:
        """The gate of this client, in the ledger that it shares."""
        return self._gating.gate  # type: ignore[no-any-return]

    def create_options(self) -> Options:
        """Return the options that a create would have here and now."""
        return self._gating.options()  # type: ignore[no-any-return]

    @property
    def sight(self) -> WatchRecord | None:
        """How well the quotas of each namespace are watched; None: they are not."""
        return self._gating.share.watch_record  # type: ignore[no-any-return]

"""What gated clients of any kind and generation share: the options of their creates, and their part in a ledger.

The generated methods of a client accept no arguments of ours, so options stand around the call:

with waiting(timeout=600, priority=5):
    core.create_namespaced_pod("team", pod)

Tasks of asyncio inherit them. Threads of a pool do not: set them inside the task, submit
``contextvars.copy_context().run``, or give them to the client, for all of its creates.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, TypeVar

from backoff_ctrl.k8s.gate.any_gate import AnyGate
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.calls import Passed, creation, read_collection, read_target
from backoff_ctrl.k8s.gate.creates.creation import Modes, Options, check_options, mode_of
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.gate.gangs import AdmittedGang
from backoff_ctrl.k8s.gate.locked_engine import Failure
from backoff_ctrl.k8s.gate.runtime.host import after_fork
from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.gate.sharing.process import Share
from backoff_ctrl.k8s.kube.watching.status import WatchRecord

from .transport import ConfiguredToken, LastToken, mark_configured

R = TypeVar("R")
G = TypeVar("G", bound=AnyGate)

NONE_GIVEN: Final = Options()
_IN_CALLBACK: ContextVar[bool] = ContextVar("backoff_ctrl_in_callback", default=False)
_GIVEN: ContextVar[Mapping[str, Any]] = ContextVar("backoff_ctrl_waiting", default=MappingProxyType({}))


# -- the options of a create ---------


@contextmanager
def waiting(
    *,
    timeout: float | None = None,
    priority: int | None = None,
    key: str | None = None,
    on_wait: Callable[[Wait], object] | None = None,
) -> Iterator[None]:
    """Set options for the creates in this block. An option that is not given keeps the value of the enclosing block.

    ``timeout``: seconds a create may wait; then it fails with an error that is both the client's ``ApiException`` and
    a ``TimeoutError``. ``priority``: an integer, higher is admitted first. ``key``: the idempotency key of one create:
    a repetition with the same key, in another process too, finds the object instead of creating a second.
    ``on_wait``: called with a ``Wait`` each time a create starts to wait in line; it must not block. Raises
    ``OptionError``, which is a ``ValueError`` and a ``TypeError``, at once for an invalid option.
    """
    with _giving(_checked(timeout, priority, key, on_wait)):
        yield


def drawing(gang: AdmittedGang) -> Any:
    """Let the creates in a ``with`` block draw from what is reserved for a gang, where they are members of it."""
    return _giving({"gang": gang})


@contextmanager
def _giving(options: Mapping[str, Any]) -> Iterator[None]:
    token = _GIVEN.set({**_GIVEN.get(), **options})
    try:
        yield
    finally:
        _GIVEN.reset(token)


def _checked(timeout: Any, priority: Any, key: Any, on_wait: Any) -> dict[str, Any]:
    """Return the options that are not None by name. Raises ``OptionError`` for a wrong one."""
    check_options(timeout, priority, key, on_wait)
    named = {"timeout": timeout, "priority": priority, "key": key, "on_wait": on_wait}
    return {name: value for name, value in named.items() if value is not None}


def current_options(defaults: Options = NONE_GIVEN) -> Options:
    """Return the options of the caller's context, else the defaults."""
    given = _GIVEN.get()
    options = replace(defaults, **given) if given else defaults
    if options.on_wait is None:
        return options
    if _IN_CALLBACK.get():  # what a callback creates has neither it nor the key, or it would nest for ever
        return replace(options, key=None, on_wait=None)
    return replace(options, on_wait=partial(_call_back, options.on_wait))


def _call_back(on_wait: Callable[[Wait], object], wait: Wait) -> None:
    token = _IN_CALLBACK.set(True)
    try:
        on_wait(wait)
    finally:
        _IN_CALLBACK.reset(token)


# -- a client's part in a ledger ---------


class Gating(Generic[G]):
    """Decides which calls of a client are gated, describes those to the gate, and learns from all others."""

    def __init__(
        self,
        client: GatedClient[G],
        gate: AnyGate | None,
        events: bool | None,
        mode: Modes | None,
        options: Mapping[str, Any],
    ) -> None:
        """Join the ledger of ``gate``, or the one that this process shares for the server."""
        outside = settings()
        if mode is None and gate is not None:
            mode = gate.given_mode
        self.configuration = client.configuration
        self._transport = client.transport
        self.share = Share(self.configuration, gate, events)
        self.gate = client.kind(ledger=self.share.ledger, mode=mode if mode is not None else outside.mode or None)
        self.attempt = self.share.ledger.engine.attempt
        self.now = self.share.ledger.now
        self.defaults = Options(**{"timeout": outside.timeout, **options})
        self.token = LastToken()
        self.local = threading.local()  # of the call that a thread is making

    def prepared(
        self, sender: Any, method: str, url: str, headers: dict[str, Any] | None, body: Any, limit: Any
    ) -> tuple[Create, Any] | None:
        """Prepare a create and its way to the server, by the ``sender``; ``limit`` is its caller's own, of one request.

        None: the call passes ungated. It does so after an error of ours, too (fails open). With an idempotency key that
        error is raised: without the gate the create could be stored a second time.
        """
        try:
            target = read_collection(self.configuration.host, url) if method.upper() == "POST" else None
            if target is None or not isinstance(body, dict):
                return None
            made = creation(self.configuration.host, target, headers or {}, body, current_options(self.defaults))
            return Create(self.gate, made), self._transport(sender, target.namespace, url, headers, limit)
        except Exception as error:
            self.share.ledger.failed_open(error)
            if current_options().key is not None:
                raise
            return None

    def teaches(self, url: str, status: int) -> bool:
        """Return whether ``learn`` needs the body of an ungated call's answer."""
        return status == 403 and read_target(self.configuration.host, url) is not None

    def learn(
        self, method: str, url: str, body: object, sent: float, status: int, headers: Any = None, refusal: bytes = b""
    ) -> None:
        """Learn from an answer to an ungated call: a 401, a quota's refusal, or a deletion that makes room.

        Never raises: the answer is the caller's.
        """
        self.attempt(self._learn, url, Passed(method, status, headers or {}, refusal, sent, body))

    def _learn(self, url: str, passed: Passed) -> None:
        self.share.ledger.reached = True
        if passed.status == 401:
            self.token.forget()
        elif passed.status == 403 or (passed.status == 200 and passed.method.upper() == "DELETE"):
            target = read_target(self.configuration.host, url)
            if target is not None:
                self.share.ledger.note_passed(target, passed)

    def respond(self, make: Callable[..., R], *given: Any) -> R:
        """Make the client's response to a create that has ended; once more after an error of ours: it is stored."""
        response = self.attempt(make, *given)
        return make(*given) if isinstance(response, Failure) else response


class GatedClient(Generic[G]):
    """The constructor and the attributes of every gated client. In its bases the adapter of a generation follows."""

    kind: type[G]
    """The kind of gate that its callers wait at."""
    transport: ClassVar[Any]
    """How its creates are sent: makes a ``ClientTransport``."""
    configuration: Any

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

        ``gate``: one with a ledger of its own; None: the ledger is shared with all clients of this process and server.
        ``events``: whether to write events (None: ``BACKOFF_CTRL_EVENTS=1``). ``mode``: that of this client's creates
        (None: the gate's, else ``BACKOFF_CTRL_MODE``). The others hold for all creates for which ``waiting`` does not
        say otherwise (``timeout`` None: ``BACKOFF_CTRL_TIMEOUT``).
        """
        options = _checked(timeout, priority, None, on_wait)
        if mode is not None:
            mode_of(mode)
        super().__init__(configuration, *args, **kwargs)  # type: ignore[call-arg]  # the adapter's
        self._gating: Any = Gating(self, gate, events, mode, options)
        after_fork(self.renew)

    def renew(self) -> None:
        """Start empty in a forked child. (The ledger does so by itself.)"""

    def update_params_for_auth(self, headers: Any, queries: Any, auth_settings: Any, *rest: Any, **more: Any) -> Any:
        """Do as ``ApiClient`` does (a coroutine on asyncio since 33), but mark a header of the configuration.

        A client that need not await it asks the configuration at most once a second. ``rest`` and ``more`` are what
        its generation adds.
        """
        gating: Gating[G] = self._gating
        configured = auth_settings == ["BearerToken"] and more.get("request_auth") is None
        known = gating.attempt(gating.token.of, self.configuration) if configured else None
        if isinstance(known, ConfiguredToken):
            headers["authorization"] = known
            return None
        adapter: Any = super()
        updated = adapter.update_params_for_auth(headers, queries, auth_settings, *rest, **more)
        if inspect.isawaitable(updated):
            return self._marked_after(updated, headers) if configured else updated
        if configured:
            gating.attempt(mark_configured, headers)
            if isinstance(header := headers.get("authorization"), ConfiguredToken):
                gating.attempt(gating.token.note, self.configuration, header)
        return None

    async def _marked_after(self, updated: Awaitable[None], headers: dict[str, Any]) -> None:
        await updated
        self._gating.attempt(mark_configured, headers)

    @property
    def gate(self) -> G:
        """The gate of this client, in the ledger that it shares."""
        return self._gating.gate  # type: ignore[no-any-return]

    def create_options(self) -> Options:
        """Return the options that a create would have here and now."""
        return current_options(self._gating.defaults)

    @property
    def sight(self) -> WatchRecord | None:
        """How well the quotas of each namespace are watched; None: they are not."""
        return self._gating.share.watch_record  # type: ignore[no-any-return]

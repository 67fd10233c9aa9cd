"""One ledger per process and API server, however many clients there are: two would promise the same room twice.

Each has what the environment or the program asks for: memory, a watch, Kubernetes events, status, notifications,
traces.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.any_gate import AnyGate
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.observing.hosted import HostedWatch
from backoff_ctrl.k8s.gate.runtime.host import LOADING, RuntimeAlarms, after_fork
from backoff_ctrl.k8s.gate.settings import Settings, settings
from backoff_ctrl.k8s.kube.watching.status import WatchRecord

from .memory import MemoryKeeper, memory_file_of

log = logging.getLogger(__name__)

DISPLAY: Final = "backoff_ctrl.k8s.status.serving"
"""The module whose ``SERVICE`` shows the ledgers of a process. It is loaded where that is wanted, and known by name
only: the status imports gates, and no gate imports the status."""

Watch: TypeAlias = Callable[[], WatchRecord | None]
"""Returns how well the quotas of a ledger are watched; None: they are not."""


class Display(Protocol):
    """Shows ledgers to others: the status of a process."""

    def add(self, ledger: Ledger, server: str | None = None, watch: Watch = ...) -> object:
        """Begin to count what a ledger decides."""

    def remove(self, ledger: Ledger) -> None:
        """Stop showing a ledger."""

    def serve(self, listen: str) -> object:
        """Serve at ``host:port``."""


class _Shared:
    """The ledger of one server, the number of its users, and the watch that runs while there are any."""

    def __init__(self, server: str) -> None:
        self.ledger = Ledger(RuntimeAlarms(), policy_in_use(), signature=settings().signature)
        self.ledger.line.list_quotas_first(self.ledger.policy.idle_ttl / 2)
        self.server = server
        self.users = 0
        self._watch: HostedWatch | None = None
        self._memory: MemoryKeeper | None = None

    def join(self, configuration: Any) -> None:
        self.users += 1
        if self._memory is None and (directory := settings().memory):
            self._memory = MemoryKeeper(self.ledger, memory_file_of(directory, self.server))
        if self._watch is None:
            self._watch = HostedWatch(self.ledger, configuration)
            self._unsubscribe = self.ledger.subscribe(self._watch)

    def leave(self) -> MemoryKeeper | None:
        """Leave. Return the memory to close outside the lock, if this was the last user: a disk may be slow."""
        self.users -= 1
        if self.users:
            return None
        if self._watch is not None:
            self._unsubscribe()
            self._watch.stop()
            self._watch = None
        memory, self._memory = self._memory, None
        return memory

    def watch_record(self) -> WatchRecord | None:
        return None if self._watch is None else self._watch.record


class _Process:
    def __init__(self) -> None:
        self.shared: dict[str, _Shared] = {}
        self.beside: dict[Ledger, str] = {}  # what each is called
        self.below: Mapping[str, Any] = {}  # settings of the policy, and ``above`` the environment's
        self.above: Mapping[str, Any] = {}
        self.shown = False  # the program asked for the status of everything shared
        self.serves = True  # where the environment says so; else the program does it itself
        self._forked()
        after_fork(self._forked)

    def _forked(self) -> None:
        self.lock = threading.Lock()

    def of(self, server: str) -> _Shared:
        """Return what is shared for a server, after ``lock`` was taken."""
        found = self.shared.get(server)
        if found is None:
            found = self.shared[server] = _Shared(server)
            self.tell_of(found.ledger, server, found.watch_record)
        return found

    def tell_of(self, ledger: Ledger, server: str, watch: Watch = lambda: None) -> None:
        """Notify, trace and show what happens in a ledger, as the environment and the program ask for it."""
        given = settings()
        notify(ledger, given)
        trace(ledger, given)
        if given.status or self.shown:
            try:
                _show(ledger, server, watch, given.status if self.serves else "")
            except Exception as error:  # noqa: BLE001 - fails open: status only helps
                log.warning("the status of this gate is not served: %s", error)


_PROCESS: Final = _Process()


def use_policy(*, below: Mapping[str, Any], above: Mapping[str, Any]) -> None:
    """Set the policy of ledgers that this process opens from now on; existing ones keep theirs.

    ``BACKOFF_CTRL_POLICY`` takes precedence over ``below``, and ``above`` over both. Raises ``PolicyError``, and then
    keeps the old policy.
    """
    Policy(**{**below, **settings().policy, **above})
    _PROCESS.below, _PROCESS.above = below, above


def policy_in_use() -> Policy:
    """Return the policy of ledgers that this process opens now."""
    return Policy(**{**_PROCESS.below, **settings().policy, **_PROCESS.above})


class Share:
    """A client's part in a ledger: that of a gate with its own line, else the one this process shares for the server.

    A shared ledger lists the quotas of a namespace before the first create there, and watches them once a create has
    to wait for one, with the credentials of the client that came first; where that is forbidden it learns from
    refusals. The ledger of a caller's own gate does neither unless it is set up so. What was learned outlives the
    clients, and also the process if ``BACKOFF_CTRL_MEMORY`` names a directory for it.
    """

    def __init__(self, configuration: Any, gate: AnyGate | None, events: bool | None = None) -> None:
        """Join. ``events``: whether to write Kubernetes events of waiting creates; None: as the environment says."""
        self._shared: _Shared | None = None
        if gate is not None and not gate.joins():
            self.ledger = gate.ledger
        else:
            with _PROCESS.lock:
                shared = _PROCESS.of(configuration.host)
                shared.join(configuration)
                self._shared, self.ledger = shared, shared.ledger
            if gate is not None:
                gate.join(shared.ledger)
        wanted = settings().events if events is None else events
        self._end_events = _send_events(self.ledger, configuration) if wanted else None

    @property
    def watch_record(self) -> WatchRecord | None:
        """How well the quotas of each namespace are watched; None: they are not."""
        return None if self._shared is None else self._shared.watch_record()

    def release(self) -> None:
        """Leave. The last client to leave ends the watch and the events. A second call has no effect."""
        with _PROCESS.lock:
            shared, self._shared = self._shared, None
            memory = shared.leave() if shared is not None else None
        if memory is not None:
            memory.close()
        end, self._end_events = self._end_events, None
        if end is not None:
            end()


def forget_unused() -> None:
    """Forget the ledgers, and what they learned, of the servers that no client uses any more."""
    with _PROCESS.lock:
        _PROCESS.shared = {server: shared for server, shared in _PROCESS.shared.items() if shared.users}


def serve_later() -> None:
    """Leave it to the program when the status is served that the environment asks for."""
    _PROCESS.serves = False


def show_shared() -> None:
    """Count for the status what happens in all ledgers that are shared, now and later."""
    with _PROCESS.lock:
        _PROCESS.shown = True
        for shared in _PROCESS.shared.values():
            _show(shared.ledger, shared.server, shared.watch_record)
        for ledger, server in _PROCESS.beside.items():
            _show(ledger, server)


def show_beside(ledger: Ledger, server: str) -> Callable[[], None]:
    """Notify, trace and show what happens in a ledger of no API server, as in those that are shared.

    ``server`` stands where they have the URL of theirs. Returns what ends that.
    """
    with _PROCESS.lock:
        _PROCESS.beside[ledger] = server
        _PROCESS.tell_of(ledger, server)
    return partial(_hide_beside, ledger)


def _hide_beside(ledger: Ledger) -> None:
    with _PROCESS.lock:
        if _PROCESS.beside.pop(ledger, None) is not None and (settings().status or _PROCESS.shown):
            _display().remove(ledger)


def _show(ledger: Ledger, server: str, watch: Watch = lambda: None, listen: str = "") -> None:
    """Count for the status what happens from now on, and serve it if an address is given."""
    _display().add(ledger, server, watch)
    if listen:
        _display().serve(listen)


def _display() -> Display:
    display: Display = import_module(DISPLAY).SERVICE
    return display


# -- optional parts, loaded only where they are asked for ---------


def _send_events(ledger: Ledger, configuration: Any) -> Callable[[], None]:
    with LOADING:
        from backoff_ctrl.k8s.gate.events.sender import send_events  # noqa: PLC0415
    return send_events(ledger, configuration)


def tell_own_pod(ledger: Ledger, configuration: Any, given: Settings) -> Callable[[], None]:
    """Write events about the pod of this process, if it knows one, while creates of it wait; return what ends that.

    Never raises. It loads what writes events: not before creators are served.
    """
    if not (given.pod_events and given.pod_name and given.pod_namespace):
        return lambda: None
    try:
        with LOADING:
            from backoff_ctrl.k8s.gate.events.own_pod import tell_pod  # noqa: PLC0415

        return tell_pod(ledger, configuration, given.pod_namespace, given.pod_name, given.pod_uid)
    except Exception as error:  # noqa: BLE001 - fails open: events only help
        log.warning("no events are written about pod %s/%s: %s", given.pod_namespace, given.pod_name, error)
        return lambda: None


def notify(ledger: Ledger, given: Settings) -> None:
    """Notify the receivers in the file ``BACKOFF_CTRL_NOTIFY`` of a ledger's creates, if it is set. Never raises."""
    if not given.notify:
        return
    try:
        with LOADING:
            from backoff_ctrl.k8s.gate.events.webhooks import Notifier, read_receivers  # noqa: PLC0415
            from backoff_ctrl.k8s.gate.settings import gate_name  # noqa: PLC0415

        ledger.subscribe(Notifier(ledger, read_receivers(Path(given.notify)), gate_name()))
    except Exception as error:  # noqa: BLE001 - fails open: notifications only help
        log.error("notifications are off: %s", error)  # noqa: TRY400 - a sentence, no traceback


def trace(ledger: Ledger, given: Settings) -> None:
    """Make spans of a ledger's creates, if ``BACKOFF_CTRL_TRACES=1`` is set. Never raises."""
    if not given.traces:
        return
    try:
        with LOADING:
            from backoff_ctrl.k8s.gate.tracing import Spans  # noqa: PLC0415

        ledger.subscribe(Spans())
    except ImportError:
        log.error("creates are not traced: pip install 'backoff-ctrl[otel]'")  # noqa: TRY400
    except Exception as error:  # noqa: BLE001 - fails open: traces only help
        log.error("creates are not traced: %s", error)  # noqa: TRY400

"""One ledger per process and API server, however many clients there are: two would promise the same room twice."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final

from backoff_ctrl.k8s.events.sender import events_wanted, send_events
from backoff_ctrl.k8s.gate.any_gate import AnyGate
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.runtime.alarms import RuntimeAlarms
from backoff_ctrl.k8s.runtime.forks import after_fork
from backoff_ctrl.k8s.watching.status import WatchRecord
from backoff_ctrl.k8s.watching.watch import HostedWatch

from .environment import environment
from .memory import MemoryKeeper, memory_file_of
from .showing import show


class _Shared:
    """The ledger of one server, the number of its users, and the watch that runs while there are any."""

    def __init__(self) -> None:
        self.ledger = Ledger(RuntimeAlarms(), signature=environment().signature)
        self.ledger.line.list_quotas_first(self.ledger.policy.idle_ttl / 2)
        self.users = 0
        self._watch: HostedWatch | None = None
        self._memory: MemoryKeeper | None = None

    def join(self, configuration: Any) -> None:
        self.users += 1
        if self._memory is None and (file := memory_file_of(configuration.host)) is not None:
            self._memory = MemoryKeeper(self.ledger, file)
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

    @property
    def watch_record(self) -> WatchRecord | None:
        return None if self._watch is None else self._watch.record


class _Process:
    """The ledgers that this process shares, by server."""

    def __init__(self) -> None:
        self.shared: dict[str, _Shared] = {}
        self._forked()
        after_fork(self._forked)

    def _forked(self) -> None:
        self.lock = threading.Lock()


_PROCESS: Final = _Process()


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
                shared = _PROCESS.shared.get(configuration.host)
                if shared is None:
                    shared = _PROCESS.shared[configuration.host] = _Shared()
                    show(shared.ledger, configuration.host, partial(_watch_record_of, shared))
                shared.join(configuration)
                self._shared, self.ledger = shared, shared.ledger
            if gate is not None:
                gate.join(shared.ledger)
        self._end_events = send_events(self.ledger, configuration) if events_wanted(events) else None

    @property
    def watch_record(self) -> WatchRecord | None:
        """How well the quotas of each namespace are watched; None: they are not."""
        return None if self._shared is None else self._shared.watch_record

    def release(self) -> None:
        """Leave. The last client to leave ends the watch and the events. A second call does nothing."""
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


def _watch_record_of(shared: _Shared) -> WatchRecord | None:
    return shared.watch_record

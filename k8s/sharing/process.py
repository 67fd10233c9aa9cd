"""One ledger per process and API server, however many clients there are: two would promise the same room twice."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.events.sender import events_wanted, send_events
from backoff_ctrl.k8s.gate.first_list import FirstList
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.timers import ThreadTimers
from backoff_ctrl.k8s.watching.thread import WatchThread

from .environment import environment
from .memory_keeper import MemoryKeeper, memory_file_of
from .showing import show

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.door import Door
    from backoff_ctrl.k8s.watching.status import WatchBook


class _Shared:
    """The ledger of one server, the number of its users, and the watch that runs while there are any."""

    def __init__(self) -> None:
        self.ledger = Ledger(ThreadTimers(), Policy(), "enforce", None, environment().signature)
        self.ledger.contact = FirstList(self.ledger.policy.idle_ttl / 2, self.ledger.is_watched)
        self.users = 0
        self._watch: WatchThread | None = None
        self._memory: MemoryKeeper | None = None

    def join(self, configuration: Any) -> None:
        self.users += 1
        if self._memory is None and (file := memory_file_of(configuration.host)) is not None:
            self._memory = MemoryKeeper(self.ledger, file)
            atexit.register(self._memory.close)
        if self._watch is None:
            self._begin(configuration)
            self.ledger.on_renew = lambda: self._begin(configuration)  # a forked child has no threads

    def leave(self) -> MemoryKeeper | None:
        """Leave. Return the memory to close outside the lock, if this was the last user: a disk may be slow."""
        self.users -= 1
        if self.users == 0 and self._watch is not None:
            self._watch.stop()
            self._watch = self.ledger.on_namespace = self.ledger.on_gang = self.ledger.on_renew = None
        if self.users:
            return None
        memory, self._memory = self._memory, None
        return memory

    @property
    def sight(self) -> WatchBook | None:
        return None if self._watch is None else self._watch.book

    def _begin(self, configuration: Any) -> None:
        self._watch = WatchThread(self.ledger, configuration)
        self.ledger.on_namespace = self._watch.follow
        self.ledger.on_gang = self._watch.follow_gang


_LOCK = threading.Lock()
_SHARED: dict[str, _Shared] = {}


class Share:
    """A client's part in a ledger: that of a gate with its own line, else the one this process shares for the server.

    A shared ledger lists the quotas of a namespace before the first create there, and watches them once a create has
    to wait for one, with the credentials of the client that came first; where that is forbidden it learns from
    refusals. The ledger of a caller's own gate does neither unless it is set up so. What was learned outlives the
    clients, and also the process if ``BACKOFF_CTRL_MEMORY`` names a directory for it.
    """

    def __init__(self, configuration: Any, gate: Door | None, events: bool | None = None) -> None:
        """Join. ``events``: whether to write Kubernetes events of waiting creates; None: as the environment says."""
        self._shared: _Shared | None = None
        if gate is not None and not gate.joins():
            self.ledger = gate.ledger
        else:
            with _LOCK:
                shared = _SHARED.get(configuration.host)
                if shared is None:
                    shared = _SHARED[configuration.host] = _Shared()
                    show(shared.ledger, configuration.host, lambda shared=shared: shared.sight)  # type: ignore[misc]
                shared.join(configuration)
                self._shared, self.ledger = shared, shared.ledger
            if gate is not None:
                gate.join(shared.ledger)
        self._end_events = send_events(self.ledger, configuration) if events_wanted(events) else None

    @property
    def sight(self) -> WatchBook | None:
        """How well the quotas of each namespace are watched; None: they are not."""
        shared = self._shared
        return None if shared is None else shared.sight

    def release(self) -> None:
        """Leave. The last client to leave ends the watch and the events. A second call does nothing."""
        with _LOCK:
            shared, self._shared = self._shared, None
            memory = shared.leave() if shared is not None else None
        if memory is not None:
            memory.close()
            atexit.unregister(memory.close)
        end, self._end_events = self._end_events, None
        if end is not None:
            end()


def _after_fork() -> None:
    """Replace the lock, which may be held for ever in the child. The ledgers renew themselves."""
    global _LOCK  # noqa: PLW0603 - a lock cannot be reset otherwise
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

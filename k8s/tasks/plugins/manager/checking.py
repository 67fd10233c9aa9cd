"""One step of an attempt whose object exists: find it, ask its plugin what it means, and see whether it was deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from backoff_ctrl.k8s.kube.answers.objects import Object, object_of
from backoff_ctrl.k8s.kube.cluster.objects import Objects
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.following import Watches
from backoff_ctrl.k8s.tasks.plugins.marks import Key, key_of
from backoff_ctrl.k8s.tasks.plugins.phases import PLUGIN_FAILED, PhaseInfo, system_failure
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginBugError, PluginContext, TaskContext

from .figures import ManagerCounts
from .launching import Launcher
from .outcomes import DELETED, UNEXPECTED_DELETION
from .plugin_calls import PluginCalls
from .state import Made, State

ERRORS_MAX: Final = 5
"""Errors of a plugin in a row that end an attempt: a state that it does not understand may pass."""
ERROR_PAUSE: Final = 10.0
"""Seconds between two errors that count: an object may change several times at once."""


class Checker:
    """Follows objects: from the watch's cache if that is complete, else by reading them."""

    def __init__(
        self,
        launcher: Launcher,
        now: Callable[[], datetime],
        objects: Objects,
        watches: Watches,
        counts: ManagerCounts,
        wake: Callable[[Key], object],
    ) -> None:
        """``now`` is the time that grace periods are measured at."""
        self._wake = wake
        self._erred: dict[Key, datetime] = {}  # when an error was last counted
        self._launcher = launcher
        self._now = now
        self._objects = objects
        self._watches = watches
        self._counts = counts

    async def step(self, key: Key, task: TaskContext, plugin: PluginCalls, known: State) -> tuple[State, PhaseInfo]:
        """Return the phase of the attempt. Raises ``ClusterError`` and ``PluginBugError``."""
        made = known.made
        assert made is not None  # a started attempt has an object: ``read_state`` checks it
        found = await self.find(plugin, made, key)
        if found is None:
            said = f"{plugin.kind.resource} {made.namespace}/{made.name} was deleted, and not by this manager"
            self._counts.unexpected_deletions[plugin.id] += 1
            return known, system_failure(DELETED, said)
        resource = found.body
        known_pods = partial(self._watches.pods, key=key)
        names = partial(plugin.pod_names, resource)
        pods = await self._objects.pods_of(found.namespace, plugin.pod_labels(resource), names, known_pods)
        context = PluginContext(task.config, self._now(), pods)
        info = plugin.phase(context, resource)
        if known.plugin_errors:
            known = replace(known, plugin_errors=0)
        if info.phase is Phase.UNDEFINED:  # its state is unknown, as when its node does not answer
            info = known.holding(info.reason or known.reason)
        if task.config.send_object_events:
            known, info = self._with_events(known, info, plugin, key, found.uid)
        if info.phase.is_terminal:
            return known, info
        if found.is_going:
            said = f"{plugin.kind.resource} {made.namespace}/{made.name} is being deleted, and not by this manager"
            self._counts.unexpected_deletions[plugin.id] += 1
            return known, system_failure(UNEXPECTED_DELETION, said)
        self._launcher.reserve_again(key, task, plugin, found)
        return known, info

    def failed(self, key: Key, known: State, error: PluginBugError) -> tuple[State, PhaseInfo]:
        """Return the phase of an attempt whose plugin has failed: as before, until that has happened too often.

        Then the state of its object stays unknown, and the next attempt replaces it.
        """
        now = self._now()
        last = self._erred.get(key)
        if last is None or abs((now - last).total_seconds()) >= ERROR_PAUSE:
            self._erred[key] = now
            known = replace(known, plugin_errors=known.plugin_errors + 1)
        if known.plugin_errors >= ERRORS_MAX:
            return known, replace(
                system_failure(PLUGIN_FAILED, f"{error}, {ERRORS_MAX} times"), cleanup_on_failure=True
            )
        asyncio.get_running_loop().call_later(ERROR_PAUSE, self._wake, key)
        return known, known.holding(f"{error}; it is asked again")

    def forget(self, key: Key) -> None:
        self._erred.pop(key, None)

    async def find(self, plugin: PluginCalls, made: Made, key: Key) -> Object | None:
        """Return the object of an attempt; None: it is gone. If the watch does not show it, it is read, to be sure."""
        found = self._watches.need(plugin.kind, made.namespace).find(made.namespace, made.name)
        if found is not None and _is(found, made, key):
            self._counts.reads["cache"] += 1
            return found
        self._counts.reads["server"] += 1
        read = await self._objects.read(plugin.kind, made.namespace, made.name)
        found = None if read is None else object_of(read)
        if found is None or not _is(found, made, key):
            return None
        self._watches.note(plugin.kind, found)
        return found

    def _with_events(
        self, known: State, info: PhaseInfo, plugin: PluginCalls, key: Key, uid: str
    ) -> tuple[State, PhaseInfo]:
        assert known.made is not None
        self._watches.need_events(plugin.kind, known.made.namespace)
        about = known.made.namespace, uid
        self._watches.events.claim(about, key)
        reasons, told = self._watches.events.news(about, known.told)
        return replace(known, told=told), replace(info, reasons=(*info.reasons, *reasons))


def _is(found: Object, made: Made, key: Key) -> bool:
    """Return whether this is the object that was created, not a later one of its name, nor one that a status names."""
    return key_of(found) == key and (not made.uid or found.uid == made.uid)

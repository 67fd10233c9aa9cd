"""All creates under way, by task and attempt; and the reservations that are made again for living objects."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.session_transport import CreateTransport
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.gangs import GangRefused
from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT
from backoff_ctrl.k8s.kube.answers.objects import Object
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.cluster.objects import Objects
from backoff_ctrl.k8s.tasks.plugins.following import Watches
from backoff_ctrl.k8s.tasks.plugins.marks import Key, key_of, object_name, with_metadata
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, queued
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginProperties, TaskContext

from .figures import ManagerCounts
from .launch import Asked, Launch, gang_that_stands
from .outcomes import taken
from .plugin_calls import PluginCalls
from .state import Made, Stage, State

log = logging.getLogger(__name__)

NEWS: Final = 2.0
"""Seconds between two checks for creates that wait for something else than before."""
AT_A_TIME: Final = 50
LOOKS: Final = 500.0
"""Waiting creates that are checked before the event loop gets a turn, and in a second."""
EXACT_PLACES: Final = 10
"""The place in line from which on only a move by a tenth is news."""


class Launcher:
    """Begins creates, knows their state, and ends them."""

    def __init__(
        self,
        gate: AsyncGate,
        server: str,
        store: str,
        wake: Callable[[Key], object],
        objects: Objects,
        watches: Watches,
        counts: ManagerCounts,
    ) -> None:
        self._gate = gate
        self._server = server
        self._store = store
        self._wake = wake
        self._objects = objects
        self._watches = watches
        self._counts = counts
        self._launches: dict[Key, Launch] = {}
        self._met: set[Key] = set()  # those whose parts this process has reserved
        self._doubts: dict[Key, float] = {}  # until when a stopped create may still be stored
        self._standing: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.create_task(self._tell_news())

    def __len__(self) -> int:
        return len(self._launches)

    # -- steps ---------

    def step(
        self, key: Key, task: TaskContext, plugin: PluginCalls, known: State, now: datetime
    ) -> tuple[State, PhaseInfo]:
        """Begin the create of an attempt, or return its state.

        Raises ``TaskSpecError`` and ``PluginBugError``; then no create was begun.
        """
        launch = self._launches.get(key)
        if launch is None or (launch.over and launch.made is None and launch.failure is None):
            properties, namespace = plugin.properties(), task.metadata.namespace
            name = object_name(task.metadata.generated_name, properties.generated_name_max_length)
            watch = self._watches.need(plugin.kind, namespace)
            found = watch.find(namespace, name)
            if found is not None and not found.is_going:
                if key_of(found) != key:
                    return known, taken(f"{plugin.kind.resource} {found.namespace}/{found.name}")
                self._counts.launches[plugin.id, "adopted"] += 1
                return self._started(known, plugin, found), queued("its object exists already")
            launch = self._launches[key] = self._begin(key, task, plugin, properties, known=watch.fed(namespace))
        known = replace(known, plugin=plugin.id)
        if launch.made is not None:
            self._launches.pop(key)
            self._counts.launches[plugin.id, "created" if launch.created else "adopted"] += 1
            if launch.created:
                self._met.add(key)  # its gang has reserved the room of its pods
            self._watches.note(plugin.kind, launch.made)
            return self._started(known, plugin, launch.made), queued(f"{launch.label} exists")
        if launch.failure is not None:
            self._launches.pop(key)
            self._counts.launches[plugin.id, "failed"] += 1
            return known, replace(launch.failure, cleanup_on_failure=launch.in_doubt)
        wait = launch.wait()
        launch.told = _news_of(wait.reason, wait.quota, wait.resource, wait.place) if wait is not None else None
        stage = Stage.ALLOCATION_TOKEN_ACQUIRED if launch.sent else Stage.NOT_STARTED
        return replace(known, stage=stage), launch.info(now, wait)

    def seen(self, key: Key, kind: Kind, found: Object) -> None:
        """Take an object that a watch shows if an earlier process made it for a create that still waits.

        Only an object of the plugin's kind counts: an operator may have copied labels and name to objects of other
        kinds.
        """
        launch = self._launches.get(key)
        if launch is None or found.is_going:
            return
        asked = launch.asked.creation
        if (kind.resource, found.key) == (asked.resource, (asked.namespace, launch.name)):
            launch.adopt(found)

    def reserve_again(self, key: Key, task: TaskContext, plugin: PluginCalls, found: Object) -> None:
        """Reserve, once per process, room for what a living object of another process may still make."""
        if key in self._met:
            return
        self._met.add(key)
        if self._gate.ledger.gangs.label_of(found.uid) is not None:
            return  # an earlier manager of this process created it: what it reserved in this ledger still holds
        if plugin.parts(found.body):
            standing = asyncio.create_task(self._stand(task, plugin, found.body))
            self._standing.add(standing)
            standing.add_done_callback(self._standing.discard)

    def release(self, uid: str) -> None:
        """Release the reservation for pods of an object that has ended, so that the next attempt has its room."""
        if uid:
            self._gate.ledger.gangs.object_ended(uid)

    async def _stand(self, task: TaskContext, plugin: PluginCalls, resource: JSON) -> None:
        namespace = task.metadata.namespace
        transport = CreateTransport(self._objects, plugin.kind, namespace)
        try:
            gang = gang_that_stands(
                namespace,
                plugin.kind.resource,
                resource,
                await transport.weighed(resource, plugin.kind.resource, plugin.parts),
                server=self._server,
                priority=task.metadata.priority,
                limit=task.config.reservation_limit.total_seconds(),
            )
            if gang is None:
                return
            async with self._gate.gang(gang, transport):
                pass
        except GangRefused as error:
            log.warning("%s", error)
        except Exception:
            log.exception("an internal error: no room is reserved for the pods of an object in %s", namespace)

    # -- the end ---------

    async def stop(self, key: Key) -> Launch | None:
        """End a create, and return it: it may have ended with an object. None: the attempt has no create under way."""
        launch = self._launches.get(key)
        if launch is None:
            return None
        await launch.stop()
        self._launches.pop(key, None)
        if launch.made is None and (launch.in_doubt or not launch.over):
            self._doubts[key] = self._loop.time() + SERVER_LIMIT
        return launch

    def in_doubt(self, key: Key) -> bool:
        """Return whether a stopped create may still be stored: then ``wake`` is called to look for it again."""
        until = self._doubts.get(key)
        if until is None:
            return False
        if self._loop.time() >= until:
            del self._doubts[key]
            return False
        self._loop.call_later(NEWS, self._wake, key)
        return True

    def forget(self, key: Key) -> None:
        self._met.discard(key)
        self._doubts.pop(key, None)

    async def aclose(self) -> None:
        """End all creates; sent ones are answered first."""
        self._news.cancel()
        for each in list(self._standing):
            each.cancel()
        await asyncio.gather(*(launch.stop() for launch in list(self._launches.values())), return_exceptions=True)
        await asyncio.gather(self._news, *self._standing, return_exceptions=True)

    # -- its own ---------

    def _begin(
        self, key: Key, task: TaskContext, plugin: PluginCalls, properties: PluginProperties, *, known: bool
    ) -> Launch:
        built = plugin.build(task)
        about = task.metadata
        creation = Creation(
            self._server,
            "",
            about.namespace,
            plugin.kind.resource,
            with_metadata(built, about, task.config, properties, self._store),
            about.priority,
            about.timeout,
            key=f"{about.uid}/{about.attempt}",
        )
        limit = task.config.reservation_limit.total_seconds()
        asked = Asked(
            key,
            creation,
            plugin.parts,
            limit,
            error_limit=task.config.create_error_limit,
            known=known,
        )
        wake = partial(self._wake, key)
        transport = CreateTransport(self._objects, plugin.kind, about.namespace, wake)
        return Launch(asked, self._gate, transport, wake)

    def _started(self, known: State, plugin: PluginCalls, found: Object) -> State:
        made = Made(plugin.kind.api_version, plugin.kind.kind, found.namespace, found.name, found.uid)
        return replace(known, stage=Stage.STARTED, plugin=plugin.id, made=made)

    async def _tell_news(self) -> None:
        """Wake those whose wait has changed since they were last asked."""
        while True:
            await asyncio.sleep(NEWS)
            for number, (key, launch) in enumerate(list(self._launches.items()), start=1):
                if number % AT_A_TIME == 0:
                    await asyncio.sleep(AT_A_TIME / LOOKS)
                wait = None if launch.over else launch.wait()
                news = None if wait is None else _news_of(wait.reason, wait.quota, wait.resource, wait.place)
                if news is not None and news != launch.told:
                    launch.told = news
                    self._wake(key)


def _news_of(reason: str, quota: str, resource: str, place: int) -> tuple[object, ...]:
    """Return the value that is compared to find news, with places far back in line rounded."""
    rough = place if place <= EXACT_PLACES else round(10 * math.log(place))
    return reason, quota, resource, rough

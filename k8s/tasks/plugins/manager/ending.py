"""Ends an attempt's object: aborts it, or cleans up after it has ended."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential, wait_random

from backoff_ctrl.k8s.kube.answers.fields import metadata_of
from backoff_ctrl.k8s.kube.answers.objects import Object, object_of
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.cluster.objects import ClusterError, Objects
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.following import Watches
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER, key_of, key_of_task, object_name
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, aborted
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginBugError, TaskContext

from .figures import ManagerCounts
from .launching import Launcher
from .plugin_calls import PluginCalls
from .state import State

log = logging.getLogger(__name__)

NOTHING_TO_ABORT: Final = aborted("aborted before anything was created")

CONFLICT: Final = 409
LONGEST_PAUSE: Final = 1.0
"""Seconds between two tries to remove our finalizer."""


class Ender:
    """Ends objects. Every method is idempotent."""

    def __init__(self, launcher: Launcher, objects: Objects, watches: Watches, counts: ManagerCounts) -> None:
        self._launcher = launcher
        self._objects = objects
        self._watches = watches
        self._counts = counts

    async def abort(self, task: TaskContext, plugin: PluginCalls, known: State) -> tuple[State, PhaseInfo]:
        """End the attempt. Raises ``ClusterError``: then call it again."""
        key = key_of_task(task.metadata)
        launch = await self._launcher.stop(key)
        found = launch.made if launch is not None else None
        if found is None:
            found = await self._read(task, plugin, known)
        if found is None and self._launcher.in_doubt(key):
            said = "the abort continues: the create was sent and not answered, its object may still appear"
            return replace(known, doubt=True), PhaseInfo(Phase.NOT_READY, reason=said)
        if found is None:
            # A create of an earlier process may still be stored, too: then ``sweep`` ends it.
            earlier = launch is None and known.made is None and known.phase is not Phase.UNDEFINED
            return replace(known, doubt=known.doubt or earlier), NOTHING_TO_ABORT
        if not (found.is_going and known.over):
            await self._end(task, plugin, found)
        label = f"{plugin.kind.resource} {found.namespace}/{found.name}"
        known = replace(known, doubt=False)
        return known, known.info() if known.over else aborted(f"aborted: {label} was ended")

    async def sweep(self, task: TaskContext, plugin: PluginCalls, known: State) -> None:
        """End an object that has appeared after the abort of its attempt. Raises ``ClusterError``: call it again."""
        namespace = task.metadata.namespace
        watch = self._watches.need(plugin.kind, namespace)
        if watch.fed(namespace):
            found = watch.find(namespace, self._name(task, plugin, known))
            found = found if found is not None and self._is_ours(task, known, found) else None
        else:
            found = await self._read(task, plugin, known)
        if found is not None and not found.is_going:
            label = f"{plugin.kind.resource} {namespace}/{found.name}"
            log.warning("%s appeared after its task was aborted: ending it", label)
            await self._end(task, plugin, found)

    async def finalize(self, task: TaskContext, plugin: PluginCalls, known: State) -> None:
        """Remove our finalizer, and delete the object if that is wanted. Raises ``ClusterError``."""
        key = key_of_task(task.metadata)
        launch = await self._launcher.stop(key)
        found = launch.made if launch is not None else None
        never_made = known.made is None and known.phase.is_failure and not known.cleanup
        if found is None and not never_made:
            found = await self._find(task, plugin, known)
        self._launcher.forget(key)
        self._watches.forget(key)
        if known.made is not None:
            self._watches.events.release((known.made.namespace, known.made.uid))
        if found is None:
            return
        await self._remove_finalizer(task.config, plugin, found)
        properties = plugin.properties_at_the_end()
        wanted = task.config.delete_resource_on_finalize and not properties.disable_delete_resource_on_finalize
        left_behind = known.phase.is_failure and known.cleanup
        if (wanted or left_behind or not known.over) and not found.is_going:
            await self._delete(plugin, found.body)

    # -- finding it ---------

    async def _find(self, task: TaskContext, plugin: PluginCalls, known: State) -> Object | None:
        name = self._name(task, plugin, known)
        found = self._watches.find(plugin.kind, task.metadata.namespace, name)
        if found is not None and self._is_ours(task, known, found):
            return found
        return await self._read(task, plugin, known)

    async def _read(self, task: TaskContext, plugin: PluginCalls, known: State) -> Object | None:
        """Return the attempt's object from the server; None: it does not exist, or another one has its name."""
        name = self._name(task, plugin, known)
        read = await self._objects.read(plugin.kind, task.metadata.namespace, name)
        found = None if read is None else object_of(read)
        return found if found is not None and self._is_ours(task, known, found) else None

    @staticmethod
    def _name(task: TaskContext, plugin: PluginCalls, known: State) -> str:
        if known.made is not None:
            return known.made.name
        return object_name(task.metadata.generated_name, plugin.properties_at_the_end().generated_name_max_length)

    @staticmethod
    def _is_ours(task: TaskContext, known: State, found: Object) -> bool:
        other = known.made is not None and known.made.uid and known.made.uid != found.uid
        return key_of(found) == key_of_task(task.metadata) and not other

    # -- ending it ---------

    async def _end(self, task: TaskContext, plugin: PluginCalls, found: Object) -> None:
        """End it as the plugin says. If the plugin itself fails, the object is deleted."""
        self._launcher.release(found.uid)
        resource = found.body
        try:
            behavior = plugin.on_abort(task.metadata, resource)
        except PluginBugError:
            behavior = None
        if behavior is None or behavior.delete:
            await self._delete(plugin, resource)
            return
        try:
            if behavior.patch is not None:
                await self._objects.patch(plugin.kind, resource, behavior.patch)
            elif behavior.update is not None:
                await self._objects.replace(plugin.kind, resource, behavior.update)
        except ClusterError:
            if not behavior.delete_on_error:
                raise
            await self._delete(plugin, resource)

    async def _delete(self, plugin: PluginCalls, resource: JSON) -> None:
        await self._objects.delete(plugin.kind, resource)
        self._counts.deletions[plugin.id] += 1

    async def _remove_finalizer(self, config: K8sPluginConfig, plugin: PluginCalls, found: Object) -> None:
        """Remove only our finalizer. On a conflict read the object again: another writer has changed it meanwhile."""
        present: JSON | None = found.body
        first, tries = config.update_base_backoff_duration / 1000, config.update_backoff_retries
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, ClusterError) and error.status == CONFLICT),
            wait=wait_exponential(multiplier=first, max=LONGEST_PAUSE) + wait_random(0, first / 10),
            stop=stop_after_attempt(max(1, tries)),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    self._counts.finalizer_conflicts += 1
                    present = await self._objects.read(plugin.kind, found.namespace, found.name)
                if present is None or metadata_of(present).get("uid") != found.uid:
                    return
                finalizers = metadata_of(present).get("finalizers") or []
                if FINALIZER in finalizers:
                    await self._objects.patch(plugin.kind, present, _without(present, finalizers))


def _without(resource: JSON, finalizers: list[str]) -> JSON:
    """Return a patch that keeps all finalizers but ours, on condition that the object is the one that was read."""
    left = [each for each in finalizers if each != FINALIZER]
    version = metadata_of(resource).get("resourceVersion")
    return {"metadata": {"resourceVersion": version, "finalizers": left or None}}

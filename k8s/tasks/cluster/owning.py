"""A Task of the cluster owns its object: ``owning`` makes an executor that sees to it.

Before an attempt's first step the Task gets our finalizer, provided that its type resolves, its plugin creates
anything, and its object builds; so deleting the Task later ends its object first. The object gets an owner
reference (unless its plugin or the settings say otherwise) and, with ``inject-finalizer``, our finalizer, too.

A Task that is deleted while its plugin is gone would stay for ever: an event says so, and it is let go. The garbage
collector then takes the object that it owns. So it is with a job that its service does not end: its plugin gives it up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Final

from backoff_ctrl.k8s.kube.answers.fields import is_going, mapping, text
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.tasks.executing import MakeExecutor
from backoff_ctrl.k8s.tasks.model import API_VERSION, KIND
from backoff_ctrl.k8s.tasks.plugins.core import CoreEntry, CorePlugin, Handled, Key, Settles, Unfinished
from backoff_ctrl.k8s.tasks.plugins.marks import FINALIZER
from backoff_ctrl.k8s.tasks.plugins.phases import aborted, not_ready
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError, TaskContext, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from backoff_ctrl.k8s.tasks.store import BrokenStoreError, LeaseLostError, StoreError
from backoff_ctrl.k8s.tasks.through_plugins import CORE, core_of

from .objects import is_held
from .store import ClusterStore

log = logging.getLogger(__name__)

LET_GO: Final = "LetGo"
"""The reason of the event about a Task that has ended although something of it may still run."""
AGAIN: Final = 5.0
"""Seconds until finalizers of ended tasks are looked at again after an error."""


class OwningExecutor:
    """Hands all steps on, each with the Task as the owner of what is made."""

    def __init__(self, executor: CorePlugin, store: ClusterStore, registry: Registry) -> None:
        self._executor = executor
        self._store = store
        self._registry = registry

    async def handle(self, task: TaskContext, state: JSON | None) -> Handled:
        """Take the next step; before the first one the Task is held."""
        if state is None and self._builds(task) and not await self._store.hold(task.metadata.uid):
            return Handled(not_ready("the task is being deleted: nothing more is created"), None)
        return await self._executor.handle(owned(task), state)

    async def abort(self, task: TaskContext, state: JSON | None) -> Handled:
        if gone := self._lost_plugin(task, state):
            made = mapping((state or {}).get("object"))
            what = f"{text(made.get('kind'))} {text(made.get('name'))}" if made else "what it has begun"
            note = f"{gone}; the task is let go, and {what} is left {_to_whom(task)}"
            await self._store.tell(task.metadata.uid, LET_GO, note)
            return Handled(aborted(note), state)
        handled = await self._executor.abort(owned(task), state)
        await self._tell(task, handled.left)
        return handled

    async def sweep(self, task: TaskContext, state: JSON | None) -> None:
        await self._executor.sweep(owned(task), state)

    async def finalize(self, task: TaskContext, state: JSON | None) -> str | None:
        if self._lost_plugin(task, state):
            return None
        left = await self._executor.finalize(owned(task), state)
        await self._tell(task, left)
        return left

    async def _tell(self, task: TaskContext, left: str | None) -> None:
        if left:
            await self._store.tell(task.metadata.uid, LET_GO, f"the task is let go; {left}")

    async def settle(self, seconds: float) -> None:
        if isinstance(self._executor, Settles):
            await self._executor.settle(seconds)

    def _builds(self, task: TaskContext) -> bool:
        """Return whether there will be something to release.

        Some plugins create no object, and a task that can't be built ends by its first step.
        """
        try:
            entry = self._registry.resolve(task.type)
            if isinstance(entry, CoreEntry) and not entry.owns:
                return False
            entry.check(owned(task))
        except (PluginError, TaskSpecError):
            return False
        except Exception:  # noqa: BLE001 - a bug of the plugin: the step reports it
            return True
        return True

    def _lost_plugin(self, task: TaskContext, state: JSON | None) -> str:
        """Return why a Task that is being deleted can't be ended by its plugin; empty: it can, or is not deleted."""
        entry = self._store.cache.entry(task.metadata.uid)
        if entry is not None and not is_going(entry.body):
            return ""
        plugin = text((state or {}).get("plugin"))
        try:
            named = self._registry.get(plugin) if plugin else None
            if plugin and named is None:
                return f"plugin {plugin}, which runs this task, is not enabled"
            if named is not None and not self._registry.serves(named, task.type):
                return f"plugin {plugin}, which its status names, does not serve the task type {task.type}"
            entry_now = named or self._registry.resolve(task.type)
            if state is not None and core_of(entry_now) != text(state.get(CORE)):
                return f"its status was not written by plugin {entry_now.id}, which runs such tasks"
        except PluginError as error:
            return str(error)
        return ""


def _to_whom(task: TaskContext) -> str:
    """Return who takes away what a task leaves, by the settings: without the plugin we can't."""
    if task.config.inject_finalizer:
        return f"with its finalizer: take {FINALIZER} off, then it can go"
    return "to you" if task.config.disable_inject_owner_references else "to the garbage collector"


def owned(task: TaskContext) -> TaskContext:
    """Return the same with the Task as the owner of its object."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": task.metadata.name,
        "uid": task.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return replace(task, metadata=replace(task.metadata, owner=owner))


def owning(make: MakeExecutor, tasks: ClusterStore, registry: Registry) -> MakeExecutor:
    """Return a maker of executors whose Tasks own their objects."""

    def made(
        store: str,
        wake: Callable[[Key], object],
        may_create: Callable[[], bool],
        unfinished: Callable[[], AsyncIterator[Unfinished]],
    ) -> AbstractAsyncContextManager[CorePlugin]:
        async def owners() -> AsyncIterator[Unfinished]:
            async for task, state in unfinished():
                yield Unfinished(owned(task), state)

        return _opened(make(store, wake, may_create, owners), tasks, registry)

    return made


@asynccontextmanager
async def _opened(
    executor: AbstractAsyncContextManager[CorePlugin], store: ClusterStore, registry: Registry
) -> AsyncIterator[CorePlugin]:
    releasing = asyncio.create_task(release_ended(store))
    try:
        async with executor as opened:
            yield OwningExecutor(opened, store, registry)
    finally:
        releasing.cancel()
        await asyncio.wait({releasing})


async def release_ended(store: ClusterStore) -> None:
    """Take the finalizer off tasks that have ended and still have it, until cancelled.

    It goes with the last write of a status; but a manager may be killed between the two, or be refused the second.
    """
    since = 0
    while True:
        try:
            await store.ready()
            async for changes in store.watch(since):
                for change in changes:
                    entry = store.cache.entry(change.uid)
                    if entry is not None and not entry.task.open and is_held(entry.body):
                        await store.release(entry)
                    since = change.revision
        except (BrokenStoreError, LeaseLostError):
            return  # the reconciler says so
        except StoreError as error:
            log.warning("finalizers of ended tasks can't be taken off now: %s", error)
            await asyncio.sleep(AGAIN)

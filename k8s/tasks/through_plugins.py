"""Which core plugin carries a task out: the manager of Kubernetes objects, that of web APIs, or one of its own.

An attempt stays with the core plugin that began it: its state names it, whatever the settings say meanwhile. A core
plugin other than the manager of objects is opened at its first attempt, once for the time of a lease. One that can't be
opened fails only what it would have begun; an attempt that it began before waits until it can. The end of one does not
wait for ever: after ten minutes it is let go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.tasks.plugins.core import WEB, CoreEntry, CorePlugin, CoreSetup, Handled, Key, Settles
from backoff_ctrl.k8s.tasks.plugins.manager.manager import PluginManager
from backoff_ctrl.k8s.tasks.plugins.marks import key_of_task
from backoff_ctrl.k8s.tasks.plugins.phases import NO_PLUGIN, PLUGIN_FAILED, aborted, failed, not_ready, system_failure
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry, PluginError, TaskContext
from backoff_ctrl.k8s.tasks.plugins.registry import Entry, Registry
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.services.webapi.ending import Ending, Patience

from .executing import MakeExecutor

log = logging.getLogger(__name__)

CORE: Final = "core"
"""The key of a state that names the core plugin. The manager of objects, which came first, writes none."""
OBJECTS: Final = ""
OPEN_AGAIN: Final = 5.0
"""Seconds before a core plugin that could not be opened is tried again."""
PATIENCE: Final = Patience()


class UnavailableError(Exception):
    """The core plugin can't be opened now; the message names it, and says why."""


class ThroughPlugins:
    """A core plugin that hands each attempt to the right one. An async context manager, for the time of one lease."""

    def __init__(self, registry: Registry, setup: CoreSetup, patience: Patience = PATIENCE) -> None:
        """Prepare; nothing is opened yet. ``patience``: how long the end of an attempt is tried."""
        self._registry = registry
        self._setup = setup
        self._patience = patience
        self._endings: dict[Key, Ending] = {}
        self._stack = AsyncExitStack()
        self._opened: dict[str, CorePlugin] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        setup = self._setup
        self._opened[OBJECTS] = await self._stack.enter_async_context(
            PluginManager(
                self._registry, setup.configuration, store=setup.store, wake=setup.wake, may_create=setup.may_create
            )
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what was opened."""
        await self._stack.aclose()

    # -- steps ---------

    async def handle(self, task: TaskContext, state: JSON | None) -> Handled:
        """Take the next step of an attempt."""
        try:
            core = self._core_of(task, state)
        except PluginError as error:
            return Handled(failed(NO_PLUGIN, str(error)), state)
        try:
            plugin = await self._open(core)
        except UnavailableError as error:
            if state is None:
                return Handled(system_failure(PLUGIN_FAILED, str(error)), state)
            return Handled(not_ready(f"{error}; it is tried again"), state)
        return self._marked(core, await plugin.handle(task, state))

    async def abort(self, task: TaskContext, state: JSON | None) -> Handled:
        """End an attempt for its user."""
        try:
            core = self._core_of(task, state)
        except PluginError:  # nothing has begun
            core = OBJECTS
        try:
            plugin = await self._open(core)
        except UnavailableError as error:
            if state is None:
                return Handled(aborted("aborted before anything was created"), state)
            if left := self._left(task, core, error):
                return Handled(aborted(f"aborted; {left}"), state, left)
            return Handled(not_ready(f"the abort continues once it can: {error}"), state)
        self._endings.pop(key_of_task(task.metadata), None)
        return self._marked(core, await plugin.abort(task, state))

    async def sweep(self, task: TaskContext, state: JSON | None) -> None:
        """End what has appeared after the abort of an attempt."""
        await (await self._open(self._core_of(task, state))).sweep(task, state)

    async def finalize(self, task: TaskContext, state: JSON | None) -> str | None:
        """Release what an ended attempt still holds."""
        try:
            core = self._core_of(task, state)
        except PluginError:  # nothing has begun
            return None
        if core != OBJECTS and state is None:
            return None  # it could not be opened, so nothing has begun
        try:
            plugin = await self._open(core)
        except UnavailableError as error:
            if left := self._left(task, core, error):
                return left
            raise
        self._endings.pop(key_of_task(task.metadata), None)
        return await plugin.finalize(task, state)

    async def settle(self, seconds: float) -> None:
        """Begin nothing more that can't be repeated, and wait until its outcomes are stored, at most so long."""
        settling = (each.settle(seconds) for each in self._opened.values() if isinstance(each, Settles))
        await asyncio.gather(*settling, return_exceptions=True)

    def _left(self, task: TaskContext, core: str, error: UnavailableError) -> str:
        """Return what may still run of an attempt that can't be ended, once its end is given up."""
        key = key_of_task(task.metadata)
        if key not in self._endings:
            self._endings[key] = Ending(self._patience, 0.0, asyncio.get_running_loop().time)
        ending = self._endings[key]
        ending.failed(error)
        if not ending.is_given_up:
            return ""
        del self._endings[key]
        return f"what plugin {core} has begun may still run: ending it failed {ending.tries} times ({ending.said})"

    # -- which ---------

    def _core_of(self, task: TaskContext, state: JSON | None) -> str:
        """Return the core plugin that began the attempt, else that of its type. Raises ``PluginError``."""
        if state is not None:
            return str(state.get(CORE, OBJECTS))
        return core_of(self._registry.resolve(task.type))

    @staticmethod
    def _marked(core: str, handled: Handled) -> Handled:
        """Return the same, with the core plugin in its state."""
        if core == OBJECTS or handled.state is None:
            return handled
        return replace(handled, state={"plugin": core, **handled.state, CORE: core})

    async def _open(self, core: str) -> CorePlugin:
        """Return a core plugin; open it the first time. Raises ``UnavailableError``."""
        found = self._opened.get(core)
        if found is not None:
            return found
        async with self._locks.setdefault(core, asyncio.Lock()):
            return self._opened.get(core) or await self._opened_now(core)

    async def _opened_now(self, core: str) -> CorePlugin:
        now = asyncio.get_running_loop().time()
        again, said = self._failed.get(core, (0.0, ""))
        if now < again:
            raise UnavailableError(said)
        try:
            opened = await self._stack.enter_async_context(self._load(core)(self._setup))
        except UnavailableError:
            raise
        except Exception as error:
            said = f"plugin {core} can't be loaded: {type(error).__name__}: {error}"
            self._failed[core] = now + OPEN_AGAIN, said
            log.exception("plugin %s can't be loaded", core)
            raise UnavailableError(said) from error
        self._opened[core] = opened
        return opened

    def _load(self, core: str) -> Callable[[CoreSetup], AbstractAsyncContextManager[CorePlugin]]:
        if core == WEB:
            from backoff_ctrl.k8s.tasks.services.webapi.manager import WebManager  # noqa: PLC0415 - at the first such task

            return lambda setup: WebManager(self._web_entry, setup, patience=self._patience)
        entry = self._registry.get(core)
        if not isinstance(entry, CoreEntry):
            raise UnavailableError(f"plugin {core}, which runs this task, is not enabled: enable it")
        return entry.load

    def _web_entry(self, plugin: str, task_type: str) -> WebPluginEntry:
        """Return the entry of a web API plugin, by its id if it has one. Raises ``PluginError``."""
        entry = self._registry.get(plugin) if plugin else self._registry.resolve(task_type)
        if not isinstance(entry, WebPluginEntry):
            raise PluginError(f"plugin {plugin or task_type}, which runs this task, is not enabled: enable it")
        if not self._registry.serves(entry, task_type):  # who may write a status may name another
            raise PluginError(f"plugin {plugin} does not serve the task type {task_type}")
        return entry


def core_of(entry: Entry) -> str:
    """Return the core plugin that carries the tasks of a plugin out."""
    if isinstance(entry, PluginEntry):
        return OBJECTS
    return WEB if isinstance(entry, WebPluginEntry) else entry.id


def through_plugins(
    registry: Registry,
    configuration: Any,
    settings: Callable[[str], Mapping[str, Any]] = lambda _: {},
    patience: Patience = PATIENCE,
) -> MakeExecutor:
    """Return a maker of executors for a cluster: ``configuration`` is one of any official client.

    ``settings`` returns a plugin's present section ``plugins.ID``, as it was written.
    """
    return lambda store, wake, may_create, unfinished: ThroughPlugins(
        registry, CoreSetup(store, wake, may_create, unfinished, configuration, settings), patience
    )

"""``PluginManager``: ``handle``, ``abort`` and ``finalize`` are idempotent functions of a task's stored state.

A step is quick: a create that waits for room stays in the background, and ``wake`` is called when there is news.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.gate.sharing.process import Share
from backoff_ctrl.k8s.kube.answers.objects import Object
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.cluster.objects import ClusterError, Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.tasks.plugins.core import Handled
from backoff_ctrl.k8s.tasks.plugins.events import EventBook
from backoff_ctrl.k8s.tasks.plugins.following import Monitor, Watches
from backoff_ctrl.k8s.tasks.plugins.marks import Key, is_label_value, key_of, key_of_task
from backoff_ctrl.k8s.tasks.plugins.phases import (
    CORRUPTED_STATE,
    NO_PLUGIN,
    PLUGIN_FAILED,
    PhaseInfo,
    failed,
    not_ready,
    system_failure,
)
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry, PluginError, TaskContext, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.registry import Entry, Registry, of_objects

from .checking import Checker
from .ending import NOTHING_TO_ABORT, Ender
from .figures import Figures, ManagerCounts
from .launching import Launcher
from .outcomes import NOT_BUILT
from .plugin_calls import PluginBugError, PluginCalls
from .state import Stage, State, StateError, damaged, read_state

__all__ = ["ClusterError", "Handled", "PluginManager"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class PluginManager:
    """Runs the objects of tasks. An async context manager; everything happens on the event loop that entered it."""

    def __init__(
        self,
        registry: Registry,
        configuration: Any,
        *,
        store: str,
        wake: Callable[[Key], object] = lambda _: None,
        may_create: Callable[[], bool] = lambda: True,
        gate: AsyncGate | None = None,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        """Prepare; no connection is opened yet.

        ``configuration`` is one of any official client. ``store`` is the store's id, as the value of a label: it bounds
        what is watched. ``wake`` is called with a task's (uid, attempt) when a step would find news. ``may_create`` is
        asked right before each create is sent: False while another process may manage these tasks. Without a ``gate``
        creates go through the ledger that this process shares for the server.
        """
        if not is_label_value(store):
            raise ValueError(f"store is the value of a label: letters, digits, '-', '_' and '.', not {store!r}")
        self.counts = ManagerCounts()
        self.registry = registry
        self.store = store
        self._configuration = configuration
        self._wake = wake
        self._may_create = may_create
        self._given_gate = gate
        self._now = now

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _open(self) -> None:
        session = await self._stack.enter_async_context(ClusterSession(self._configuration))
        share = Share(self._configuration, self._given_gate)
        self._stack.callback(share.release)
        mode = settings().mode or None
        self.gate = self._given_gate or AsyncGate(ledger=share.ledger, mode=mode)
        self._stack.push_async_callback(self.gate.drain)
        objects = Objects(session, self._may_create)
        self.monitor = Monitor(self._is_terminal)
        events = EventBook(self._wake)
        self.watches = Watches(session, self.store, self._changed, self._wake, events)
        self._stack.push_async_callback(self.watches.aclose)
        host, given = self._configuration.host, (objects, self.watches, self.counts)
        self.launcher = Launcher(self.gate, host, self.store, self._wake, *given)
        self._stack.push_async_callback(self.launcher.aclose)
        figures = Figures(self.counts, self.monitor, self.watches, self.launcher)
        self._stack.callback(share.ledger.subscribe(figures))
        self._checker = Checker(self.launcher, self._now, *given, self._wake)
        self._ender = Ender(self.launcher, *given)
        self._templates = PodTemplates(objects, self._now)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave every line, wait for the answers to sent creates, and close. Waiting creates are requested later."""
        await self._stack.aclose()

    # -- steps ---------

    async def handle(self, task: TaskContext, state: JSON | None) -> Handled:
        """Take the next step of an attempt. Never waits for quota, and never raises for errors of tasks or clusters."""
        try:
            known, entry = self._read(task, state)
        except StateError as error:
            return Handled(system_failure(CORRUPTED_STATE, str(error), retryable=False), state)
        if known.over:
            return Handled(known.info(), state)
        try:
            plugin = self._plugin(task, known, entry)
        except PluginError as error:
            if known.stage is Stage.STARTED:  # its object lives on while the plugin is missing
                return self._said(known, not_ready(str(error)), "")
            return self._said(known, failed(NO_PLUGIN, str(error)), "")
        try:
            known, info = await self._step(task, plugin, known)
        except PluginBugError as error:
            info = system_failure(PLUGIN_FAILED, str(error))
        except TaskSpecError as error:
            info = failed(NOT_BUILT, f"no object can be built of the task: {error}")
        except ClusterError as error:
            info = known.holding(f"{error}; it is retried")
        return self._said(known, info, plugin.id)

    async def abort(self, task: TaskContext, state: JSON | None) -> Handled:
        """End an attempt for its user. No object of it is created after this returns ``Aborted``.

        Another phase means that the API server has not done it yet: call it again.
        """
        try:
            known, entry = self._read(task, state)
        except StateError:
            known, entry = State(), None  # an object with the task's labels is found all the same
        if known.over and not (known.phase.is_failure and known.cleanup):
            return Handled(known.info(), state)
        try:
            plugin = self._plugin(task, known, entry)
        except PluginError as error:
            if known.stage is Stage.STARTED:
                return self._said(known, not_ready(str(error)), "")
            return self._said(known, NOTHING_TO_ABORT, "")
        try:
            known, info = await self._ender.abort(task, plugin, known)
        except ClusterError as error:
            info = known.holding(f"the abort continues: {error}")
        except PluginBugError as error:
            info = known.holding(f"the abort continues once the plugin is fixed: {error}")
        return self._said(known, info, plugin.id)

    async def sweep(self, task: TaskContext, state: JSON | None) -> None:
        """End an object that has appeared after the abort of its attempt: its create was never answered.

        ``state`` is what the abort returned; its ``doubt`` says whether that may happen. Raises ``ClusterError`` if the
        API server did not do it: call it again.
        """
        known, entry = self._read(task, state)
        await self._ender.sweep(task, self._plugin(task, known, entry), known)

    async def finalize(self, task: TaskContext, state: JSON | None) -> None:
        """Clean up after an attempt that has ended: our finalizer, and the object where that is wanted.

        Raises ``ClusterError`` if the API server did not do it: call it again.
        """
        try:
            known, entry = self._read(task, state)
        except StateError:
            known, entry = State(), None
        try:
            plugin = self._plugin(task, known, entry)
        except PluginError:
            if known.stage is Stage.STARTED:
                raise
            return
        await self._ender.finalize(task, plugin, known)
        self._checker.forget(key_of_task(task.metadata))

    # -- its own ---------

    async def _step(self, task: TaskContext, plugin: PluginCalls, known: State) -> tuple[State, PhaseInfo]:
        key = key_of_task(task.metadata)
        if known.stage is not Stage.STARTED:
            task = await self._templates.complete(task)
            known, info = self.launcher.step(key, task, plugin, known, self._now())
            if known.stage is not Stage.STARTED:
                return known, info
        try:
            return await self._checker.step(key, task, plugin, known)
        except PluginBugError as error:
            return self._checker.failed(key, known, error)
        except ClusterError as error:
            return known, known.holding(f"{error}; it is retried")

    def _read(self, task: TaskContext, state: JSON | None) -> tuple[State, Entry | None]:
        """Read a stored state, and find the plugin that it names.

        Raises ``StateError`` if that can't have made an object of this task.

        A user who may write the status of a Task must not have objects of other kinds read or deleted for him.
        """
        known = read_state(state, task.metadata.namespace)
        entry = self.registry.get(known.plugin) if known.plugin else None
        if isinstance(entry, PluginEntry):
            kind, made = entry.resource_to_watch, known.made
            if not self.registry.serves(entry, task.type):
                raise damaged("plugin", state or {})
            if made is not None and (made.api_version, made.kind) != (kind.api_version, kind.kind):
                raise damaged("object", state or {})
        return known, entry

    def _plugin(self, task: TaskContext, known: State, entry: Entry | None) -> PluginCalls:
        """Return the plugin that built the task's object, else the one that its type resolves to."""
        if entry is None and known.plugin:
            raise PluginError(f"plugin {known.plugin}, which built this task's object, is not enabled: enable it")
        entry = entry or self.registry.resolve(task.type)
        return PluginCalls(of_objects(entry), self.counts)

    def _said(self, known: State, info: PhaseInfo, plugin: str) -> Handled:
        """Give the phase a version that is new if it is news, and store it in the state."""
        info = known.versioned(info)
        if info.phase.is_terminal and known.made is not None:
            self.launcher.release(known.made.uid)
        if info.error is not None and known.ended is None:
            self.counts.failures[plugin, info.phase.title, info.error.code] += 1
        return Handled(info, known.reporting(info).json())

    def _is_terminal(self, kind: Kind, found: Object) -> bool:
        entry = self.registry.of_kind(kind)
        try:
            return entry is not None and PluginCalls(entry, self.counts).is_terminal(found.body)
        except PluginBugError:
            return False

    def _changed(self, kind: Kind, found: Object, gone: bool) -> None:
        key = key_of(found)
        if key is None:
            return
        self.monitor.changed(kind, found, gone)
        if gone:
            self.launcher.release(found.uid)
        else:
            self.launcher.seen(key, kind, found)
        self._wake(key)


POD_TEMPLATES: Final = Kind("v1", "PodTemplate", "podtemplates")
_KEPT_MAX: Final = 1000


class PodTemplates:
    """Templates by namespace and name; each is cached for ``default-pod-template-resync``."""

    def __init__(self, objects: Objects, now: Callable[[], datetime]) -> None:
        self._objects, self._now = objects, now
        self._home = settings().pod_namespace  # its template is used where a namespace has no template
        self._kept: dict[tuple[str, str], tuple[datetime, JSON | None]] = {}

    async def complete(self, task: TaskContext) -> TaskContext:
        """Return the task with its PodTemplate, if the settings name one. Raises ``ClusterError``."""
        name = task.config.default_pod_template_name
        if not name or task.pod_template is not None:
            return task
        found = await self._template(task, task.metadata.namespace, name)
        if found is None and self._home:
            found = await self._template(task, self._home, name)
        return replace(task, pod_template=found)

    async def _template(self, task: TaskContext, namespace: str, name: str) -> JSON | None:
        kept = self._kept.get((namespace, name))
        if kept and self._now() - kept[0] < task.config.default_pod_template_resync:
            return kept[1]
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        found = await self._objects.read(POD_TEMPLATES, namespace, name)
        self._kept[namespace, name] = (self._now(), found)
        return found

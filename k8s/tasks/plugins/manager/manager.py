"""``PluginManager``: ``handle``, ``abort`` and ``finalize`` are idempotent functions of a task's stored state.

A step is quick: a create that waits for room stays in the background, and ``wake`` is called when there is news.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

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
from backoff_ctrl.k8s.tasks.plugins.phases import NO_PLUGIN, PLUGIN_FAILED, PhaseInfo, failed, not_ready, system_failure
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginBugError, PluginEntry, PluginError, TaskContext, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.registry import Registry, of_objects
from backoff_ctrl.k8s.tasks.plugins.reported import Manager

from .checking import Checker
from .ending import NOTHING_TO_ABORT, Ender
from .figures import Figures, ManagerCounts
from .launching import Launcher
from .outcomes import NOT_BUILT
from .plugin_calls import PluginCalls
from .state import Stage, State, damaged, read_state

__all__ = ["ClusterError", "Handled", "PluginManager"]


class PluginManager(Manager[State, PluginCalls]):
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
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
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
        self._failures = self.counts.failures
        self.registry = registry
        self.store = store
        self._configuration = configuration
        self._wake = wake
        self._may_create = may_create
        self._given_gate = gate
        self._now = now

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

    # -- steps ---------

    async def abort(self, task: TaskContext, state: JSON | None) -> Handled:
        """End an attempt for its user. No object of it is created after this returns ``Aborted``.

        Another phase means that the API server has not done it yet: call it again.
        """
        known = self._read_anyway(task, state)  # an object with the task's labels is found all the same
        if known.over and not (known.phase.is_failure and known.cleanup):
            return Handled(known.info(), state)
        try:
            plugin = await self._worker(task, known)
        except PluginError as error:
            info = not_ready(str(error)) if known.stage is Stage.STARTED else NOTHING_TO_ABORT
            return self._said(task, known, info)
        try:
            known, info = await self._ender.abort(task, plugin, known)
        except ClusterError as error:
            info = known.holding(f"the abort continues: {error}")
        except PluginBugError as error:
            info = known.holding(f"the abort continues once the plugin is fixed: {error}")
        return self._said(task, known, info, plugin.id)

    async def sweep(self, task: TaskContext, state: JSON | None) -> None:
        """End an object that has appeared after the abort of its attempt: its create was never answered.

        ``state`` is what the abort returned; its ``doubt`` says whether that may happen. Raises ``ClusterError`` if the
        API server did not do it: call it again.
        """
        known = self._read(task, state)
        await self._ender.sweep(task, await self._worker(task, known), known)

    async def finalize(self, task: TaskContext, state: JSON | None) -> None:
        """Clean up after an attempt that has ended: our finalizer, and the object where that is wanted.

        Raises ``ClusterError`` if the API server did not do it: call it again.
        """
        known = self._read_anyway(task, state)
        try:
            plugin = await self._worker(task, known)
        except PluginError:
            if known.stage is Stage.STARTED:
                raise
            return
        await self._ender.finalize(task, plugin, known)
        self._checker.forget(key_of_task(task.metadata))

    # -- its own ---------

    def _read(self, task: TaskContext, state: JSON | None) -> State:
        """Read a stored state. Raises ``StateError`` also if it can't have made an object of this task.

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
        return known

    async def _worker(self, task: TaskContext, known: State) -> PluginCalls:
        """Return the plugin that built the task's object, else the one that its type resolves to."""
        entry = self.registry.get(known.plugin) if known.plugin else self.registry.resolve(task.type)
        if entry is None:
            raise PluginError(f"plugin {known.plugin}, which built this task's object, is not enabled: enable it")
        return PluginCalls(of_objects(entry), self.counts)

    async def _step(self, task: TaskContext, worker: PluginCalls, known: State) -> tuple[State, PhaseInfo]:
        key = key_of_task(task.metadata)
        try:
            if known.stage is not Stage.STARTED:
                task = await self._templates.complete(task)
                known, info = self.launcher.step(key, task, worker, known, self._now())
                if known.stage is not Stage.STARTED:
                    return known, info
            return await self._checker.step(key, task, worker, known)
        except ClusterError as error:
            return known, known.holding(f"{error}; it is retried")
        except PluginBugError as error:
            if known.stage is not Stage.STARTED:
                raise
            return self._checker.failed(key, known, error)

    def _meaning(self, known: State, error: Exception) -> PhaseInfo:
        if isinstance(error, PluginBugError):
            return system_failure(PLUGIN_FAILED, str(error))
        if isinstance(error, TaskSpecError):
            return failed(NOT_BUILT, f"no object can be built of the task: {error}")
        if known.stage is Stage.STARTED:  # its object lives on while the plugin is missing
            return not_ready(str(error))
        return failed(NO_PLUGIN, str(error))

    def _ended(self, task: TaskContext, known: State, info: PhaseInfo) -> State:  # noqa: ARG002
        if known.made is not None:
            self.launcher.release(known.made.uid)
        return known

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

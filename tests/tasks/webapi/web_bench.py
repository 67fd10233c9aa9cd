"""A web manager with one plugin, driven as the reconciler drives it: a state is kept before the next step."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.core import CorePlugin, CoreSetup, Handled, Key, Unfinished
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskMetadata
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.services.webapi.manager import WebManager
from backoff_ctrl.k8s.tasks.services.webapi.state import NEXT, Stage
from tests.kit.patience import PATIENCE

from .jobs_service import JobsPlugin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kubernetes.client import Configuration

JSON = dict[str, Any]


def context(
    uid: str = "a", attempt: int = 0, *, namespace: str = "team", project: str = "", **spec: Any
) -> TaskContext:
    """A task of the type job. ``custom`` is what the plugin is asked for."""
    about = TaskMetadata(namespace, f"task-{uid}", uid, attempt, f"task-{uid}-{attempt}", project=project,
                         priority=spec.get("priority", 0))  # fmt: skip
    return TaskContext(about, "job", {"type": "job", **spec}, K8sPluginConfig())


class WebBench:
    """What the store and the reconciler are to a core plugin, in memory."""

    def __init__(self, plugin: CorePlugin, store: dict[Key, tuple[TaskContext, JSON]]) -> None:
        self.plugin = plugin
        self.store = store
        self.phases: dict[Key, list[str]] = defaultdict(list)

    async def step(self, task: TaskContext) -> Handled:
        """Make one step, and store its state."""
        key = (task.metadata.uid, task.metadata.attempt)
        _, state = self.store.get(key, (task, None))
        handled = await self.plugin.handle(task, state)
        self._store(key, task, handled)
        return handled

    async def abort(self, task: TaskContext, seconds: float = PATIENCE) -> Handled:
        """Abort until it is done."""
        key = (task.metadata.uid, task.metadata.attempt)
        async with asyncio.timeout(seconds):
            while True:
                handled = await self.plugin.abort(task, self.store.get(key, (task, None))[1])
                self._store(key, task, handled)
                if handled.info.phase.is_terminal:
                    return handled
                await self.news(key)

    async def until(self, task: TaskContext, holds: Callable[[Handled], bool], seconds: float = PATIENCE) -> Handled:
        """Make steps, one each time there is news, until one says this."""
        key = (task.metadata.uid, task.metadata.attempt)
        async with asyncio.timeout(seconds):
            while not holds(handled := await self.step(task)):
                await self.news(key)
        return handled

    async def end(self, task: TaskContext, seconds: float = PATIENCE) -> Handled:
        """Make steps until the attempt is over, and finalize it."""
        handled = await self.until(task, lambda each: each.info.phase.is_terminal, seconds)
        await self.plugin.finalize(task, handled.state)
        return handled

    woken: dict[Key, asyncio.Event]

    async def news(self, key: Key) -> None:
        event = self.woken.setdefault(key, asyncio.Event())
        await event.wait()
        event.clear()

    def _store(self, key: Key, task: TaskContext, handled: Handled) -> None:
        if handled.state is not None:
            before = Stage(self.store[key][1]["stage"]) if key in self.store else Stage.NOT_STARTED
            after = Stage(handled.state["stage"])
            assert after is before or after in NEXT[before].values(), f"{before} leads to no {after}"
            self.store[key] = task, {**handled.state, "core": "webapi"}
        said = self.phases[key]
        if not said or said[-1] != handled.info.phase.title:
            said.append(handled.info.phase.title)


@asynccontextmanager
async def web_bench(
    url: str,
    plugin: type[JobsPlugin] = JobsPlugin,
    *,
    store: dict[Key, tuple[TaskContext, JSON]] | None = None,
    section: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    loader: Callable[..., Any] | None = None,
    configuration: Configuration | None = None,
    may_create: Callable[[], bool] = lambda: True,
    own_keys: frozenset[str] = frozenset(),
    entry_now: Callable[[], WebPluginEntry] | None = None,
    **more: Any,
) -> AsyncIterator[WebBench]:
    """Run a manager of one plugin, ``jobs``, of the service at ``url``; or of what ``entry_now`` returns each time.

    ``more`` is for the manager.
    """
    kept = {} if store is None else store
    load = loader or (lambda setup: plugin(setup, url))
    entry = WebPluginEntry("jobs", ("job",), load, own_keys=own_keys)
    woken: dict[Key, asyncio.Event] = {}
    settings = section if callable(section) else (lambda: section or {})
    present = settings()

    async def unfinished() -> AsyncIterator[Unfinished]:
        for task, state in list(kept.values()):
            yield Unfinished(task, state)

    setup = CoreSetup(
        "store", lambda key: woken.setdefault(key, asyncio.Event()).set(), may_create, unfinished, configuration,
        (lambda _: settings()) if callable(section) else (lambda _: present),
    )  # fmt: skip
    async with WebManager(lambda _plugin, _type: entry_now() if entry_now else entry, setup, **more) as manager:
        bench = WebBench(manager, kept)
        bench.woken = woken
        yield bench

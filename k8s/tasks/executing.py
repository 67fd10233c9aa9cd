"""What carries attempts out, as the reconciler sees it, and the plugin manager as the one executor that there is.

An executor is made for the time of one lease. It is told of a task by a ``TaskContext``, and keeps nothing that the
state it returned does not have: after a restart it is called again with that state.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

import aiohttp

from backoff_ctrl.k8s.cluster.session import ClusterSession
from backoff_ctrl.k8s.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.plugins.manager.manager import PluginManager
from backoff_ctrl.k8s.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.plugins.protocol import PluginEntry, PluginError, TaskContext, TaskMetadata, TaskSpecError
from backoff_ctrl.k8s.plugins.registry import Registry

from .store import Stored, StoreError, Wish

_WAITS = "the API server at {} can't be reached: tasks wait until it can"
IDENTITY_SECONDS = 10.0
"""How long the question which cluster it is may take."""
Key: TypeAlias = tuple[str, int]
"""A task's uid and the number of the attempt: one object each."""


class Handled(Protocol):
    """What became of an attempt: its phase, and what has to be given back at the next step."""

    @property
    def info(self) -> PhaseInfo:
        """Its phase, with the reason, the message and the code that the task's status shows."""

    @property
    def state(self) -> dict[str, Any] | None:
        """What the next step is given."""


class Executor(Protocol):
    """Carries attempts out. Each method may be called again with the same state, after a restart too."""

    async def handle(self, task: TaskContext, state: dict[str, Any] | None) -> Handled:
        """Do the next thing for an attempt, and say how it is. Never waits for quota."""

    async def abort(self, task: TaskContext, state: dict[str, Any] | None) -> Handled:
        """End an attempt."""

    async def sweep(self, task: TaskContext, state: dict[str, Any] | None) -> None:
        """End what has appeared behind the abort of an attempt; ``state`` is what the abort returned."""

    async def finalize(self, task: TaskContext, state: dict[str, Any] | None) -> None:
        """Let go of what an attempt that has ended still holds."""


class MakeExecutor(Protocol):
    """Makes what carries attempts out, for the time of one lease."""

    def __call__(
        self, store: str, wake: Callable[[Key], object], may_create: Callable[[], bool]
    ) -> AbstractAsyncContextManager[Executor]:
        """``store`` is the id of the store; ``wake`` is to be called when there is news of an attempt.

        ``may_create`` is asked right before each create is sent: another manager may have the store now.
        """


def context_of(task: Stored, store: str, config: K8sPluginConfig) -> TaskContext:
    """Return what the plugin manager is told of a task's present attempt."""
    spec: Mapping[str, Any] = task.spec
    attempt = task.status.attempt
    metadata = TaskMetadata(
        namespace=task.namespace,
        name=task.name,
        uid=task.uid,
        attempt=attempt,
        generated_name=f"{task.name}-{task.uid[:8]}-{attempt}",
        store=store,
        labels=task.metadata.get("labels", {}),
        annotations=task.metadata.get("annotations", {}),
        service_account=spec.get("serviceAccount", ""),
        interruptible=spec.get("interruptible", False),
        project=spec.get("project", ""),
        domain=spec.get("domain", ""),
        priority=spec.get("priority", 0),
    )
    return TaskContext(metadata, spec["type"], spec, config)


def through_plugins(registry: Registry, configuration: Any) -> MakeExecutor:
    """Return what makes a plugin manager for a cluster: ``configuration`` is one of any official client."""
    return lambda store, wake, may_create: PluginManager(
        registry, configuration, store=store, wake=wake, may_create=may_create
    )


def check(wish: Wish, registry: Registry, config: K8sPluginConfig) -> PluginEntry:
    """Return the plugin of a task, after it has tried to build the object. Raises ``TaskSpecError``.

    Nothing of it is kept: what can't be built is refused while its user is still looking.
    """
    try:
        entry = registry.resolve(wish.spec["type"])
    except PluginError as error:
        raise TaskSpecError("spec.type", str(error)) from None
    nobody = "00000000-0000-0000-0000-000000000000"
    metadata = TaskMetadata(wish.namespace, wish.name, nobody, 0, f"{wish.name}-00000000-0")
    entry.plugin.build_resource(TaskContext(metadata, wish.spec["type"], wish.spec, config))
    return entry


def cluster_of(configuration: Any) -> Callable[[], Awaitable[str]]:
    """Return what tells a cluster from any other: the uid of kube-system if that may be read, else the address.

    It is asked for while tasks are carried out. Raises ``StoreError`` while the API server does not say: taken for
    another cluster, it would be refused its own tasks.
    """

    async def ask() -> str:
        try:
            async with ClusterSession(configuration) as session:
                answer = await session.request("GET", "/api/v1/namespaces/kube-system", timeout=IDENTITY_SECONDS)
                async with answer:
                    status, body = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise StoreError(f"{_WAITS.format(configuration.host)} ({str(error) or type(error).__name__})") from None
        if status == 429 or status >= 500:
            raise StoreError(f"{_WAITS.format(configuration.host)} (it answers {status})")
        try:
            return f"kube-system {json.loads(body)['metadata']['uid']}"
        except (ValueError, KeyError, TypeError):  # not to be read by this account, or no such namespace
            return str(configuration.host)

    return ask

"""The plugin manager as what carries tasks out: made for a lease, with the settings as they are now."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from backoff_ctrl.k8s.cluster.session import ClusterSession
from backoff_ctrl.k8s.plugins.manager.manager import PluginManager
from backoff_ctrl.k8s.plugins.protocol import PluginError, TaskContext, TaskMetadata, TaskSpecError

from .store import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from backoff_ctrl.k8s.plugins.config import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import PluginEntry
    from backoff_ctrl.k8s.plugins.registry import Registry

    from .executing import Key
    from .managing import MakeExecutor
    from .store import Wish

_WAITS = "the API server at {} can't be reached: tasks wait until it can"
IDENTITY_SECONDS = 10.0
"""How long the question which cluster it is may take."""


def through_plugins(registry: Registry, configuration: Any) -> MakeExecutor:
    """Return what makes a plugin manager for a cluster: ``configuration`` is one of any official client."""

    @asynccontextmanager
    async def make(
        store: str, wake: Callable[[Key], object], may_create: Callable[[], bool]
    ) -> AsyncIterator[PluginManager]:
        async with PluginManager(registry, configuration, store=store, wake=wake, may_create=may_create) as manager:
            yield manager

    return make


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

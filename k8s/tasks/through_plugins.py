"""The plugin manager as what carries tasks out: made for a lease, with the settings as they are now."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from backoff_ctrl.k8s.cluster.session import ClusterSession
from backoff_ctrl.k8s.plugins.manager.manager import PluginManager
from backoff_ctrl.k8s.plugins.protocol import PluginError, TaskContext, TaskMetadata, TaskSpecError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import PluginEntry
    from backoff_ctrl.k8s.plugins.registry import Registry

    from .executing import Key
    from .managing import MakeExecutor
    from .store import Wish

IDENTITY_SECONDS = 10.0
"""How long the question which cluster it is may take."""


def through_plugins(registry: Registry, configuration: Any) -> MakeExecutor:
    """Return what makes a plugin manager for a cluster: ``configuration`` is one of any official client."""

    @asynccontextmanager
    async def make(store: str, wake: Callable[[Key], object]) -> AsyncIterator[PluginManager]:
        async with PluginManager(registry, configuration, store=store, wake=wake) as manager:
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


async def cluster_of(configuration: Any) -> str:
    """Return what tells a cluster from any other: the uid of kube-system if that may be read, else the address."""
    try:
        async with ClusterSession(configuration) as session:
            answer = await session.request("GET", "/api/v1/namespaces/kube-system", timeout=IDENTITY_SECONDS)
            async with answer:
                found = json.loads(await answer.read()) if answer.status == 200 else {}
                return f"kube-system {found['metadata']['uid']}"
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError):
        return str(configuration.host)

"""The kind Task on the sandbox and on a real Kubernetes, and stores of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kubernetes.client import Configuration

from backoff_ctrl.k8s.tasks.cluster.owning import owning
from backoff_ctrl.k8s.tasks.cluster.schema import NAME, definition
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from backoff_ctrl.k8s.tasks.managing import carry_out
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins
from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.talking import Api


def configured(server: Server, user: str = "tester") -> Configuration:
    """Return the configuration of a client for one of the server's users."""
    configuration = Configuration(host=server.url)
    configuration.api_key = {"authorization": f"Bearer {server.token(user)}"}
    if server.certificate:
        configuration.ssl_ca_cert = str(server.certificate)
    return configuration


@pytest.fixture
async def kind(api: Api) -> Api:
    """The server, with the kind Task."""
    reply = await api.post(DEFINITIONS, definition())
    assert reply.status in {201, 409}, reply.text
    await api.until(f"{DEFINITIONS}/{NAME}", is_established)
    await api.until("/apis/backoff-ctrl.dev/v1alpha1/tasks", lambda found: "items" in found)
    return api


@pytest.fixture
async def stores(kind: Api, namespace: str) -> AsyncIterator[tuple[ClusterStore, ClusterStore]]:
    """Two stores of the test's namespace, as two processes have them."""
    async with (
        ClusterStore(configured(kind.server), [namespace]) as here,
        ClusterStore(configured(kind.server), [namespace]) as there,
    ):
        yield here, there


@asynccontextmanager
async def managed(server: Server, namespace: str, registry: Registry, **settings: Any) -> AsyncIterator[ClusterStore]:
    """Carry the tasks of a namespace out until the end of the block, with these settings of ``plugins.k8s``."""
    configuration, config = configured(server), K8sPluginConfig.model_validate(settings)
    async with ClusterStore(configuration, [namespace]) as store:
        make = owning(through_plugins(registry, configuration), store, registry)
        began = asyncio.get_running_loop().create_future()
        work = asyncio.create_task(carry_out(store, make, lambda: config, begun=began.set_result))
        try:
            await asyncio.wait({work, began}, return_when=asyncio.FIRST_COMPLETED)
            yield store
        finally:
            work.cancel()
            await asyncio.wait({work})


def path(namespace: str, name: str = "") -> str:
    return f"/apis/backoff-ctrl.dev/v1alpha1/namespaces/{namespace}/tasks" + (f"/{name}" if name else "")


def task(name: str, **spec: Any) -> dict[str, Any]:
    """A Task of one pod, as it is applied."""
    spec = {"type": "container", "container": {"image": "busybox"}, **spec}
    return {"apiVersion": "backoff-ctrl.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}, "spec": spec}

"""The kind Task on the sandbox and on a real Kubernetes, and stores of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kubernetes.client import Configuration

from backoff_ctrl.k8s.tasks.cluster.schema import NAME, definition
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.faults.storm import hung_up
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
    await hung_up()

"""Shared by the tests of ``GatedApiClient``: a pod, an untyped client, a full quota, and a signal for a waiting one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from kubernetes import client

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


def pod(name: str | None = None, cpu: str | None = None) -> Any:
    """A pod's manifest; without a name, one with ``generateName``."""
    resources = {} if cpu is None else {"resources": {"requests": {"cpu": cpu}}}
    metadata = {"generateName": "p-"} if name is None else {"name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "image": "i", **resources}]},
    }


def core_of(api: GatedApiClient) -> Any:
    """The generated methods of a client, untyped because the tests pass plain dictionaries."""
    return client.CoreV1Api(api)


class Met(threading.Event):
    """An ``on_wait`` callback as an event: set when the create waits in line."""

    def __call__(self, explanation: object) -> None:
        """Set the event."""
        self.set()


def fill(sandbox: BackgroundSandbox, core: Any, pods: int = 1) -> str:
    """Create a quota of ``pods`` pods and fill it; return the name of one pod."""
    sandbox.create_quota("team", "q", {"pods": str(pods)})
    names = [core.create_namespaced_pod("team", pod()).metadata.name for _ in range(pods)]
    return str(names[0])

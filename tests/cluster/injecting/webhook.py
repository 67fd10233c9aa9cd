"""The webhook as a process that a real API server calls, and a cluster whose pods have service accounts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import JSON, Api
from tests.kit.patience import PATIENCE

NAME = "backoff-ctrl-inject"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def configuration(namespace: str, port: int, path: str = "/inject") -> JSON:
    """Return the webhook's configuration as the chart writes it: without whom to trust."""
    service = {"namespace": namespace, "name": NAME, "port": port, "path": path}
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}
    webhook = {
        "name": "inject.backoff-ctrl.dev",
        "clientConfig": {"service": service},
        "rules": [rule],
        "objectSelector": {"matchLabels": {"backoff-ctrl.dev/inject": "true"}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 2,
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
    }
    return {"metadata": {"name": NAME}, "webhooks": [webhook]}


def service() -> JSON:
    """Return a Service that leads to this machine: no proxy of a node routes addresses of the cluster here."""
    return {"metadata": {"name": NAME}, "spec": {"type": "ExternalName", "externalName": "localhost"}}


def pod(name: str, *, labelled: bool = True, **spec: Any) -> JSON:
    """Return a manifest as its creator writes it: no token is mounted yet."""
    labels = {"backoff-ctrl.dev/inject": "true"} if labelled else {}
    container = {"name": "main", "image": "i", **spec.pop("container", {})}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container], **spec}}


@contextmanager
def webhook(server: Server, namespace: str, *options: str) -> Iterator[int]:
    """Run ``backoff-ctrl inject``; yield its port once it listens."""
    command = [
        sys.executable, "-m", "backoff_ctrl", "inject", "--listen=127.0.0.1:0", f"--namespace={namespace}",
        f"--kubeconfig={server.kubeconfig('admin')}", *options,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on https://127.0.0.1:"), said
            yield int(said.rpartition(":")[2])
        finally:
            process.terminate()
            assert process.wait(PATIENCE) == 0


async def trusted(api: Api) -> JSON:
    """Wait until the API server was told whom to trust; return the configuration."""

    def told(hooks: JSON) -> bool:
        return all("caBundle" in each["clientConfig"] for each in hooks["webhooks"])

    return await api.until(f"{HOOKS}/{NAME}", told)

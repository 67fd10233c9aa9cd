"""``backoff-ctrl uninstall`` that is ended on its way, as the pod of a hook may be, puts back what it has stopped."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made
from tests.cluster.talking import Api

pytestmark = pytest.mark.long


async def test_a_signal_starts_the_operator_again(api: Api, server: Server, namespace: str) -> None:
    """It waits for the end of a leader that never gives its Lease back."""
    labels = {"app": "operator"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "operator", "image": "busybox"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    made(await api.post(deployments, {"metadata": {"name": "operator"}, "spec": spec}))
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    held = {"holderIdentity": "leader", "leaseDurationSeconds": 15}
    made(await api.post(leases, {"metadata": {"name": "operator"}, "spec": held}))
    command = [sys.executable, "-m", "backoff_ctrl", "uninstall", "--yes", f"--namespace={namespace}"]
    process = await asyncio.create_subprocess_exec(
        *command, "--operator=operator", f"--kubeconfig={server.kubeconfig()}",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    await api.until(f"{deployments}/operator", lambda found: found["spec"]["replicas"] == 0)
    process.send_signal(signal.SIGTERM)
    said = (await process.communicate())[0].decode()
    assert process.returncode == 1, said
    assert "the operator: started again" in said
    assert "what was stopped is put back" in said
    assert made(await api.get(f"{deployments}/operator"))["spec"]["replicas"] == 2

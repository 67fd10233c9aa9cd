"""The containers of an injected pod, run as processes: an unmodified creator in Go, and one in Python, are gated."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.injection.mutation import inject, with_account
from backoff_ctrl.api.injection.sidecar import SidecarSettings
from tests.cluster.injecting.mounted import sidecar_and_creator, started, volumes
from tests.cluster.talking import MERGE, Api

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane.go_programs import GoPrograms
    from tests.cluster.control_plane.servers import Server
    from tests.cluster.talking import JSON

pytestmark = pytest.mark.long
PYTHON = """
import json, sys
from kubernetes import client, config
config.load_incluster_config()
core = client.CoreV1Api()
for number in range(3):
    pod = {"metadata": {"generateName": "python-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    print(json.dumps(core.create_namespaced_pod(sys.argv[1], pod).metadata.name), flush=True)
"""


async def test_an_injected_pod_gates_its_creator_which_nobody_changed(
    kubernetes: Server, creators: GoPrograms, real_namespace: str, tmp_path: Path
) -> None:
    """Its in-cluster configuration leads to the sidecar: the address, whom to trust, and its own token.

    One pod fits, two wait, and are created once the quota has room; none is refused to its creator. One creator after
    the other: the port of the sidecar is the pod's own, and here the machine's.
    """
    async with Api(kubernetes, "admin") as api:
        base = f"/api/v1/namespaces/{real_namespace}"
        quota = await api.post(f"{base}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
        assert quota.status == 201, quota.text
        await api.until(f"{base}/resourcequotas/q", lambda found: "used" in found.get("status", {}))
        pod = await injected(api, real_namespace)
        folders = await volumes(api, kubernetes, pod, tmp_path)
        sidecar, main = sidecar_and_creator(pod)
        gate = [sys.executable, "-m", "backoff_ctrl"]
        async with started(sidecar, folders, gate, kubernetes, tmp_path / "sidecar.log") as process:
            assert process.stdout is not None
            said = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
            assert said.startswith("listening on https://127.0.0.1:6443"), (tmp_path / "sidecar.log").read_text()
            go = [str(creators.path("creator")), "-namespace", real_namespace, "-count=3", "-parallel=3"]
            for first, program in ((1, [*go, "-prefix=go-"]), (4, [sys.executable, "-c", PYTHON, real_namespace])):
                await limit(api, real_namespace, first)
                async with started(main, folders, program, kubernetes, tmp_path / "creator.log") as creator:
                    await api.until(f"{base}/resourcequotas/q", partial(uses, first))
                    await limit(api, real_namespace, first + 2)
                    output, _ = await asyncio.wait_for(creator.communicate(), 90)
                    assert creator.returncode == 0, (tmp_path / "creator.log").read_text() + output.decode()
                assert refusals(output.decode()) == []
            pods = (await api.get(f"{base}/pods")).json["items"]
            assert len(pods) == 6
            assert all("backoff-ctrl.dev/create-id" in each["metadata"]["annotations"] for each in pods)
            process.terminate()
            assert await process.wait() == 0


def uses(pods: int, quota: JSON) -> bool:
    """Say whether a quota is charged so many pods."""
    return bool(quota["status"]["used"]["pods"] == str(pods))


async def limit(api: Api, namespace: str, pods: int) -> None:
    """Give the quota another limit."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/q"
    reply = await api.patch(path, {"spec": {"hard": {"pods": str(pods)}}}, MERGE)
    assert reply.status == 200, reply.text


async def injected(api: Api, namespace: str) -> JSON:
    """Return a pod as it is stored with its sidecar, of an account that may create pods and watch quotas."""
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    binding = {
        "metadata": {"name": "creator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [account],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    assert (await api.post(path, binding)).status == 201
    await api.until(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", bool)
    manifest: dict[str, Any] = {"metadata": {"name": "creator", "namespace": namespace}}
    manifest["spec"] = {"serviceAccountName": "default", "containers": [{"name": "main", "image": "i"}]}
    what = inject(with_account(manifest), SidecarSettings(args=("--hold=60", "--hold-total=60")))
    assert what.pod is not None
    return what.pod


def refusals(output: str) -> list[object]:
    """Return what the creator in Go was refused."""
    lines = [json.loads(line) for line in output.splitlines()]
    return [line for line in lines if isinstance(line, dict) and line["what"] == "failed"]

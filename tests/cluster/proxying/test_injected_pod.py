"""The containers of an injected pod, run as processes: an unmodified creator in Go, and one in Python, are gated."""

from __future__ import annotations

import asyncio
import json
import sys
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

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("the port of injected sidecars")]
PYTHON = """
import json, sys
from kubernetes import client, config
config.load_incluster_config()
core = client.CoreV1Api()
for number in range(3):
    pod = {"metadata": {"generateName": "python-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    print(json.dumps(core.create_namespaced_pod(sys.argv[1], pod).metadata.name), flush=True)
"""


@pytest.mark.parametrize("language", ["go", "python"])
async def test_an_injected_pod_gates_its_creator_which_nobody_changed(
    language: str, kubernetes: Server, creators: GoPrograms, real_namespace: str, tmp_path: Path
) -> None:
    """Its in-cluster configuration leads to the sidecar: the address, whom to trust, and its own token.

    Three pods fit, the others wait, and are created once the quota has room. None is refused to the creator.
    """
    async with Api(kubernetes, "admin") as api:
        base = f"/api/v1/namespaces/{real_namespace}"
        quota = await api.post(f"{base}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
        assert quota.status == 201, quota.text
        await api.until(f"{base}/resourcequotas/q", lambda found: "used" in found.get("status", {}))
        pod = await injected(api, real_namespace)
        folders = await volumes(api, kubernetes, pod, tmp_path)
        sidecar, main = sidecar_and_creator(pod)
        program = [sys.executable, "-c", PYTHON, real_namespace]
        if language == "go":
            arguments = ["-namespace", real_namespace, "-count=3", "-parallel=3", "-prefix=go-"]
            program = [str(creators.path("creator")), *arguments]
        gate = [sys.executable, "-m", "backoff_ctrl"]
        async with started(sidecar, folders, gate, kubernetes, tmp_path / "sidecar.log") as process:
            assert process.stdout is not None
            said = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
            assert said.startswith("listening on https://127.0.0.1:6443"), (tmp_path / "sidecar.log").read_text()
            async with started(main, folders, program, kubernetes, tmp_path / "creator.log") as creator:
                await api.until(f"{base}/resourcequotas/q", lambda found: found["status"]["used"]["pods"] == "1")
                more = await api.patch(f"{base}/resourcequotas/q", {"spec": {"hard": {"pods": "3"}}}, MERGE)
                assert more.status == 200, more.text
                output, _ = await asyncio.wait_for(creator.communicate(), 90)
                assert creator.returncode == 0, (tmp_path / "creator.log").read_text() + output.decode()
            assert refusals(output.decode()) == []
            pods = (await api.get(f"{base}/pods")).json["items"]
            assert len(pods) == 3
            assert all("backoff-ctrl.dev/create-id" in each["metadata"]["annotations"] for each in pods)
            process.terminate()
            assert await process.wait() == 0


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

"""The README's way from an empty cluster to the first gated create: its commands, typed as they stand there.

A real Kubernetes with the controllers of Deployments takes them. The test is what this bed lacks: a kubelet, which runs
pods as processes and says that they are ready, the way of a Service's address, and a registry.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import pytest

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.injecting.mounted import sidecar_and_creator, started, volumes
from tests.cluster.shipping.installed import Mode, running
from tests.cluster.shipping.readme_commands import commands
from tests.cluster.shipping.rendering import ROOT
from tests.cluster.talking import JSON, MERGE, Api
from tests.kit.patience import PATIENCE

OWN = "/api/v1/namespaces/backoff-ctrl"
CONTROLLERS = ("deployment-controller", "replicaset-controller")
pytestmark = pytest.mark.long


class Terminal:
    """Where a user types, with helm and kubectl at hand."""

    def __init__(self, folder: Path, bed: Bed, kubectl: Path, helm: Path) -> None:
        for name, program in (("kubectl", kubectl), ("helm", helm)):
            (folder / name).symlink_to(program)
        account = str(bed.server.kubeconfig("admin"))
        homes = {name: str(folder / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
        self._variables = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "KUBECONFIG": account, **homes}

    async def typed(self, command: str) -> str:
        """Return what a command says; it must succeed."""
        process = await asyncio.create_subprocess_shell(
            command, cwd=ROOT, env=self._variables, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(PATIENCE):
            out, _ = await process.communicate()
        assert process.returncode == 0, (command, out.decode())
        return out.decode()


async def routed(api: Api, mode: Mode) -> None:
    """Let the API server reach the webhook's Service on this machine."""
    service = {"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}}
    assert (await api.patch(f"{OWN}/services/backoff-ctrl-inject", service, MERGE)).status == 200
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/backoff-ctrl-inject-backoff-ctrl"
    hooks = (await api.get(path)).json
    hooks["webhooks"][0]["clientConfig"]["service"]["port"] = int(mode.urls["--listen"].rpartition(":")[2])
    assert (await api.put(path, hooks)).status == 200


async def told_ready(api: Api) -> None:
    """Say of the webhook's pods that they are ready."""
    listed = await api.until(f"{OWN}/pods", lambda found: len(found["items"]) == 2)
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for each in listed["items"]:
        path = f"{OWN}/pods/{each['metadata']['name']}/status"
        assert (await api.patch(path, ready, MERGE)).status == 200


async def test_the_commands_of_the_readme_lead_there(
    binaries: Binaries, helm_program: GoPrograms, tmp_path: Path
) -> None:
    """From nothing: helm waits until the webhook is ready, so the creator has its sidecar, which gates its create."""
    build, install, *rest = commands()
    assert install.startswith("helm install ")
    (image,) = [each for each in shlex.split(build) if each.startswith("registry.example/")]
    with Bed(binaries, accounts=True, kcm_qps=500, controllers=CONTROLLERS) as bed:
        terminal = Terminal(tmp_path, bed, binaries.kubectl, helm_program.path("helm"))
        async with Api(bed.server, "admin") as api:
            await api.until("/api/v1/namespaces/default/serviceaccounts/default", bool)
            installing = asyncio.create_task(terminal.typed(install))
            deployment = "/apis/apps/v1/namespaces/backoff-ctrl/deployments/backoff-ctrl-inject"
            made = await api.until(deployment, bool)
            assert made["spec"]["template"]["spec"]["containers"][0]["image"] == image
            (tmp_path / "webhook").mkdir()
            async with running(api, "backoff-ctrl", "inject", tmp_path / "webhook") as mode:
                await mode.until("--probe-listen", "/readyz", lambda status, _: status == 200)
                await routed(api, mode)
                assert not installing.done()
                await told_ready(api)
                assert "STATUS: deployed" in await installing
                for each in rest:
                    await terminal.typed(each)
            base = "/api/v1/namespaces/default"
            pod = (await api.get(f"{base}/pods/creator")).json
            await runs(api, bed, pod, binaries.kubectl, image, tmp_path)
            step = (await api.get(f"{base}/pods/step")).json
            assert "backoff-ctrl.dev/create-id" in step["metadata"]["annotations"]
            quotas = (await api.get(f"{base}/resourcequotas")).json["items"]
            assert [each["status"]["used"]["pods"] for each in quotas] == ["2"]


async def runs(api: Api, bed: Bed, pod: JSON, kubectl: Path, image: str, folder: Path) -> None:
    """Run the containers of the creator's pod until the creator has ended, and ended well."""
    folders = await volumes(api, bed.server, pod, folder)
    sidecar, main = sidecar_and_creator(pod)
    assert sidecar["image"] == image
    assert "kubectl" in main["image"]
    log = folder / "creator.log"
    gate = [sys.executable, "-m", "backoff_ctrl"]
    async with started(sidecar, folders, gate, bed.server, folder / "sidecar.log") as process:
        assert process.stdout is not None
        assert (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).startswith(
            b"listening on https://127.0.0.1:"
        )
        async with started(main, folders, [str(kubectl)], bed.server, log) as creator:
            output, _ = await asyncio.wait_for(creator.communicate(), PATIENCE)
        assert creator.returncode == 0, (await asyncio.to_thread(log.read_text), output)
        assert output == b"pod/step created\n"
        process.terminate()
        assert await process.wait() == 0

"""kubectl behind the sidecar at a full quota: creates wait and are made one by one, deletes and dry runs pass."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import proxy
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

WRITES: Final = {
    "create": ("create",),
    "a list": ("create",),
    "apply": ("apply",),
    "server-side": ("apply", "--server-side"),
}


def _pods(prefix: str) -> list[dict[str, Any]]:
    spec = {"containers": [{"name": "main", "image": "busybox:1"}]}
    names = [f"{prefix}-{number}" for number in range(3)]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec} for name in names]


def _written(way: str) -> bytes:
    """Several objects in one file, as a List or as documents."""
    pods = _pods("p")
    if way == "a list":
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}).encode()
    return b"\n---\n".join(json.dumps(pod).encode() for pod in pods)


@pytest.mark.long
@pytest.mark.parametrize("way", WRITES)
async def test_creates_wait_beside_deletes_that_make_room(
    way: str, kubernetes: Server, real_api: Api, real_namespace: str, binaries: Binaries, tmp_path: Path
) -> None:
    """Each object is made once, in its turn; a dry run is refused at once, as without the sidecar."""
    room = Room(real_api, real_namespace)
    await room.quota("q", {"pods": "2"})
    for name in ("old-0", "old-1"):
        await room.create("pods", _pods("x")[0] | {"metadata": {"name": name}})
    await room.controller_is_current()
    async with proxy(kubernetes.kubeconfig("tester"), tmp_path, "--hold=60", "--hold-total=60", tls=True) as running:
        kubectl = [str(binaries.kubectl), f"--kubeconfig={running.kubeconfig(kubernetes.token('tester'))}"]
        kubectl += [f"--namespace={real_namespace}", f"--cache-dir={tmp_path / 'cache'}"]
        manifests = tmp_path / "pods.yaml"
        manifests.write_bytes(_written(way))
        code, _, said = await _ran(*kubectl, "create", "--dry-run=server", "-f", str(manifests))
        assert (code, said.count("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")) == (1, 3)
        writing = asyncio.create_task(_ran(*kubectl, *WRITES[way], "-f", str(manifests)))
        log = tmp_path / "proxy.log"
        for number, goes in enumerate(("old-0", "old-1", "p-0")):
            await _says(log, f"pods {real_namespace}/p-{number} waits (quota: ", writing)
            assert (await _ran(*kubectl, "delete", "pod", goes, "--now", "--wait=false"))[0] == 0
        code, out, said = await writing
        applied = " serverside-applied" if way == "server-side" else " created"
        assert (code, out.split("\n")) == (0, [*(f"pod/p-{number}{applied}" for number in range(3)), ""]), said
    listed = await real_api.get(room.path("pods"))
    assert [each["metadata"]["name"] for each in listed.json["items"]] == ["p-1", "p-2"]


async def _ran(*command: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        out, said = await process.communicate()
    return process.returncode, out.decode(), said.decode()


async def _says(log: Path, line: str, writing: asyncio.Task[Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while line not in await asyncio.to_thread(log.read_text):
            assert not writing.done(), writing.result()
            await asyncio.sleep(0.02)

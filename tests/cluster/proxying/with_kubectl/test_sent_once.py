"""kubectl behind the sidecar at a full quota: resizes and server-side applies are held no longer than creates."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import proxy
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long

Ran = tuple[int | None, str, float]
Kubectl = Callable[..., Coroutine[Any, Any, Ran]]


@pytest.fixture
async def room(real_api: Api, real_namespace: str) -> Room:
    """Return a namespace with a quota of 2 cpu, of which the pods x (500m) and y (1) use 1500m."""
    room = Room(real_api, real_namespace)
    await room.quota("q", {"requests.cpu": "2"})
    await room.create("pods", pod("x", {"cpu": "500m"}))
    await room.create("pods", pod("y", {"cpu": "1"}))
    await room.controller_is_current()
    return room


@pytest.fixture
async def kubectl(kubernetes: Server, room: Room, binaries: Binaries, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """Return a function that runs kubectl behind a sidecar that holds for 6 s in all: code, output, seconds."""
    async with proxy(kubernetes.kubeconfig("tester"), tmp_path, "--hold-total=6", tls=True) as running:
        options = [f"--kubeconfig={running.kubeconfig(kubernetes.token('tester'))}", f"--namespace={room.namespace}"]
        command = [str(binaries.kubectl), *options, f"--cache-dir={tmp_path / 'cache'}"]

        async def run(*given: str, stdin: Any = None) -> Ran:
            began = time.monotonic()
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *command, *given, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
            )
            async with asyncio.timeout(PATIENCE * 2):
                said, _ = await process.communicate(None if stdin is None else json.dumps(stdin).encode())
            return process.returncode, said.decode(), time.monotonic() - began

        yield run


def larger(cpu: str, how: str) -> tuple[str, ...]:
    changed: Any = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    if how == "json":
        changed = [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": cpu}]
    return ("patch", "pod", "x", "--subresource=resize", f"--type={how}", "-p", json.dumps(changed))


MANIFEST = {"apiVersion": "v1", "kind": "Pod", **pod("z", {"cpu": "1"})}
WAYS: dict[str, tuple[tuple[str, ...], Any]] = {
    "create": (("create", "-f", "-"), MANIFEST),
    "apply": (("apply", "--server-side", "-f", "-"), MANIFEST),
    "resize": (larger("1500m", "strategic"), None),
    "resize by a json patch": (larger("1500m", "json"), None),
}


@pytest.mark.parametrize("way", WAYS)
async def test_what_waits_in_vain_is_held_for_the_total_alone(way: str, kubectl: Kubectl) -> None:
    """client-go comes again ten times if it is told to; all its requests together take 6 s."""
    command, stdin = WAYS[way]
    code, said, seconds = await kubectl(*command, stdin=stdin)
    assert code == 1, said
    assert "was held for" in said
    assert 5.0 < seconds < 15.0


@pytest.mark.parametrize("how", ["strategic", "merge", "json"])
async def test_a_pod_that_would_outgrow_the_quota_is_refused_at_once(how: str, kubectl: Kubectl) -> None:
    """500m become 2500m of 2: the server refuses 2 more, which the empty quota would have."""
    given = larger("2500m", how)
    if how == "merge":
        container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "2500m"}}}
        given = (*given[:-1], json.dumps({"spec": {"containers": [container]}}))
    code, said, seconds = await kubectl(*given)
    assert code == 1, said
    assert "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=1500m, limited: requests.cpu=2" in said
    assert seconds < 4.0


@pytest.mark.parametrize(("way", "name"), [("apply", "z"), ("resize", "x"), ("resize by a json patch", "x")])
async def test_it_is_done_once_there_is_room(way: str, name: str, kubectl: Kubectl, room: Room, tmp_path: Path) -> None:
    """Another pod ends meanwhile; the log says which object waits."""
    command, stdin = WAYS[way]
    waiting = asyncio.create_task(kubectl(*command, stdin=stdin))
    async with asyncio.timeout(PATIENCE):
        while f"pods {room.namespace}/{name} waits (quota: " not in (tmp_path / "proxy.log").read_text():
            assert not waiting.done(), waiting.result()
            await asyncio.sleep(0.02)  # between two looks at the log
    await room.delete("pods", "y", gracePeriodSeconds="0")
    code, said, _ = await waiting
    assert code == 0, said

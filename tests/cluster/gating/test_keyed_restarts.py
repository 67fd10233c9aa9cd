"""60 keyed pods under a quota of 10 on a real Kubernetes, their process killed and started again five times."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from backoff_ctrl.k8s.sandbox.kubelet import Kubelet
from backoff_ctrl.k8s.sandbox.kubelet import Server as KubeletServer
from tests.cluster.gating.gated_workload import creates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.control_plane.servers import Server
    from tests.cluster.talking import Api

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
PODS, HARD, KILLS = 60, 10, 5
RUNS_FOR = 2.0
"""Seconds that a pod runs: six full quotas of pods take 12 s."""
TIMEOUT = 60.0
"""Seconds after which a create gives up: five times what all pods run, a fifth of what a leaked charge lasts."""


class Wait(NamedTuple):
    """How long a create of the process that was started after so many kills took.

    ``runs`` is how often the pods ahead of it fill the quota: so many run times of a pod it may wait. One whose pod
    exists does not wait for room, at most as long as that pod runs.
    """

    kill: int
    number: int
    seconds: float
    runs: int


async def test_keyed_pods_survive_five_kills(
    kubernetes: Server, real_api: Api, real_namespace: str, say: Callable[[str], None]
) -> None:
    """All are done, none twice; none was charged again (that is answered 409), or waited for such a charge.

    No create waits for more than the pods ahead of it: of those that are new in a process, the first full quota waits
    for the pods that run already, the next one for these, and so on.
    """
    quota, pods = await make_quota(real_api, real_namespace), f"/api/v1/namespaces/{real_namespace}/pods"
    headers = {"Authorization": f"Bearer {kubernetes.token('admin')}"}
    at = KubeletServer(kubernetes.url, headers, kubernetes.ssl())
    before = await creates(real_api)
    found_again, came, waits = 0, set[int](), list[Wait]()
    async with Kubelet(at, namespace=real_namespace, starts=False), asyncio.timeout(240):
        for kill in range(KILLS + 1):
            async with process(kubernetes, real_namespace) as running:
                new = 0
                while line := await lines(running):
                    number, waited = int(line.split()[0]), float(line.split()[1])
                    waits.append(Wait(kill, number, waited, 1 if number in came else 1 + new // HARD))
                    found_again += number in came
                    new += number not in came
                    came.add(number)
                    if kill < KILLS and new == PODS // (KILLS + 2):
                        running.send_signal(signal.SIGKILL)
                assert await running.wait() == (-signal.SIGKILL if kill < KILLS else 0), "a create waited too long"
        stored = (await real_api.until(pods, all_done))["items"]
        await real_api.until(quota, nothing_used)
    answers = await creates(real_api)
    answers.subtract(before)
    longest = max(wait.seconds / wait.runs for wait in waits) / RUNS_FOR
    say(
        f"{PODS} keyed pods, {KILLS} kills: answers {dict(+answers)}, {found_again} times an existing pod was "
        f"returned, waits of {longest:.2f} times the run time of the pods ahead at most"
    )

    assert Counter(each["metadata"]["labels"]["number"] for each in stored) == {str(each): 1 for each in range(PODS)}
    assert [wait for wait in waits if wait.seconds > wait.runs * RUNS_FOR] == []
    assert answers["409"] <= KILLS  # what was on its way at a kill may be stored after it was looked up
    assert found_again > 0


async def make_quota(api: Api, namespace: str) -> str:
    """Create the quota, wait until it is enforced, and return its path."""
    body = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": str(HARD)}}}
    made = await api.post(f"/api/v1/namespaces/{namespace}/resourcequotas", body)
    assert made.status == 201, made.text
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/team"
    await api.until(path, nothing_used)
    return path


def nothing_used(quota: Any) -> bool:
    return bool(quota.get("status", {}).get("used", {}).get("pods") == "0")


def all_done(pods: Any) -> bool:
    return {each["status"]["phase"] for each in pods["items"]} == {"Succeeded"}


async def lines(running: asyncio.subprocess.Process) -> str:
    """Return the next line of the process; empty at its end."""
    assert running.stdout is not None
    return (await running.stdout.readline()).decode()


@asynccontextmanager
async def process(server: Server, namespace: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the process that creates all pods, and end it."""
    asked = {
        "kubeconfig": str(server.kubeconfig("creator")),
        "namespace": namespace,
        "pods": PODS,
        "runs_for": RUNS_FOR,
        "timeout": TIMEOUT,
    }
    command = (sys.executable, "-m", "tests.cluster.gating.keyed_process", json.dumps(asked))
    running = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()

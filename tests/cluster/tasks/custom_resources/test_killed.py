"""Managers that are killed at any moment, one after the other: each Task has one pod, and ends once."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter

import pytest

from backoff_ctrl.k8s.lab.sandbox.followed import Server as Upstream
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from tests.cluster.objects import made
from tests.cluster.talking import Api
from tests.cluster.tasks.custom_resources.conftest import path, task
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long
TASKS = 30
KILLS = 3


async def ended(api: Api, namespace: str) -> Counter[str]:
    """How many tasks have ended, by phase; an ended one has no finalizer left."""
    items = (await api.get(path(namespace))).json["items"]
    over = [each for each in items if each.get("status", {}).get("endedAt") and not each["metadata"].get("finalizers")]
    return Counter(each["status"]["phase"] for each in over)


async def test_no_task_is_doubled_or_lost(kind: Api, namespace: str) -> None:
    """The quota holds ten pods; half of the tasks need another one."""
    hard = {"pods": "10"}
    quota = f"/api/v1/namespaces/{namespace}/resourcequotas"
    made(await kind.post(quota, {"metadata": {"name": "few"}, "spec": {"hard": hard}}))
    await kind.until(f"{quota}/few", lambda found: (found.get("status") or {}).get("hard") == hard)
    for number in range(TASKS):
        needs = {"needs": [f"t{number - 1}"]} if number % 2 else {}
        made(await kind.post(path(namespace), task(f"t{number}", **needs)))
    headers = {"Authorization": f"Bearer {kind.server.token('tester')}"}
    upstream = Upstream(kind.server.url, headers, kind.server.ssl())
    command = [sys.executable, "-m", "tests.cluster.tasks.custom_resources.manager_process",
               str(kind.server.kubeconfig()), namespace]  # fmt: skip
    rng = random.Random(7)
    async with Kubelet(upstream, namespace=namespace, finish_after=0.5), asyncio.timeout(PATIENCE):
        for number in range(KILLS + 1):
            process = await asyncio.create_subprocess_exec(*command)
            try:
                goal = TASKS if number == KILLS else min(TASKS - 1, 2 + (await ended(kind, namespace)).total())
                while (await ended(kind, namespace)).total() < goal:  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(0.2)
                await asyncio.sleep(rng.uniform(0, 0.3))
            finally:
                process.kill()
                await process.wait()
    assert await ended(kind, namespace) == {"Success": TASKS}
    tasks = (await kind.get(path(namespace))).json["items"]
    assert {each["status"]["try"] for each in tasks} == {1}
    pods = (await kind.get(f"/api/v1/namespaces/{namespace}/pods")).json["items"]
    assert Counter(each["metadata"]["labels"]["backoff-ctrl.dev/task-name"] for each in pods) == {
        each["metadata"]["name"]: 1 for each in tasks
    }
    assert not any(each["metadata"].get("finalizers") for each in pods)

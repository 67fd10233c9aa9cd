"""What the cluster adds to the pods of a task's object is read once for many creates, and anew after some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kubernetes import client

from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.gate.clients.session_transport import CreateTransport
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.charges.parts import parts_of
from backoff_ctrl.k8s.kube.cluster.objects import KEPT, Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from tests.tasks.small_plugins import JOB

LIMITS = "/api/v1/namespaces/team/limitranges"
MERGE = {"Content-Type": "application/merge-patch+json"}
POD = {"containers": [{"name": "c", "image": "i"}], "runtimeClassName": "nested"}
BODY: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {"template": {"spec": POD}},
}


class Asking(Objects):
    """Notes what the API server is asked; its clock is a test's."""

    def __init__(self, session: ClusterSession) -> None:
        super().__init__(session, clock=lambda: self.seconds)
        self.seconds = 0.0
        self.asked: list[str] = []
        self.reads = asyncio.Event()

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        if method == "GET":
            self.asked.append(path)
            self.reads.set()
        return await super().ask(method, path, body, **more)

    async def set_memory(self, method: str, memory: str) -> None:
        limits = {"limits": [{"type": "Container", "defaultRequest": {"memory": memory}}]}
        path, headers = (LIMITS, None) if method == "POST" else (f"{LIMITS}/memory", MERGE)
        made = await self.ask(method, path, {"metadata": {"name": "memory"}, "spec": limits}, headers=headers)
        assert made.ok, made.body

    async def memory(self) -> str:
        """Return what the pods of a task's Job are weighed with, in nano-units."""
        weighed = CreateTransport(self, JOB, "team").weighed(
            BODY, JOB.resource, partial(parts_of, resource=JOB.resource)
        )
        (pods,) = await weighed
        return str(pods.demand.amounts.get("requests.memory", 0))


@asynccontextmanager
async def asking(sandbox: BackgroundSandbox) -> AsyncIterator[Asking]:
    async with ClusterSession(client.Configuration(host=sandbox.url)) as session:
        yield Asking(session)


async def test_a_namespaces_limit_ranges_are_read_once_for_the_creates_of_some_seconds(
    sandbox: BackgroundSandbox,
) -> None:
    async with asking(sandbox) as objects:
        await objects.set_memory("POST", "1Gi")
        found = await asyncio.gather(*(objects.memory() for _ in range(10)))
        found.append(await objects.memory())
        assert set(found) == {str(parse_quantity("1Gi"))}
        assert objects.asked.count(LIMITS) == 1


async def test_a_changed_limit_range_is_seen_after_these_seconds(sandbox: BackgroundSandbox) -> None:
    async with asking(sandbox) as objects:
        await objects.set_memory("POST", "1Gi")
        before = await objects.memory()
        await objects.set_memory("PATCH", "2Gi")
        objects.seconds = KEPT - 0.1
        assert await objects.memory() == before
        objects.seconds = KEPT
        assert await objects.memory() == str(parse_quantity("2Gi"))


async def test_what_is_missing_is_asked_for_each_time(sandbox: BackgroundSandbox) -> None:
    """A class that a user has forgotten counts as soon as it is there."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    async with asking(sandbox) as objects:
        await objects.memory()
        overhead = {"handler": "h", "overhead": {"podFixed": {"memory": "3Gi"}}}
        made = await objects.ask("POST", path, {"metadata": {"name": "nested"}, **overhead})
        assert made.ok, made.body
        assert await objects.memory() == str(parse_quantity("3Gi"))


async def test_one_who_gives_up_leaves_the_answer_to_the_others(sandbox: BackgroundSandbox) -> None:
    async with asking(sandbox) as objects:
        await objects.set_memory("POST", "1Gi")
        first, second = (asyncio.create_task(objects.memory()) for _ in range(2))
        await objects.reads.wait()
        first.cancel()
        assert await second == str(parse_quantity("1Gi"))

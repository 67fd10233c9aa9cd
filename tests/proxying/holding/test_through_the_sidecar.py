"""A plain client, the sidecar and the sandbox over real connections: creates wait, everything else passes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.proxy.holding.holding import Holding, open_holding
from backoff_ctrl.k8s.proxy.holding.settings import HoldSettings
from backoff_ctrl.k8s.proxy.listening import Listener
from backoff_ctrl.k8s.proxy.passing import Shared
from backoff_ctrl.k8s.proxy.place import place_at
from backoff_ctrl.k8s.proxy.upstream import ApiServer
from backoff_ctrl.k8s.sandbox import Sandbox
from tests.proxying.holding.in_memory import pod

pytest.importorskip("httptools", reason="the sidecar needs its extra")

PODS = "/api/v1/namespaces/team/pods"


class News(Subscriber):
    """Wakes who waits for news of the line."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def waits(self, create: Any) -> None:
        self._loop.call_soon_threadsafe(self.event.set)

    def ended(self, create: Any) -> None:
        self._loop.call_soon_threadsafe(self.event.set)


class Sidecar:
    """A sidecar in front of a sandbox, and a client of it."""

    def __init__(self, sandbox: Sandbox, holding: Holding, session: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.holding = holding
        self.session = session
        self._news = News()
        holding._gate.ledger.subscribe(self._news)

    async def post(self, manifest: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        async with self.session.post(PODS, json=manifest, **more) as response:
            return response.status, await response.json()

    async def waiting(self, count: int) -> None:
        async with asyncio.timeout(20):
            while self.holding._gate.counts.waiting != count:
                self._news.event.clear()
                await self._news.event.wait()


@asynccontextmanager
async def sidecar(settings: HoldSettings | None = None) -> AsyncIterator[Sidecar]:
    """Run a sandbox with a quota of one pod, and a sidecar in front of it."""
    async with Sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "1"})
        server = ApiServer(place_at(sandbox.url))
        holding = open_holding(server, settings)
        bound = socket.create_server(("127.0.0.1", 0))
        listener = Listener(Shared(server, holding), bound)
        await listener.start()
        base = f"http://127.0.0.1:{bound.getsockname()[1]}"
        try:
            async with aiohttp.ClientSession(base) as session:
                yield Sidecar(sandbox, holding, session)
        finally:
            await holding.close()
            await listener.close(5)
            server.close()


async def hang_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_a_create_waits_for_room_and_gets_in_by_the_watch() -> None:
    """Not refused once: the quotas were listed before the first create, and watched as soon as one waited."""
    async with sidecar() as proxy:
        status, first = await proxy.post(pod())
        assert status == 201
        waiting = asyncio.create_task(proxy.post(pod("second")))
        await proxy.waiting(1)
        async with proxy.session.delete(
            f"{PODS}/{first['metadata']['name']}", params={"gracePeriodSeconds": 0}
        ) as gone:
            assert gone.status == 200
        status, second = await asyncio.wait_for(waiting, 20)
        assert (status, second["metadata"]["name"]) == (201, "second")
        assert proxy.sandbox.counters.creates.refused == 0


async def test_a_caller_that_hangs_up_leaves_the_line_and_comes_back_to_its_object() -> None:
    """After it was sent: one object, and the repeat gets it. Before: nothing is sent, and its place is kept."""
    async with sidecar() as proxy:
        proxy.sandbox.faults.answer_delay_s = 0.3
        left = asyncio.create_task(proxy.post(pod("one")))
        await proxy.sandbox.until(lambda: proxy.sandbox.counters.creates.created == 1)
        await hang_up(left)
        status, found = await proxy.post(pod("one"))
        assert (status, found["metadata"]["name"], proxy.sandbox.counters.creates.created) == (201, "one", 1)

        left = asyncio.create_task(proxy.post(pod("two")))
        await proxy.waiting(1)
        await hang_up(left)
        await proxy.waiting(0)
        assert proxy.holding._gate.ledger.snapshot().namespaces["team"].seats == 1
        assert proxy.sandbox.counters.creates.refused == 0


async def test_what_passes_teaches() -> None:
    """A Job that a quota refuses passes once; from then on Jobs of that namespace wait."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "j-"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    }
    jobs = "/apis/batch/v1/namespaces/team/jobs"
    async with sidecar(HoldSettings(hold=0.1, hold_total=0.1)) as proxy:
        proxy.sandbox.create_quota("team", "jobs", {"count/jobs.batch": "0"})
        answers = []
        for _ in range(2):
            async with proxy.session.post(jobs, json=job) as response:
                answers.append(response.status)
        assert answers == [403, 429]


async def test_closing_hands_back_over_the_wire() -> None:
    """Whoever waits is told to come again, once another proxy listens."""
    async with sidecar() as proxy:
        assert (await proxy.post(pod()))[0] == 201
        waiting = [asyncio.create_task(proxy.post(pod(f"w-{number}"))) for number in range(10)]
        await proxy.waiting(10)
        await proxy.holding.close()
        for task in waiting:
            status, answer = await task
            assert (status, answer["details"]["retryAfterSeconds"]) == (429, 5)

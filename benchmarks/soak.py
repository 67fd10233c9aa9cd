"""Ten minutes of mixed load on the sandbox: memory must not grow, and no waiter, ticket or hold may be left at the end.

Usage: python -m benchmarks.soak [--minutes 10] [--seed 1] [--json FILE]
A sandbox in its own process refuses and delays requests, loses answers and breaks watches. A sync and an asyncio client
share a gate that observes quotas; another asyncio client has a gate that only learns. Their creates have many shapes;
some have a time limit, some are cancelled, some have an idempotency key. Namespaces are created and abandoned.
Exits with 1 if this process's memory grew or anything is left. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from kubernetes import client
from kubernetes.aio import client as aio
from kubernetes.aio.client import ApiException
from rich.console import Console
from rich.progress import Progress

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.clients.gating import waiting
from backoff_ctrl.k8s.lab.sandbox.followed import Server
from backoff_ctrl.k8s.lab.sandbox.kubelet import RUN_SECONDS, Kubelet
from tests.kit.aio_configuration import aio_configuration

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

FAULTS: Final = {
    "quota_conflict_share": 0.02,
    "quota_timeout_share": 0.002,
    "overload_share": 0.005,
    "unknown_outcome_share": 0.005,
    "reset_share": 0.005,
    "stale_admission_share": 0.02,
    "watch_break_share": 0.002,
}
LASTING: Final = 4  # namespaces that are used all the time
PASSING_S: Final = 15.0  # seconds that each of the other namespaces is used
CREATORS: Final = 40  # concurrent creates in each namespace, whose quota has room for ten
CPU: Final = ("100m", "200m", "250m", "500m", "1")
GROWTH: Final = 1.05
EVERY_S: Final = 2.0
IDLE_TTL: Final = 60.0  # seconds: short, so that state of unused namespaces expires within the run


def serve(pipe: Connection, seed: int) -> None:
    """The server process: a sandbox with faults, a fake kubelet, and a task that deletes finished pods."""
    from backoff_ctrl.k8s.lab.sandbox import Sandbox  # noqa: PLC0415 - in this process only

    async def run() -> None:
        async with Sandbox(seed=seed) as sandbox, Kubelet(Server(sandbox.url), starts=False):
            for number in range(LASTING):
                furnish(sandbox, f"lasting-{number}")
            sandbox.faults.change(FAULTS)
            pipe.send(sandbox.url)
            clearing = asyncio.create_task(clear_away(sandbox.url))
            passing = asyncio.create_task(come_and_go(sandbox))
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            sandbox.faults.clear()
            passing.cancel()
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            clearing.cancel()
            pipe.send(sandbox.counters.creates.created)

    asyncio.run(run())


def furnish(sandbox: Any, namespace: str) -> None:
    """Create a namespace with two quotas: one of the number of pods, one of CPU and memory."""
    sandbox.create_namespace(namespace)
    sandbox.create_quota(namespace, "count", {"pods": "10"})
    sandbox.create_quota(namespace, "compute", {"requests.cpu": "3", "requests.memory": "4Gi"})


async def come_and_go(sandbox: Any) -> None:
    """Create a new namespace every ``PASSING_S`` seconds."""
    began = time.monotonic()
    for number in itertools.count():
        furnish(sandbox, f"passing-{number}")
        await asyncio.sleep(began + (number + 1) * PASSING_S - time.monotonic())  # the creators use the clock, too


async def clear_away(url: str) -> None:
    """Delete finished pods, so that the store stays small."""
    async with aiohttp.ClientSession(url) as session:
        while True:
            await asyncio.sleep(0.5)
            async with session.get("/api/v1/pods?fieldSelector=status.phase=Succeeded") as answer:
                ended = (await answer.json())["items"]
            for pod in ended:
                metadata = pod["metadata"]
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}?gracePeriodSeconds=0"
                async with session.delete(path) as answer:
                    await answer.read()


@dataclass
class Soak:
    """The load and its results."""

    url: str
    rng: random.Random
    ends: float
    came: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, float]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    async def run(self, progress: Progress) -> list[str]:
        """Run the load to its end; return what the gates still hold, a line each."""
        shared = client.Configuration(host=self.url)
        shared.connection_pool_maxsize = CREATORS
        loop_configuration = aio_configuration(shared)
        learner = AsyncGate(policy=Policy(idle_ttl=IDLE_TTL))
        with ThreadPoolExecutor(CREATORS) as pool, GatedApiClient(shared, events=True) as threads:
            async with (
                AsyncGatedApiClient(loop_configuration) as observer,
                AsyncGatedApiClient(aio_configuration(shared), gate=learner) as learning,
                asyncio.TaskGroup() as group,
            ):
                group.create_task(self._look_at_memory(progress))
                for number in range(LASTING):
                    ways = (observer, learning, threads)
                    way = ways[number % len(ways)]
                    for _ in range(CREATORS // (4 if way is threads else 1)):
                        group.create_task(self._creator(way, pool, f"lasting-{number}"))
                for _ in range(CREATORS // 2):
                    group.create_task(self._creator(observer, pool, "passing"))
                    group.create_task(self._creator(learning, pool, "passing"))
            await asyncio.sleep(2.0)  # the last answered holds end within a second
            return [*left_over("observing gate", threads.gate), *left_over("learning gate", learner)]

    async def _creator(self, way: Any, pool: ThreadPoolExecutor, namespace: str) -> None:
        """Create one pod after another."""
        while time.monotonic() < self.ends:
            where = namespace
            if namespace == "passing":
                where = f"passing-{int((time.monotonic() - self.began) / PASSING_S)}"
            try:
                self.came[await self._create(way, pool, where)] += 1
            except (ApiException, client.ApiException) as error:
                kind = "time limit" if isinstance(error, TimeoutError) else f"HTTP {error.status}"
                self.came[kind] += 1
                await asyncio.sleep(0.05)  # the namespace may not exist yet
            except (aiohttp.ClientError, OSError) as error:
                self.came[type(error).__name__] += 1

    async def _create(self, way: Any, pool: ThreadPoolExecutor, namespace: str) -> str:
        pod = self._pod()
        what = self.rng.random()
        timeout = self.rng.uniform(0.01, 1.0) if what < 0.1 else None
        key = f"key-{self.rng.getrandbits(64)}" if 0.1 <= what < 0.2 else None
        if isinstance(way, GatedApiClient):

            def blocking() -> None:
                with waiting(timeout=timeout, key=key):
                    core: Any = client.CoreV1Api(way)
                    core.create_namespaced_pod(namespace, pod)

            await asyncio.get_running_loop().run_in_executor(pool, blocking)
            return "in"
        core: Any = aio.CoreV1Api(way)
        with waiting(timeout=timeout, key=key):
            create = asyncio.create_task(core.create_namespaced_pod(namespace, pod))
        if 0.2 <= what < 0.3:
            await asyncio.wait([create], timeout=self.rng.uniform(0, 0.5))
            if create.cancel():
                await asyncio.wait([create])
                return "cancelled"
        await create
        return "in"

    def _pod(self) -> dict[str, Any]:
        requests = {"cpu": self.rng.choice(CPU), "memory": f"{self.rng.randint(1, 8) * 64}Mi"}
        metadata = {
            "generateName": "soak-",
            "annotations": {RUN_SECONDS: f"{self.rng.uniform(0.02, 0.3):.3f}"},
        }
        containers = [{"name": "main", "image": "busybox:1", "resources": {"requests": requests}}]
        spec = {"restartPolicy": "Never", "containers": containers}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    async def _look_at_memory(self, progress: Progress) -> None:
        lasts = self.ends - self.began
        task = progress.add_task("soaking", total=lasts)
        while (now := time.monotonic()) < self.ends:
            gc.collect()
            self.memory.append((now - self.began, resident_mib()))
            told = f"{self.came['in']:,} created, {self.memory[-1][1]:.0f} MiB"
            progress.update(task, completed=now - self.began, description=told)
            await asyncio.sleep(min(EVERY_S, lasts / 50))

    def growth(self) -> tuple[float, float]:
        """Return the median resident memory in the second and in the last fifth of the time, in MiB."""
        fifth = (self.ends - self.began) / 5
        early = [mib for at, mib in self.memory if fifth <= at < 2 * fifth]
        late = [mib for at, mib in self.memory if at >= 4 * fifth]
        return statistics.median(early), statistics.median(late)


def left_over(name: str, gate: Any) -> list[str]:
    """Return what a gate still holds, a line each."""
    found = [f"{name}: in progress: {line}" for line in gate.waiting()]
    for namespace, seen in gate.ledger.snapshot().namespaces.items():
        left = {"waiting": seen.waiting, "tickets": seen.outstanding, "holds": seen.answered_holds}
        held = sum(ceiling.held > 0 for quota in seen.quotas.values() for ceiling in quota.values())
        left["ceilings with holds"] = held
        found += [f"{name}: {namespace}: {number} {what}" for what, number in left.items() if number]
    if gate.counts.failed_open:
        found.append(f"{name}: failed open {gate.counts.failed_open} times")
    return found


def resident_mib() -> float:
    """Return the resident memory of this process (Linux only)."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def main() -> None:
    """Run the load, print the results, and exit with 1 if memory grew or anything is left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, options.seed), daemon=True)
    server.start()
    soak = Soak(ours.recv(), random.Random(options.seed), time.monotonic() + 60 * options.minutes)
    with Progress(console=Console(stderr=True)) as progress:
        left = asyncio.run(soak.run(progress))
    ours.send("the load is over")
    ours.send("stop")
    created = ours.recv()
    early, late = soak.growth()
    print(f"{options.minutes:g} minutes: {created:,} pods created at the server; the calls: " + ", ".join(
        f"{number:,} {'succeeded' if what == 'in' else what}" for what, number in soak.came.most_common()))  # fmt: skip
    grew = late / early
    verdict = "" if grew <= GROWTH else "   MISSED"
    print(f"resident memory: {early:.1f} MiB in the second fifth, {late:.1f} MiB in the last: "
          f"{grew:.3f} x   bar <= {GROWTH:g}{verdict}")  # fmt: skip
    print("nothing is left: no waiters, tickets or holds" if not left else "LEFT:\n  " + "\n  ".join(left))
    if options.json:
        options.json.write_text(json.dumps({"came": soak.came, "created": created, "memory_mib": soak.memory,
                                            "left": left}, indent=1) + "\n")  # fmt: skip
    sys.exit(bool(left) or grew > GROWTH)


if __name__ == "__main__":
    main()

"""Jobs that wait suspended, on a real control plane: how soon the next begins, what is refused, how many a second.

``python -m benchmarks.admitting`` builds and starts etcd, kube-apiserver and kube-controller-manager, as the tests do.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made, of_core, of_group
from tests.cluster.talking import Api

JSON = dict[str, Any]
SINGLE: Final = 59
COMPLETIONS: Final = 200
FAILS_EVERY: Final = 7
"""Each so many-th pod of the large Job fails, and is made again."""
CPU: Final = 10
SILENCE: Final = 30
"""Seconds after which a watch begins anew: a controller manager of few requests a second may say nothing for longer."""


class Pods:
    """Watches the pods of a namespace: when each appeared, and which live."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self.appeared: dict[str, float] = {}
        self.living: dict[str, JSON] = {}
        self.news = asyncio.Event()

    async def follow(self) -> None:
        """Watch without end."""
        path = of_core(self._namespace, "pods")
        version = made(await self._api.get(path))["metadata"]["resourceVersion"]
        while True:
            since = {"resourceVersion": version, "timeoutSeconds": str(SILENCE)}
            async with self._api.watch(path, since) as events:
                async for event in events:
                    pod = event["object"]
                    name, version = pod["metadata"]["name"], pod["metadata"]["resourceVersion"]
                    if event["type"] == "ADDED":
                        self.appeared[name], self.living[name] = time.perf_counter(), pod
                        self.news.set()


@asynccontextmanager
async def followed(api: Api, namespace: str) -> AsyncIterator[Pods]:
    """Follow the pods of a namespace during the block, which an error of that ends."""
    pods = Pods(api, namespace)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(pods.follow())
        await asyncio.sleep(0.5)
        yield pods
        following.cancel()


def owner(pod: JSON) -> str:
    found: str = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
    return found


async def turnover(server: Server, rate: float) -> None:
    """60 Jobs under a quota of 10, one of them of 200 completions; a pod is ended every ``1 / rate`` seconds."""
    async with Api(server) as api:
        jobs = await namespace(api, "turnover")
        await jobs.limit(CPU)
        large: JSON = {"parallelism": 4, "completions": COMPLETIONS, "backoffLimit": COMPLETIONS}
        await jobs.create(job("large", **large))
        for number in range(SINGLE):
            await jobs.create(job(f"single-{number}"))
        async with (
            followed(api, jobs.namespace) as pods,
            admitting(server, namespaces=(jobs.namespace,), kinds=(JOB,)) as found,
        ):
            between, own = await end_all(jobs, pods, found, rate)
        creates = len(pods.appeared)
        refused = await jobs.refusals()
        ungated = found.counts.ungated.total()
        print(
            f"60 Jobs under a quota of {CPU}, one of them of {COMPLETIONS} completions and parallelism 4, "
            f"each {FAILS_EVERY}th pod of it fails"
        )
        print(f"  pods created {creates}, refusals of the Job controller {len(refused)}, let in ungated {ungated}")
        print(f"  from a Job's end to the next Job's pod: {figures(between)}")
        print(f"  from a pod's end to the next of the same Job (its controller batches by 1 s): {figures(own)}")


async def end_all(jobs: Jobs, pods: Pods, found: Admitting, rate: float) -> tuple[list[float], list[float]]:
    """End one pod at a time: that of a single Job if there is one, so that the next Job follows; else the large one's.

    Return the seconds from an end to the next pod: of another Job, and of the same.
    """
    between: list[float] = []
    own: list[float] = []
    turn = large = 0
    while True:
        singles = [each for each in pods.living.values() if owner(each) != "large"]
        larges = [each for each in pods.living.values() if owner(each) == "large"]
        waits = any(each["state"] == "waiting" for each in found.waiting())
        turn += 1
        pod = next(iter(singles if singles and (turn % 2 or not larges) else larges), None)
        if pod is None:
            if not found.states()["waiting"] and large >= COMPLETIONS:
                return between, own
            await asyncio.sleep(0.02)
            continue
        name, single = pod["metadata"]["name"], owner(pod) != "large"
        fails = not single and turn % FAILS_EVERY == 0
        before, began = set(pods.appeared), time.perf_counter()
        del pods.living[name]
        await jobs.end(pod, "Failed" if fails else "Succeeded")
        large += not single and not fails
        if single and waits:
            if (came := await following_pod(pods, before, single=True)) is not None:
                between.append(came - began)
        elif not single and large < COMPLETIONS - 4 and turn % 20 == 0:  # noqa: SIM102
            if (came := await following_pod(pods, before, single=False)) is not None:
                own.append(came - began)
        await asyncio.sleep(1 / rate)


async def following_pod(pods: Pods, before: set[str], *, single: bool) -> float | None:
    for _ in range(1000):
        for name, when in pods.appeared.items():
            if name not in before and name.startswith("single" if single else "large"):
                return when
        pods.news.clear()
        try:
            async with asyncio.timeout(0.05):
                await pods.news.wait()
        except TimeoutError:
            continue
    return None


def figures(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return f"{len(seconds)} times"
    ordered = sorted(1000 * each for each in seconds)
    last = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.0f} ms, p99 {last:.0f} ms, of {len(ordered)}"


async def rate_with_room(server: Server, number: int) -> None:
    """``number`` suspended Jobs, and room for all of them."""
    async with Api(server) as api:
        jobs = await namespace(api, "room")
        await jobs.limit(10 * number + 1, pods=10 * number + 1)
        await create_all(jobs, number)
        began = time.perf_counter()
        async with admitting(server, namespaces=(jobs.namespace,), kinds=(JOB,)) as found:
            while found.counts.admitted.total() < number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            seconds = time.perf_counter() - began
        left = [each for each in await listed(jobs) if each["spec"]["suspend"]]
        refused = len(await jobs.refusals())
        print(
            f"{number} suspended Jobs with room: {number / seconds:.0f} a second; "
            f"still suspended {len(left)}, refusals {refused}"
        )


async def rate_without_room(server: Server, number: int) -> None:
    """``number`` suspended Jobs, and room for 50: each pod is ended as soon as it appears."""
    async with Api(server) as api:
        jobs = await namespace(api, "busy")
        await jobs.limit(50, pods=50)
        await create_all(jobs, number)
        ending: set[asyncio.Task[None]] = set()
        async with (
            followed(api, jobs.namespace) as pods,
            admitting(server, namespaces=(jobs.namespace,), kinds=(JOB,)) as found,
        ):
            began = time.perf_counter()
            while found.counts.admitted.total() < number:
                for name in list(pods.living):
                    task = asyncio.create_task(jobs.end(pods.living.pop(name)))
                    ending.add(task)
                    task.add_done_callback(ending.discard)
                await asyncio.sleep(0.005)
            seconds = time.perf_counter() - began
            await asyncio.gather(*ending)
        refused = len(await jobs.refusals())
        print(f"{number} suspended Jobs through a quota of 50: {number / seconds:.0f} a second; refusals {refused}")


async def create_all(jobs: Jobs, number: int) -> None:
    gate = asyncio.Semaphore(32)

    async def create(name: str) -> None:
        async with gate:
            await jobs.create(job(name))

    await asyncio.gather(*(create(f"j-{each}") for each in range(number)))


async def listed(jobs: Jobs) -> list[JSON]:
    found: list[JSON] = made(await jobs.api.get(of_group("batch/v1", jobs.namespace, "jobs")))["items"]
    return found


async def namespace(api: Api, name: str) -> Jobs:
    name = f"{name}-{secrets.token_hex(4)}"
    made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
    return Jobs(api, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="suspended Jobs of which the rate is measured")
    parser.add_argument("--rate", type=float, default=20, help="pods that are ended a second, at most")
    parser.add_argument(
        "--kube-api-qps", type=float, default=500, help="of the controller manager, whose default is 20"
    )
    given = parser.parse_args()
    print(
        f"{datetime.now().astimezone():%Y-%m-%d %H:%M}, kube-controller-manager --kube-api-qps "
        f"{given.kube_api_qps:g}; ours has no limit of its own"
    )
    with Bed(wanted(), kcm_qps=given.kube_api_qps) as bed:
        asyncio.run(turnover(bed.server, given.rate))
        asyncio.run(rate_with_room(bed.server, given.jobs))
        asyncio.run(rate_without_room(bed.server, given.jobs))


if __name__ == "__main__":
    main()

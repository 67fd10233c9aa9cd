"""Gangs on a real Kubernetes: among small pods, beside a stranger, and with their process killed half-way."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes import client

from backoff_ctrl import AsyncGatedApiClient, GangFailed, Gate, GatedApiClient, create_gang, gang, waiting
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.lab.sandbox.followed import Server as KubeletServer
from backoff_ctrl.k8s.lab.sandbox.kubelet import RUN_SECONDS, Kubelet
from tests.cluster.control_plane.servers import Server
from tests.cluster.faults.storm import hung_up
from tests.cluster.gating.gated_workload import OBSERVER, configuration_of, creates, observed
from tests.cluster.quotas.quota_room import Room
from tests.cluster.quotas.quota_room import pod as quota_pod
from tests.cluster.talking import Api
from tests.kit.aio_configuration import aio_configuration
from tests.kit.official import aio

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
HARD, MEMBERS = 10, 8
TIMEOUT: Final = 60.0

SMALL = 20
"""Small pods that want in at any time."""
RUNS_FOR = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)
"""Seconds that small pods run, one after the other."""
OVERTAKEN_FOR = (12.0, 24.0)
"""Seconds after which room is kept for the gang, tried until a run meets the bounds: the longer, the less a slow server
matters.
"""
WAKE = 1.5
"""Seconds, at most, from the last release to the gang's last member: 50 ms, but for a busy machine."""
COUNTED = 60
"""Small pods over which the throughput without a gang is measured: six seconds."""
THROUGHPUT = 0.8


def pod(kind: str, number: int, runs_for: float | None = None) -> dict[str, Any]:
    """A pod of one sort; without ``runs_for`` it never ends."""
    metadata: dict[str, Any] = {"generateName": f"{kind}-", "labels": {"sort": kind, "number": str(number)}}
    if runs_for is not None:
        metadata["annotations"] = {RUN_SECONDS: str(runs_for)}
    containers = [{"name": "main", "image": "busybox:1"}]
    spec = {"restartPolicy": "Never", "schedulerName": "nobody", "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(autouse=True)
async def nothing_open() -> AsyncIterator[None]:
    """A test ends with no connection left half closed, of which the next would hear."""
    yield
    await hung_up()


@pytest.fixture
async def pods(real_api: Api, real_namespace: str, kubernetes: Server) -> AsyncIterator[str]:
    """The path of the pods of a namespace with a quota, in which a kubelet ends those that have a run time."""
    base = f"/api/v1/namespaces/{real_namespace}"
    quota = {"metadata": {"name": "team"}, "spec": {"hard": {"pods": str(HARD)}}}
    assert (await real_api.post(f"{base}/resourcequotas", quota)).status == 201
    await used(real_api, real_namespace, 0)
    at = KubeletServer(kubernetes.url, {"Authorization": f"Bearer {kubernetes.token('admin')}"}, kubernetes.ssl())
    async with Kubelet(at, namespace=real_namespace, starts=False):
        yield f"{base}/pods"


async def used(api: Api, namespace: str, count: int) -> None:
    """Wait until the quota says that so many pods are charged."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/team"
    await api.until(path, lambda quota: quota.get("status", {}).get("used", {}).get("pods") == str(count))


async def counted(api: Api, namespace: str, count: int) -> None:
    """Wait until the quota counts so many pods, ours and strangers'.

    A recount may miss the newest pod and stay wrong until something happens: one more pod comes and goes.
    """
    room = Room(api, namespace)
    await room.until_created("pods", quota_pod("spare"))
    await room.without_spare({"pods": str(count)}, "team")


async def stored(api: Api, pods: str) -> Counter[tuple[str, str]]:
    """Return how many pods there are of each sort and number."""
    items = (await api.get(pods)).json["items"]
    return Counter((each["metadata"]["labels"]["sort"], each["metadata"]["labels"]["number"]) for each in items)


def all_of(kind: str, count: int) -> dict[tuple[str, str], int]:
    """Return what ``stored`` says of pods that exist once each."""
    return {(kind, str(number)): 1 for number in range(count)}


class Stream:
    """Small pods, one after the other from each of ``SMALL`` tasks, until it is stopped."""

    def __init__(self, core: Any, namespace: str) -> None:
        self.went_in: list[float] = []
        self._core, self._namespace = core, namespace
        self._asked = 0
        self._stopped = False
        self._news: asyncio.Queue[float] = asyncio.Queue()

    async def press(self) -> None:
        while not self._stopped:
            number, self._asked = self._asked, self._asked + 1
            await self._core.create_namespaced_pod(
                self._namespace, pod("small", number, RUNS_FOR[number % len(RUNS_FOR)])
            )
            self.went_in.append(time.monotonic())
            self._news.put_nowait(self.went_in[-1])

    async def count(self, number: int) -> float:
        """Return how many pods go in per second, over the next so many."""
        while not self._news.empty():
            self._news.get_nowait()
        began = time.monotonic()
        for _ in range(number):
            await self._news.get()
        return number / (time.monotonic() - began)

    def ahead_of(self, joined: float) -> float:
        """Return how long it took until those were in that stood in line at that time: two seconds."""
        return [when for when in self.went_in if when > joined][SMALL - 1] - joined

    def between(self, began: float, ended: float) -> float:
        """Return how many pods went in per second meanwhile."""
        return sum(began <= when <= ended for when in self.went_in) / (ended - began)

    def stop(self) -> None:
        self._stopped = True


async def among_small_pods(server: Server, namespace: str, overtaken_for: float) -> tuple[float, float, float, int]:
    """Let a gang join a stream of small pods; room is kept for it once it was overtaken for so many seconds.

    Returns the seconds until those ahead of it were in, and until it was; the small pods' throughput meanwhile as a
    share of that without it, and how many of them went in all in all.
    """
    configuration = configuration_of(server, OBSERVER)
    gate = AsyncGate(policy=Policy(overtaken_for_max=overtaken_for), clock=time.monotonic)
    members = [pod("member", number, 1.0) for number in range(MEMBERS)]
    with observed(gate, configuration, OBSERVER, [namespace]):
        async with (
            AsyncGatedApiClient(aio_configuration(configuration), gate=gate) as made,
            asyncio.TaskGroup() as all_,
        ):
            core: Any = aio.CoreV1Api(made)
            stream = Stream(core, namespace)
            for _ in range(SMALL):
                all_.create_task(stream.press())
            await stream.count(2 * HARD)
            without = await stream.count(COUNTED)
            joined = time.monotonic()
            await create_gang(core, members, namespace=namespace, timeout=TIMEOUT)
            came = time.monotonic()
            stream.stop()
    assert gate.counts.failed_open == 0
    share = stream.between(joined, came) / without
    return stream.ahead_of(joined), came - joined, share, len(stream.went_in)


async def test_a_gang_gets_in_among_small_pods_that_hardly_notice(
    kubernetes: Server, real_api: Api, real_namespace: str, pods: str, say: Callable[[str], None]
) -> None:
    """From when it is overtaken: ``overtaken_for_max``, the longest remaining run time and a wake; small pods go in."""
    expected: Counter[tuple[str, str]] = Counter()
    missed: list[str] = []
    for overtaken_for in OVERTAKEN_FOR:
        ahead, seconds, share, small = await among_small_pods(kubernetes, real_namespace, overtaken_for)
        line = (
            f"a gang of {MEMBERS} under a quota of {HARD} was in after {seconds:.2f} s: those ahead of it took "
            f"{ahead:.2f} s, then it was overtaken for {overtaken_for:g} s; small pods at {share:.2f} of their "
            "throughput without it"
        )
        say(line)
        expected.update(all_of("small", small))
        expected.update(all_of("member", MEMBERS))
        assert await stored(real_api, pods) == expected
        if seconds <= ahead + overtaken_for + max(RUNS_FOR) + WAKE and share >= THROUGHPUT:
            return
        missed.append(line)
    raise AssertionError("\n".join(["no run met the bounds:", *missed]))


async def test_a_gang_completes_when_a_strangers_pods_have_ended(
    kubernetes: Server, real_api: Api, real_namespace: str, pods: str
) -> None:
    """A stranger takes what is reserved: the rest waits for its pods to end; no member is lost or doubled."""
    configuration = configuration_of(kubernetes, OBSERVER)
    gate = Gate()
    members = [pod("member", number) for number in range(MEMBERS)]

    def work(loop: asyncio.AbstractEventLoop) -> int:
        with GatedApiClient(configuration, gate=gate) as made:
            core: Any = client.CoreV1Api(made)
            with gang(core, members, namespace=real_namespace, timeout=TIMEOUT) as admitted:
                for each in members[:3]:
                    core.create_namespaced_pod(real_namespace, each)
                asyncio.run_coroutine_threadsafe(stranger(real_api, pods, HARD - 3, 1.0), loop).result(TIMEOUT)
                with waiting(timeout=TIMEOUT):
                    for each in members[3:]:
                        core.create_namespaced_pod(real_namespace, each)
                return admitted.drawn

    with observed(gate, configuration, OBSERVER, [real_namespace]):
        assert await asyncio.to_thread(work, asyncio.get_running_loop()) == MEMBERS
    assert await stored(real_api, pods) == {**all_of("member", MEMBERS), **all_of("stranger", HARD - 3)}
    await counted(real_api, real_namespace, MEMBERS)
    assert gate.counts.failed_open == 0


async def test_a_gang_is_given_back_whole_if_a_stranger_stays(
    kubernetes: Server, real_api: Api, real_namespace: str, pods: str
) -> None:
    """Its limit passes: what was created is deleted again, and nothing stays reserved."""
    configuration = configuration_of(kubernetes, "tester")  # who may delete
    gate = Gate()
    members = [pod("member", number) for number in range(MEMBERS)]

    def work(loop: asyncio.AbstractEventLoop) -> GangFailed:
        with GatedApiClient(configuration, gate=gate) as made:
            core: Any = client.CoreV1Api(made)
            created = core.create_namespaced_pod

            def with_a_stranger(namespace: str, body: Any) -> Any:
                got = created(namespace, body)
                if body is members[2]:
                    asyncio.run_coroutine_threadsafe(stranger(real_api, pods, HARD - 3, None), loop).result(TIMEOUT)
                return got

            core.create_namespaced_pod = with_a_stranger
            with pytest.raises(GangFailed) as caught:
                create_gang(core, members, namespace=real_namespace, timeout=TIMEOUT, limit=2.0)
            return caught.value

    with observed(gate, configuration, OBSERVER, [real_namespace]):
        failed = await asyncio.to_thread(work, asyncio.get_running_loop())
        assert (len(failed.created), failed.left) == (3, [])
        await real_api.until(pods, lambda listed: len(listed["items"]) == HARD - 3)
        assert await stored(real_api, pods) == all_of("stranger", HARD - 3)
        await counted(real_api, real_namespace, HARD - 3)
        seen = gate.ledger.snapshot().namespaces[real_namespace].quotas["team"]["pods"]
        assert seen.reserved == 0
    assert gate.counts.failed_open == 0


async def stranger(api: Api, pods: str, count: int, runs_for: float | None) -> None:
    for number in range(count):
        made = await api.post(pods, pod("stranger", number, runs_for))
        assert made.status == 201, made.text


async def test_a_gang_survives_two_kills(kubernetes: Server, real_api: Api, real_namespace: str, pods: str) -> None:
    """Killed after three members, then at any moment: all are there in the end, none twice.

    A stranger took the room that nobody reserved any more: the rest waits until all of it fits.
    """
    before = await creates(real_api)
    async with asyncio.timeout(4 * TIMEOUT):
        async with process(kubernetes, real_namespace, pause_after=3) as first:
            assert await lines(first, 5) == ["waits", "whole True", "0", "1", "2"]
            first.send_signal(signal.SIGKILL)
        await stranger(real_api, pods, HARD - 3, None)
        async with process(kubernetes, real_namespace) as second:
            assert await lines(second, 1) == ["waits"]
            assert (await real_api.delete(f"{pods}?labelSelector=sort%3Dstranger")).status == 200
            assert await lines(second, 5) == ["whole True", "0", "1", "2", "3"]
            second.send_signal(signal.SIGKILL)
        async with process(kubernetes, real_namespace) as third:
            numbers = await lines(third, 2 + MEMBERS)
            assert await third.wait() == 0
    assert numbers[-MEMBERS:] == [str(number) for number in range(MEMBERS)]
    listed = (await real_api.get(pods)).json["items"]
    assert Counter(each["metadata"]["labels"]["number"] for each in listed) == {str(n): 1 for n in range(MEMBERS)}
    await counted(real_api, real_namespace, MEMBERS)
    answers = await creates(real_api)
    answers.subtract(before)
    assert answers["409"] == 0


async def lines(running: asyncio.subprocess.Process, count: int) -> list[str]:
    assert running.stdout is not None
    return [(await running.stdout.readline()).decode().strip() for _ in range(count)]


@asynccontextmanager
async def process(
    server: Server, namespace: str, pause_after: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the process that creates the gang, and end it."""
    asked = {
        "kubeconfig": str(server.kubeconfig(OBSERVER)),
        "namespace": namespace,
        "members": MEMBERS,
        "timeout": TIMEOUT,
        "pause_after": pause_after,
    }
    command = (sys.executable, "-m", "tests.cluster.gating.gang_process", json.dumps(asked))
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, start_new_session=True)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()

"""Virtual time, and the quota admission simulated in it: it has the races and the wording of the real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.rejections import Lane, read_rejection
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.lab.replay.virtual_time import (
    Latencies,
    Quota,
    QuotaAdmission,
    StuckError,
    charge_of,
    run_virtual,
)
from backoff_ctrl.k8s.lab.replay.workload import Pod, Workload, in_nano


def test_an_hour_passes_at_once() -> None:
    """The loop's clock advances, the real one does not."""

    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run_virtual(main()) == 3600.0
    assert time.monotonic() - began < 3600


def test_tasks_wake_in_the_order_of_their_times() -> None:
    """In whatever order they were started."""
    woken: list[tuple[float, str]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((asyncio.get_running_loop().time(), name))

    async def main() -> None:
        await asyncio.gather(sleeper("c", 3), sleeper("a", 0.5), sleeper("b", 1.25))

    run_virtual(main())
    assert woken == [(0.5, "a"), (1.25, "b"), (3.0, "c")]


def test_time_limits_work() -> None:
    """``asyncio.timeout`` is a timer like any other."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 7.0


def test_a_program_that_would_hang_is_an_error() -> None:
    """All its tasks wait and there is no timer."""

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="no timer is set"):
        run_virtual(main())


def pod(name: str, cpus: int = 1, gpus: int = 0, run_time: float = 100.0) -> Pod:
    """A pod in the only namespace, with whole CPUs."""
    return Pod(name, "ls", 0.0, run_time, {"limits.cpu": cpus * 1000, "requests.nvidia.com/gpu": gpus})


def on_admission(
    play: Callable[[QuotaAdmission], Awaitable[Any]],
    *,
    cpus: int = 2,
    gpus: int = 1,
    latencies: Latencies | None = None,
) -> Any:
    """Run ``play`` against a quota of CPUs and GPUs, in virtual time."""
    quota = {"limits.cpu": cpus * 1000, "requests.nvidia.com/gpu": gpus}

    async def main() -> Any:
        return await play(QuotaAdmission(Workload((), {"ls": quota}), latencies=latencies))

    return run_virtual(main())


async def create(cluster: QuotaAdmission, asked: Pod) -> Answer:
    """Send a pod's create."""
    return await cluster.create("ls", asked.manifest())


def test_the_refusal_names_only_what_is_exceeded_in_the_servers_words() -> None:
    """With sorted keys and canonical quantities; our parser classifies it into the quota lane."""

    async def play(cluster: QuotaAdmission) -> Answer:
        await create(cluster, pod("first", cpus=1, gpus=1))
        return await create(cluster, pod("second", cpus=1, gpus=1))

    answer = on_admission(play)
    assert answer.status == 403
    document = answer.json()
    assert document["message"] == (
        'pods "second-" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=1, '
        "used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1"
    )
    assert (document["reason"], document["details"]) == ("Forbidden", {"name": "second-", "kind": "pods"})
    assert read_rejection(answer.status, answer.headers, answer.body).lane is Lane.QUOTA


def test_exactly_the_quota_fits_and_one_more_does_not() -> None:
    """A demand equal to the room is admitted."""

    async def play(cluster: QuotaAdmission) -> list[int]:
        return [(await create(cluster, pod(f"p{i}"))).status for i in range(3)]

    assert on_admission(play) == [201, 201, 403]


def test_creates_at_one_instant_never_go_over_the_quota() -> None:
    """The charge is made with the check, not with the answer."""

    async def play(cluster: QuotaAdmission) -> QuotaAdmission:
        await asyncio.gather(*(create(cluster, pod(f"p{i}")) for i in range(20)))
        return cluster

    record = on_admission(play).record
    assert (record.creates, record.refused, sum(record.admitted.values())) == (20, 18, 2)


def test_an_ended_pod_frees_nothing_before_the_quota_controller_has_run() -> None:
    """Admission considers only ``status.used``."""

    async def play(cluster: QuotaAdmission) -> list[int]:
        statuses = [(await create(cluster, pod("short", cpus=2, run_time=1.0))).status]
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1.0 + 0.0015 - loop.time())  # the pod ends at this instant
        statuses.append((await create(cluster, pod("eager", cpus=2))).status)
        await asyncio.sleep(0.01)
        statuses.append((await create(cluster, pod("calm", cpus=2))).status)
        return statuses

    assert on_admission(play, latencies=Latencies(release=0.004)) == [201, 403, 201]


def test_the_watch_event_of_a_charge_comes_before_the_answer() -> None:
    """Unless it is a late one."""

    async def play(cluster: QuotaAdmission) -> list[str]:
        seen: list[str] = []
        cluster.watch(lambda quota: seen.append(f"event {quota.used['limits.cpu']}"))
        await create(cluster, pod("p"))
        return [*seen, "answer"]

    assert on_admission(play, latencies=Latencies(late_share=0.0)) == ["event 0", "event 1000000000", "answer"]
    assert on_admission(play, latencies=Latencies(late_share=1.0)) == ["event 0", "answer"]


def test_a_lagging_admission_cache_refuses_a_create_sent_on_the_event_but_not_2_ms_later() -> None:
    """As on real servers, where it concerns 2-4 % of creates sent at once, and none sent after the settle time."""

    async def play_after(delay: float, cluster: QuotaAdmission) -> int:
        news = asyncio.Event()

        def seen(quota: Quota) -> None:
            if quota.used["limits.cpu"] == 0 and cluster.record.creates:
                news.set()

        cluster.watch(seen)
        await create(cluster, pod("first", cpus=2, run_time=1.0))
        await news.wait()
        await asyncio.sleep(delay)
        return (await create(cluster, pod("second", cpus=2))).status

    trailing = Latencies(trailing_share=1.0)
    assert on_admission(lambda cluster: play_after(0.0, cluster), latencies=trailing) == 403
    assert on_admission(lambda cluster: play_after(0.002, cluster), latencies=trailing) == 201


def test_a_created_pod_can_be_looked_up_by_the_name_in_its_answer() -> None:
    """An unknown name is a 404."""

    async def play(cluster: QuotaAdmission) -> tuple[Answer, Answer]:
        stored = (await create(cluster, pod("p"))).json()
        assert stored is not None
        return await cluster.look_up("ls", stored["metadata"]["name"]), await cluster.look_up("ls", "nobody")

    found, missing = on_admission(play)
    assert (found.status, missing.status) == (200, 404)


def test_its_own_charge_agrees_with_the_footprint_of_the_gate() -> None:
    """The two are computed by independent code."""
    body = pod("p", cpus=3, gpus=1).manifest()
    charged = {name: amount for name, amount in charge_of(body).items() if amount}
    assert charged.items() <= dict(footprint(body, resource="pods").amounts).items()
    assert charged.items() >= in_nano({"limits.cpu": 3000, "requests.nvidia.com/gpu": 1}).items()

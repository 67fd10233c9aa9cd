"""Jobs are read in the background: the stalest first, within the rate, and one that fails delays no other."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.gate.runtime.places import Places
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, queued, running, success
from backoff_ctrl.k8s.tasks.plugins.web_protocol import RateLimit
from backoff_ctrl.k8s.tasks.services.webapi.pacing import Pacer, Rates
from backoff_ctrl.k8s.tasks.services.webapi.refreshing import NetworkFaultError, Refresher
from backoff_ctrl.k8s.tasks.services.webapi.settings import Caching
from tests.kit.virtual_tests import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from backoff_ctrl.k8s.tasks.plugins.core import Key


class Bench:
    """A refresher, when each job was read, and who was woken."""

    def __init__(self, caching: Caching, limit: RateLimit) -> None:
        self.reads: dict[Key, list[float]] = defaultdict(list)
        self.woken: Counter[Key] = Counter()
        self.caching = caching
        workers = Places(lambda places, _: places.taken[()] < self.caching.workers)
        pacer = Pacer(Rates(limit, limit), rng=random.Random(1))
        self.refresher = Refresher(pacer, lambda: self.caching, self._wake, workers)
        self.loop = asyncio.get_running_loop()
        self.start = self.loop.time()

    def _wake(self, key: Key) -> None:
        self.woken[key] += 1

    def follow(self, uid: str, answer: Callable[[], Awaitable[PhaseInfo]] | None = None) -> Key:
        key = uid, 0

        async def read() -> PhaseInfo:
            self.reads[key].append(self.loop.time() - self.start)
            return running("it runs") if answer is None else await answer()

        self.refresher.follow(key, read)
        return key


@asynccontextmanager
async def bench(**caching: object) -> AsyncIterator[Bench]:
    found = Bench(Caching.model_validate(caching), RateLimit(30, 300))
    try:
        yield found
    finally:
        await found.refresher.aclose()


@in_virtual_time
async def test_a_job_is_read_at_once_and_then_each_interval() -> None:
    async with bench() as here:
        key = here.follow("a")
        await asyncio.sleep(95)
        assert here.reads[key] == pytest.approx([0, 30, 60, 90])
        assert here.woken[key] == 1  # nothing was new after the first read


@pytest.mark.parametrize(
    ("created", "times"), [(None, [0, 1, 3, 7, 15, 31, 61]), (queued("there"), [1, 3, 7, 15, 31, 61])]
)
@in_virtual_time
async def test_a_job_that_has_not_begun_is_read_soon_then_later(created: PhaseInfo | None, times: list[float]) -> None:
    """It may begin at any moment; from then on once an interval. ``created``: what the answer to its create says."""
    async with bench() as here:
        waits, runs = ("waits", 0), ("runs", 0)

        def answering(key: Key) -> Callable[[], Awaitable[PhaseInfo]]:
            async def read() -> PhaseInfo:
                here.reads[key].append(here.loop.time() - here.start)
                return running("it runs") if key == runs and len(here.reads[key]) == 3 else queued("it waits")

            return read

        for key in (waits, runs):
            here.refresher.follow(key, answering(key), created)
        await asyncio.sleep(65)
        assert here.reads[waits] == pytest.approx(times)
        begun = times[2]
        assert here.reads[runs][:5] == pytest.approx([*times[:3], begun + 30, begun + 30 + (8 if created else 4)])


@in_virtual_time
async def test_more_jobs_than_the_rate_lets_through_are_read_in_turn() -> None:
    """Of 3,000 jobs at 30 reads a second, none is older than 1.1 times 100 s; never more than 300 + 30 t reads."""
    async with bench() as here:
        keys = [here.follow(f"job-{number}") for number in range(3000)]
        await asyncio.sleep(500)
        times = sorted(at for each in here.reads.values() for at in each)
        for number, at in enumerate(times, 1):
            assert number <= 300 + 30 * at + 1e-6
        ages = [b - a for key in keys for a, b in zip(here.reads[key], here.reads[key][1:], strict=False)]
        assert max(ages) <= 1.1 * 3000 / 30
        assert here.refresher.stalest() <= 1.1 * 3000 / 30


@in_virtual_time
async def test_a_job_that_fails_is_read_again_soon_then_later_and_delays_no_other() -> None:
    async with bench() as here:

        async def fail() -> PhaseInfo:
            raise ValueError("not this one")

        bad, good = here.follow("bad", fail), here.follow("good")
        await asyncio.sleep(100)
        assert here.reads[bad] == pytest.approx([0, 1, 3, 7, 15, 31, 61, 91])
        assert here.reads[good] == pytest.approx([0, 30, 60, 90])
        job = here.refresher.latest(bad)
        assert job is not None
        assert (job.failures, job.error) == (8, "not this one")


@in_virtual_time
async def test_a_good_read_resets_the_count() -> None:
    """Flyte never did: five failures in a month ended a task."""
    async with bench() as here:
        answers: list[ValueError | PhaseInfo] = [ValueError("a"), running("now"), ValueError("b")]

        async def read() -> PhaseInfo:
            found = answers.pop(0) if answers else running("now")
            if isinstance(found, ValueError):
                raise found
            return found

        key = here.follow("a", read)
        await asyncio.sleep(2)
        job = here.refresher.latest(key)
        assert job is not None
        assert (job.failures, job.error) == (0, "")


@in_virtual_time
async def test_a_network_fault_is_no_failure() -> None:
    async with bench() as here:

        async def away() -> PhaseInfo:
            raise NetworkFaultError("refused") from OSError("refused")

        key = here.follow("a", away)
        await asyncio.sleep(600)
        job = here.refresher.latest(key)
        assert job is not None
        assert (job.failures, job.error) == (0, "refused")
        assert job.faults > 5


@in_virtual_time
async def test_so_many_are_read_at_a_time_and_a_slow_one_takes_one_worker() -> None:
    async with bench(workers=2) as here:
        under_way = most = 0

        async def read() -> PhaseInfo:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(1)
            under_way -= 1
            return success()

        async def for_ever() -> PhaseInfo:
            await asyncio.sleep(10_000)
            return success()

        here.follow("slow", for_ever)
        keys = [here.follow(f"job-{number}", read) for number in range(10)]
        await asyncio.sleep(15)
        assert most == 1
        assert all(here.reads[key] for key in keys)
        here.caching = Caching(workers=5)  # settings are live
        for number in range(10):
            here.follow(f"further-{number}", read)
        await asyncio.sleep(10)
        assert most == 4


@in_virtual_time
async def test_a_forgotten_job_is_read_no_more() -> None:
    async with bench() as here:
        key = here.follow("a")
        await asyncio.sleep(1)
        here.refresher.forget(key)
        await asyncio.sleep(100)
        assert len(here.reads[key]) == 1
        assert len(here.refresher) == 0
        assert here.refresher.latest(key) is None


@in_virtual_time
async def test_a_job_followed_again_is_read_once_an_interval() -> None:
    """Its old turn is dropped."""
    async with bench() as here:
        key = here.follow("a")
        await asyncio.sleep(1)
        here.refresher.forget(key)
        here.follow("a")
        await asyncio.sleep(35)
        assert here.reads[key] == pytest.approx([0, 1, 31])

"""Token pools: how soon a released token is granted again, what a waiting attempt costs, and a manager that is killed.

Usage: python -m benchmarks.token_pools [--waiting 10000] [--kills 8]

The first two runs are without a manager. The first has a pool of 20, project 10 and namespace 5, and 500 tasks of 8
projects with two namespaces each, each of which keeps its token for 5 to 20 ms. A count of its own, by hand, looks
after every step whether a limit is passed and whether somebody waits who fits, and for how long. The second lets so
many tasks wait behind a full pool, and releases tokens then. In the third a manager in a process of its own carries out
500 tasks at a service which counts for itself what it runs, and is killed with SIGKILL so often; in the fourth the jobs
are read every 5 s, as those of most services are. The service is idle while it could run the job of one more task, from
the time on when a new manager has filled all room. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import tracemalloc
from collections import Counter
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final, Self

from backoff_ctrl.k8s.tasks.plugins.protocol import TaskMetadata
from backoff_ctrl.k8s.tasks.services.webapi.pools import PoolLimits, Pools
from tests.tasks.webapi.counted_jobs import Limits, killed_again_and_again

if TYPE_CHECKING:
    from collections.abc import Collection

TOTAL, PROJECT, NAMESPACE = 20, 10, 5
LIMITS: Final = PoolLimits(TOTAL, PROJECT, NAMESPACE)
IDLE_BAR: Final = 0.05
"""Seconds for which a token may be free while somebody waits who fits."""
GRANT_BAR: Final = 0.05
"""Seconds from a release to the call that tells the next one, with the crowd waiting."""
BYTES_BAR: Final = 6000.0
"""Memory of one attempt that waits."""
RELEASES: Final = 300


def task(number: int, projects: int, namespaces: int) -> TaskMetadata:
    """Return one of many tasks, spread over projects, and over the namespaces of each."""
    project = f"project-{number % projects}"
    namespace = f"{project}-{number // projects % namespaces}"
    name = f"task-{number}"
    return TaskMetadata(namespace, name, name, 0, f"{name}-0", project=project, priority=number % 3)


class Free:
    """Who may have a token beside those that have theirs; counted anew."""

    def __init__(self, having: Collection[TaskMetadata]) -> None:
        self._total = len(having)
        self._projects = Counter(each.project for each in having)
        self._namespaces = Counter(each.namespace for each in having)

    def passed(self) -> bool:
        """Say whether a limit is passed."""
        most = max(self._projects.values(), default=0), max(self._namespaces.values(), default=0)
        return self._total > TOTAL or most[0] > PROJECT or most[1] > NAMESPACE

    def for_(self, one: TaskMetadata) -> bool:
        """Say whether there is a token for a task."""
        return (
            self._total < TOTAL
            and self._projects[one.project] < PROJECT
            and self._namespaces[one.namespace] < NAMESPACE
        )


class SharedOut:
    """Tasks that take turns at a pool, and what is measured meanwhile."""

    def __init__(self) -> None:
        self.took: list[float] = []
        """Seconds from a release to the call of who got the token."""
        self.idle = 0.0
        """The longest time, in seconds, for which a token was free while somebody waited who fitted."""
        self.most = 0
        self._pools = Pools()
        self._rng = random.Random(1)
        self._having: dict[str, TaskMetadata] = {}
        self._waiting: dict[str, TaskMetadata] = {}
        self._released_at = 0.0
        self._idle_since: float | None = None
        self._over = asyncio.Event()

    async def run(self, tasks: int) -> Self:
        """Let so many take their turns."""
        for number in range(tasks):
            one = task(number, 8, 2)
            key = one.uid, 0
            self._waiting[one.uid] = one
            self._pools.ask("bench", "default", key, one, LIMITS, partial(self._told, one))
            if self._pools.has(key):
                self._granted(one)
        await self._over.wait()
        await self._pools.aclose()
        return self

    def _told(self, one: TaskMetadata) -> None:
        self.took.append(perf_counter() - self._released_at)
        self._granted(one)

    def _granted(self, one: TaskMetadata) -> None:
        del self._waiting[one.uid]
        self._having[one.uid] = one
        asyncio.get_running_loop().call_later(self._rng.uniform(0.005, 0.02), self._ended, one)
        self._look()

    def _ended(self, one: TaskMetadata) -> None:
        del self._having[one.uid]
        self._look()
        self._released_at = perf_counter()
        self._pools.release((one.uid, 0))
        if not self._having and not self._waiting:
            self._over.set()

    def _look(self) -> None:
        now, free = perf_counter(), Free(self._having.values())
        self.most = max(self.most, len(self._having))
        assert not free.passed(), "a limit is passed"
        if any(free.for_(each) for each in self._waiting.values()):
            self._idle_since = now if self._idle_since is None else self._idle_since
        elif self._idle_since is not None:
            self.idle, self._idle_since = max(self.idle, now - self._idle_since), None


async def shared_out(tasks: int) -> SharedOut:
    """Let so many tasks take turns."""
    return await SharedOut().run(tasks)


async def crowd(count: int, projects: int, namespaces: int) -> tuple[float, float, list[float]]:
    """Let so many wait; return the seconds and the bytes that each took, and the times from releases to calls."""
    pools, told = Pools(), asyncio.Queue[str]()
    holders = [task(number, projects, namespaces) for number in range(20)]
    for one in holders:
        pools.ask("bench", "default", (one.uid, 0), one, LIMITS, lambda: None)
    tasks = [task(number, projects, namespaces) for number in range(20, 20 + count)]
    gc.collect()
    began = perf_counter()
    for one in tasks:
        pools.ask("bench", "default", (one.uid, 0), one, LIMITS, partial(told.put_nowait, one.uid))
    each_took = (perf_counter() - began) / count
    running, took = [one.uid for one in holders], []
    for _ in range(RELEASES):
        await asyncio.sleep(0)
        began = perf_counter()
        pools.release((running.pop(0), 0))
        running.append(await told.get())
        took.append(perf_counter() - began)
    await pools.aclose()
    return each_took, await memory(count, projects, namespaces), took


async def memory(count: int, projects: int, namespaces: int) -> float:
    """Return the bytes of one attempt that waits among so many."""
    pools, limits = Pools(), PoolLimits(1)
    tasks = [task(number, projects, namespaces) for number in range(count + 50)]

    def nothing() -> None: ...

    for one in tasks[:50]:
        pools.ask("bench", "default", (one.uid, 0), one, limits, nothing)
    gc.collect()
    tracemalloc.start()
    for one in tasks[50:]:
        pools.ask("bench", "default", (one.uid, 0), one, limits, nothing)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await pools.aclose()
    return used / count


def of(values: list[float], share: float) -> float:
    """Return a percentile in milliseconds."""
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))]


def grants(took: list[float]) -> str:
    """Say how soon grants followed releases."""
    return f"  a grant after a release: {of(took, 0.5):.2f} ms, p99 {of(took, 0.99):.2f}, most {of(took, 1):.2f}\n"


def main() -> int:
    """Print the figures; 1: a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=8)
    asked = parser.parse_args()
    done = asyncio.run(shared_out(500))
    sys.stdout.write(
        f"500 tasks, 8 projects: no limit passed, {done.most} tokens at most; "
        f"a token free while somebody fits for {1000 * done.idle:.2f} ms at most\n{grants(done.took)}"
    )
    missed = done.idle > IDLE_BAR
    for projects, namespaces in ((8, 2), (100, 3)):
        each, size, took = asyncio.run(crowd(asked.waiting, projects, namespaces))
        sys.stdout.write(
            f"{asked.waiting:,} waiting in {projects * namespaces} namespaces: {1e6 * each:.0f} us "
            f"and {size:,.0f} bytes each\n{grants(took)}"
        )
        missed = missed or of(took, 0.99) > 1000 * GRANT_BAR or size > BYTES_BAR
    for tasks, read in ((500, 0.0), (160, 1.0)) if asked.kills else ():
        missed = killed(tasks, read, asked.kills) or missed
    return int(missed)


def killed(tasks: int, read: float, kills: int) -> bool:
    """Print what came of tasks whose manager was killed; say whether a bar is missed.

    ``read``: the share of jobs that are read.
    """
    with tempfile.TemporaryDirectory() as folder:
        limits = Limits(TOTAL, PROJECT, NAMESPACE)
        proof = asyncio.run(killed_again_and_again(Path(folder), tasks, 8, limits, kills, read=read, longest=3.0))
    jobs = proof.jobs
    sys.stdout.write(
        f"{tasks} tasks, {proof.kills} SIGKILLs, {proof.seconds:.0f} s, {'read' if read else 'answered'} jobs: "
        f"{jobs.most} ran at most, limits passed {len(jobs.passed)} times, "
        f"{jobs.posts - len(jobs.jobs)} creates more than jobs, tokens left {proof.left}\n"
    )
    if not read:
        sys.stdout.write(
            f"  idle while somebody fits: {of(jobs.idle, 0.5):.1f} ms, p99 {of(jobs.idle, 0.99):.1f}, "
            f"most {of(jobs.idle, 1):.1f}\n"
        )
    good = proof.phases == {("Success", 0): tasks} and not jobs.passed and proof.left == {"tokens": "0"}
    return not good or (not read and of(jobs.idle, 0.99) > 1000 * IDLE_BAR)


if __name__ == "__main__":
    sys.exit(main())

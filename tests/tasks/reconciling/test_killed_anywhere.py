"""A manager that is killed between any two things that it does, again and again: each task still ends once.

A kill is an exception that nothing catches, raised where the small cluster or the store is reached; the next manager
begins with the file alone. Each attempt's object is made at most once, and what each task ends as is what it would have
ended as without a kill.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.reconciler import Reconciler
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.stepping import OVER
from backoff_ctrl.k8s.tasks.store import Stored, Wish
from tests.tasks.reconciling.running import CONFIG, all_over, news
from tests.tasks.reconciling.small_cluster import SmallCluster, SmallManager
from tests.tasks.tasks_written import NAMESPACE, wish

pytestmark = pytest.mark.long
NAMES = ("a", "b", "c", "d")
ENDS = st.lists(st.sampled_from(["ok", "user", "system", "fatal"]), min_size=1, max_size=4)


class Killed(BaseException):
    """The manager is gone."""


class Eager(random.Random):
    """Draws no delays, so that retries come at once."""

    def uniform(self, a: float, b: float) -> float:
        return a


class FragileStore(SqliteStore):
    """A store whose user may be killed before and after each status is written."""

    cluster: SmallCluster

    async def set_status(self, uid: str, version: int, status: TaskStatus, *, open_: bool) -> int:
        self.cluster.on_step()
        written = await super().set_status(uid, version, status, open_=open_)
        self.cluster.on_step()
        return written


def outcome(ends: list[str], user: int, system: int) -> tuple[str, int]:
    """The phase and the attempt that a task ends with, by the plain rule."""
    budget = {"user": user, "system": system}
    for attempt in range(100):
        end = ends[min(attempt, len(ends) - 1)]
        if end == "ok":
            return "Success", attempt
        if end == "fatal" or budget[end] == 0:
            return "PermanentFailure", attempt
        budget[end] -= 1
    raise AssertionError


@settings(max_examples=60)
@given(
    ends=st.fixed_dictionaries(dict.fromkeys(NAMES, ENDS)),
    budgets=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    kills=st.lists(st.integers(1, 40), max_size=8),
    aborted=st.none() | st.tuples(st.sampled_from(NAMES), st.integers(0, 4)),
    chained=st.booleans(),
)
def test_each_task_ends_once(
    ends: dict[str, list[str]],
    budgets: tuple[int, int],
    kills: list[int],
    aborted: tuple[str, int] | None,
    chained: bool,
) -> None:
    """Whatever is killed when."""
    user, system = budgets
    cluster = SmallCluster(ends=ends)
    wishes = [
        wish(name, retries={"user": user, "system": system}, needs=[NAMES[number - 1]] if chained and number else [])
        for number, name in enumerate(NAMES)
    ]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        over = asyncio.run(lives(Path(folder) / "t.db", cluster, wishes, list(kills), aborted))
    assert set(cluster.made.values()) <= {1}, "an attempt's object was made twice"
    assert cluster.living == set()
    failed_before = False
    for number, task in enumerate(over):
        assert [event.phase in OVER for event in task.status.history].count(True) == 1, task.status.history
        expected = outcome(ends[NAMES[number]], user, system)
        if aborted is not None and (task.name == aborted[0] or chained):
            continue  # it may have ended before the wish, or because of it
        if chained and failed_before:
            assert task.status.code == "DependencyFailed"
            assert not any(made.startswith(f"{task.name}-") for made in cluster.made)
            continue
        failed_before = expected[0] != "Success"
        assert (task.status.phase, task.status.attempt) == expected
        attempts = [made for made in cluster.made if made.startswith(f"{task.name}-")]
        assert len(attempts) == expected[1] + 1


async def lives(
    file: Path, cluster: SmallCluster, wishes: list[Wish], kills: list[int], aborted: tuple[str, int] | None
) -> list[Stored]:
    """Run managers one after the other, each until it is killed; the last one until all has ended."""
    async with SqliteStore(file) as store:
        await store.create(wishes)
    life = 0
    while True:
        left = kills.pop() if kills else None

        def step() -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left <= 0:
                    raise Killed

        async with FragileStore(file) as store:
            store.cluster = cluster
            if aborted is not None and life == aborted[1]:
                await store.request_abort(NAMESPACE, aborted[0])
            cluster.on_step = step
            with suppress(BaseExceptionGroup):
                if await until_over(store, cluster):
                    return await store.list()
            cluster.on_step = lambda: None
        life += 1


async def until_over(store: SqliteStore, cluster: SmallCluster) -> bool:
    """Reconcile until all has ended; a kill ends it as a group of exceptions."""
    reconciler = Reconciler(store, SmallManager(cluster), lambda: CONFIG, rng=Eager())
    async with asyncio.TaskGroup() as group:
        work = group.create_task(reconciler.run())
        waking = group.create_task(news(reconciler))
        await all_over(store)
        work.cancel()
        waking.cancel()
    return True

"""An attempt that runs for longer than its deadline ends as a failure of its user, and is retried as one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.model import Retried, TaskStatus, shown
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.stepping import Step, Stepper
from tests.tasks.reconciling.running import CONFIG, all_over, reconciling
from tests.tasks.reconciling.small_cluster import SmallCluster, SmallManager
from tests.tasks.tasks_written import NAMESPACE, until, wish

BEGUN = 1_790_000_000.0


async def two_looks(cluster: SmallCluster) -> None:
    """Wait until the manager has looked at the task twice: the second look began after this."""
    before = len(cluster.steps)

    async def looked() -> bool:
        return len(cluster.steps) >= before + 2

    await until(looked)


async def test_it_ends_as_failed_and_each_attempt_has_its_own_time(tmp_path: Path) -> None:
    """Its object is gone before the next attempt; the last failure is the task's."""
    cluster = SmallCluster(ends={"long": ["never"]})
    now = [BEGUN]
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("long", deadline="1h", retries={"user": 1})])
        async with reconciling(store, cluster, clock=lambda: now[0]):
            for attempt in (0, 1):

                async def runs(attempt: int = attempt) -> bool:
                    status = (await store.get(NAMESPACE, "long")).status
                    return status.phase == "Running" and status.attempt == attempt

                await until(runs)
                now[0] += 3599
                await two_looks(cluster)
                assert await runs()
                now[0] += 2
            (over,) = await all_over(store)
    status = over.status
    assert (status.phase, status.code, status.kind) == ("PermanentFailure", "AttemptTimeout", "USER")
    assert status.retried == Retried(user=1)
    assert "ran for longer than its deadline of 1h" in status.reason
    assert "Aborted" not in [event.phase for event in status.history]
    assert cluster.living == set()
    assert cluster.made.keys() == cluster.finalized.keys()


async def test_one_that_can_not_be_ended_is_the_last(tmp_path: Path) -> None:
    cluster = SmallCluster(ends={"long": ["never"]}, left="job 7 may still run")
    now = [BEGUN]
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("long", deadline="1h", retries={"user": 1})])

        async def runs() -> bool:
            return (await store.get(NAMESPACE, "long")).status.phase == "Running"

        async with reconciling(store, cluster, clock=lambda: now[0]):
            await until(runs)
            now[0] += 3601
            (over,) = await all_over(store)
    status = over.status
    assert (status.phase, status.code, status.attempt) == ("PermanentFailure", "AttemptTimeout", 0)
    assert "; job 7 may still run" in status.reason


async def stepped(status: TaskStatus, at: float, tmp_path: Path, **spec: Any) -> Step:
    async with SqliteStore(tmp_path / "t.db") as store:
        ((task, _),) = await store.create([wish("t", **spec)])
    stepper = Stepper(SmallManager(SmallCluster(ends={"t": ["never"]})), "s", lambda: CONFIG, lambda: at,
                      random.Random(1))  # fmt: skip
    return await stepper.step(task.with_status(status, 0), {})


@pytest.mark.parametrize(
    ("phase", "runs_since", "after", "deadline", "ends"),
    [
        ("Running", 0, 59, "1m", False),
        ("Running", 0, 60, "1m", True),
        ("Running", 0, 10**6, None, False),
        ("Initializing", None, 10**6, "1m", False),
        ("WaitingForResources", None, 10**6, "1m", False),
        ("Queued", 0, 61, "1m", True),
    ],
)
async def test_time_counts_from_when_it_runs(
    tmp_path: Path, phase: str, runs_since: float | None, after: float, deadline: str | None, ends: bool
) -> None:
    """Not while it waits or its images are pulled; and on, where a pod of it is evicted."""
    since = None if runs_since is None else shown(BEGUN + runs_since)
    status = TaskStatus(phase=phase, since=shown(BEGUN), runs_since=since, plugin_state={"stage": "running"})
    step = await stepped(status, BEGUN + after, tmp_path, **({"deadline": deadline} if deadline else {}))
    assert (step.status.code == "AttemptTimeout") == ends


async def test_it_is_looked_at_when_its_time_is_over(tmp_path: Path) -> None:
    step = await stepped(TaskStatus(), BEGUN, tmp_path, deadline="5s")
    for _ in range(3):
        if step.status.runs_since is None:
            break
        assert step.again is not None
        assert step.again <= 5.5

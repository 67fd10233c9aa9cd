"""Errors that no step should raise: one task's cost it alone its attempts, and never the others or their manager."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.plugins.core import Handled
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext
from backoff_ctrl.k8s.tasks.reconciler import ERRORS_MAX, Reconciler
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import RefusedError, Stored
from tests.tasks.reconciling.running import CONFIG, all_over, news, reconciling
from tests.tasks.reconciling.small_cluster import SmallCluster, SmallManager
from tests.tasks.tasks_written import wish


class AtOnce(random.Random):
    """Draws no delays."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


class Failing(SmallManager):
    """Raises an error at each step of the task ``odd``; says what can't be stored of the task ``strange``."""

    async def handle(self, task: TaskContext, state: dict[str, Any] | None) -> Handled:
        told = await super().handle(task, state)
        if task.metadata.name == "odd" and (told.state or {}).get("looks"):
            raise ZeroDivisionError("of seven by nothing")
        if task.metadata.name == "strange" and (told.state or {}).get("looks"):
            return replace(told, info=replace(told.info, custom={"made of": object()}))
        return told


@pytest.mark.long
async def test_an_attempt_whose_steps_all_fail_is_the_platforms_failure_and_is_retried(tmp_path: Path) -> None:
    """By its budget, with the error in its reason; what can't be stored is such an error, and hurts no other task."""
    cluster = SmallCluster()
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("odd", retries={"system": 1}), wish("strange", retries={"system": 1}), wish("fine")])
        reconciler = Reconciler(store, Failing(cluster), lambda: CONFIG, rng=AtOnce())
        work = [asyncio.create_task(reconciler.run()), asyncio.create_task(news(reconciler))]
        over: dict[str, Stored] = {task.name: task for task in await all_over(store)}
        assert not any(each.done() for each in work)
        for each in work:
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each
    assert over["fine"].status.phase == "Success"
    for name, said in (("odd", "of seven by nothing"), ("strange", "Unable to serialize")):
        status = over[name].status
        assert (status.phase, status.code, status.kind) == ("PermanentFailure", "StepsFailed", "SYSTEM")
        assert f"tried {ERRORS_MAX} times: " in status.reason
        assert said in status.reason
        assert "its one retry after failures of the platform is used up" in status.reason
        assert (status.attempt, status.retried.system) == (1, 1)
    assert sum(cluster.made.values()) == 5
    assert cluster.living == set()


class Choosy(SqliteStore):
    """Never takes the news that a task has succeeded."""

    refused = 0

    async def set_status(self, uid: str, version: int, status: TaskStatus, *, open_: bool) -> int:
        if status.phase == "Success":
            self.refused += 1
            raise RefusedError("422 status.outputs is too deep")
        return await super().set_status(uid, version, status, open_=open_)


async def test_a_status_that_is_refused_for_good_ends_the_attempt(tmp_path: Path) -> None:
    """With a sentence, and without being sent again: its retries are as many further attempts."""
    cluster = SmallCluster()
    async with Choosy(tmp_path / "t.db") as store:
        await store.create([wish("odd", retries={"system": 1})])
        async with reconciling(store, cluster):
            (over,) = await all_over(store)
        assert (over.status.phase, over.status.code) == ("PermanentFailure", "StepsFailed")
        assert "422 status.outputs is too deep" in over.status.reason
        assert store.refused == 2
    assert cluster.living == set()

"""Tasks that ended long ago are forgotten, unless one that has not begun needs them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.collecting import Collector, kept_until
from backoff_ctrl.k8s.tasks.model import TaskStatus, shown
from backoff_ctrl.k8s.tasks.plugins.config import GarbageCollection
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import Stored, StoreError
from tests.tasks.reconciling.running import all_over, reconciling
from tests.tasks.reconciling.small_cluster import SmallCluster
from tests.tasks.tasks_written import NAMESPACE, until, wish

NOW = 1_790_000_000.0
HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY


def ended(*, ago: float, **spec: Any) -> Stored:
    asked = wish("t", **{key: value for key, value in spec.items() if key != "state"})
    status = TaskStatus(phase="Success", ended_at=shown(NOW - ago), plugin_state=spec.get("state"))
    return Stored("u1", 1, NAMESPACE, "t", {}, asked.spec, False, status, 1, False, 0.0)


@pytest.mark.parametrize(
    ("task", "most", "left"),
    [
        (ended(ago=DAY), WEEK, 6 * DAY),
        (ended(ago=WEEK), WEEK, 0),
        (ended(ago=0, ttl="1h"), WEEK, HOUR),
        (ended(ago=0, ttl="240h"), WEEK, WEEK),
        (ended(ago=HOUR), 0, -HOUR),
        (ended(ago=0, ttl="1s", state={"doubt": True}), WEEK, 900),
        (ended(ago=0, ttl="1s", state={"doubt": False}), WEEK, 1),
    ],
)
def test_how_long_a_task_is_kept(task: Stored, most: float, left: float) -> None:
    """As the platform says, shorter if its author does, and while its object may still appear."""
    settings = GarbageCollection(max_ttl=timedelta(seconds=most))
    assert kept_until(task, settings, 900.0) == pytest.approx(NOW + left)


async def names(store: SqliteStore) -> set[str]:
    return {task.name for task in await store.list(limit=100_000)}


async def test_what_is_needed_stays_until_it_is_not(tmp_path: Path) -> None:
    """By a task that waits for another need; a task that was needed once, and has not ended, are no reason."""
    cluster = SmallCluster(ends={"bad": ["fatal"], "long": ["never"]})
    now = [NOW]
    async with SqliteStore(tmp_path / "t.db") as store, reconciling(store, cluster, clock=lambda: now[0]) as reconciler:
        await store.create([wish("done"), wish("bad"), wish("short", ttl="1h"), wish("long", needs=["short"]),
                            wish("waits", needs=["done", "late"])])  # fmt: skip

        async def settled() -> bool:
            phases = {task.name: task.status.phase for task in await store.list()}
            return (phases["long"], phases["bad"]) == ("Running", "PermanentFailure") and not (
                {"done", "short", "bad"} & {task.name for task in await store.list(unfinished=True)}
            )

        await until(settled)
        now[0] += 2 * HOUR
        await reconciler.collector.sweep()
        assert await names(store) == {"done", "bad", "long", "waits"}
        now[0] += WEEK
        await reconciler.collector.sweep()
        assert await names(store) == {"done", "long", "waits"}
        await store.create([wish("late")])

        async def begun() -> bool:
            return (await store.get(NAMESPACE, "waits")).status.phase == "Success"

        await until(begun)
        await reconciler.collector.sweep()
        assert "done" not in await names(store)
        assert reconciler.collector.counts == {"deleted": 3}


async def test_a_look_goes_over_all_pages(tmp_path: Path) -> None:
    """More than a page of them, ended and not, and one that somebody else has run again between list and delete."""
    async with SqliteStore(tmp_path / "t.db") as store:
        made = await store.create([wish(f"t{number}") for number in range(1201)])
        over = TaskStatus(phase="Success", ended_at=shown(NOW - 2 * WEEK))
        await asyncio.gather(
            *(store.set_status(task.uid, 0, over, open_=False) for task, _ in made if task.name != "t700")
        )
        again = await store.get(NAMESPACE, "t5")
        listed = store.list

        async def late(*given: Any, **more: Any) -> list[Stored]:
            found = await listed(*given, **more)
            if given[0] == 0:
                await store.replace(again.uid, wish("t5"))
            return found

        store.list = late  # type: ignore[method-assign]  # what happens between two requests
        collector = Collector(store, GarbageCollection, lambda _: False, lambda: NOW, doubt=900.0)
        await collector.sweep()
        store.list = listed  # type: ignore[method-assign]
        assert await names(store) == {"t5", "t700"}
        assert collector.counts == {"deleted": 1199, "already_gone": 1}


@pytest.mark.parametrize(("interval", "kept"), [(0, True), (60, False)])
async def test_an_interval_of_0_keeps_all(tmp_path: Path, interval: int, kept: bool) -> None:
    """Else the first look is at the start."""
    settings = GarbageCollection(interval=timedelta(seconds=interval), max_ttl=timedelta(0))
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("t"), wish("next")])
        task, _ = await store.list()
        await store.set_status(task.uid, 0, TaskStatus(phase="Success", ended_at=shown(NOW)), open_=False)
        async with reconciling(store, SmallCluster(), gc=lambda: settings):
            await all_over(store)  # with the next task, whose writes come after the first look
            assert ("t" in await names(store)) == kept


async def test_a_store_that_can_not_be_read_now_is_asked_again(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "t.db") as store:

        async def refuse(*_: Any, **__: Any) -> list[Stored]:
            raise StoreError("locked")

        store.list = refuse  # type: ignore[method-assign]
        collector = Collector(store, GarbageCollection, lambda _: False, lambda: NOW, doubt=900.0)
        await collector.sweep()
        assert not collector.counts

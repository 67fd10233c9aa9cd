"""Tasks are carried out to their ends: retries, needs, aborts, turns, and how often anything is written."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind
from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.plugins.phases import failed
from backoff_ctrl.k8s.tasks.queue import KeyedQueue
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.stepping import RETRY_CAP, Stepper, delay_left, judged, reported
from backoff_ctrl.k8s.tasks.store import Stored
from tests.tasks.reconciling.running import CONFIG, all_over, carried_out, reconciling
from tests.tasks.reconciling.small_cluster import SmallCluster, SmallManager
from tests.tasks.tasks_written import NAMESPACE, until, wish


def phases(task: Stored) -> list[str]:
    return [event.phase for event in task.status.history]


async def test_failures_are_retried_by_whose_they_are(tmp_path: Path) -> None:
    """Each attempt is an object of its own; the user's budget is 0 unless given, the platform's 3."""
    cluster = SmallCluster(
        ends={"mended": ["user", "user", "ok"], "user": ["user"], "fatal": ["fatal"], "system": ["system", "ok"]}
    )
    over = await carried_out(
        tmp_path / "t.db",
        cluster,
        [wish("fine"), wish("mended", retries={"user": 2}), wish("user"), wish("fatal", retries={"user": 5}),
         wish("system")],
    )  # fmt: skip
    assert {name: (task.status.phase, task.status.attempt) for name, task in over.items()} == {
        "fine": ("Success", 0),
        "mended": ("Success", 2),
        "user": ("PermanentFailure", 0),
        "fatal": ("PermanentFailure", 0),
        "system": ("Success", 1),
    }
    assert set(cluster.made.values()) == {1}
    assert len(cluster.made) == 8
    assert cluster.made.keys() == cluster.finalized.keys()
    assert cluster.living == set()
    assert "it has no retries after failures of the user" in over["user"].status.reason
    assert over["user"].status.code == "Died"
    assert over["mended"].status.retried.user == 2
    assert all(task.status.ended_at for task in over.values())


async def test_the_budget_of_the_platform_is_bounded(tmp_path: Path) -> None:
    """A task whose platform fails each time ends as failed, and says whose failure it was."""
    cluster = SmallCluster(ends={"t": ["system"]})
    over = await carried_out(tmp_path / "t.db", cluster, [wish("t", retries={"system": 1})])
    assert (over["t"].status.phase, over["t"].status.kind, len(cluster.made)) == ("PermanentFailure", "SYSTEM", 2)


async def test_an_attempt_of_which_something_may_still_run_is_the_last(tmp_path: Path) -> None:
    """Another one would do the work twice; the task says what is left."""
    cluster = SmallCluster(ends={"t": ["system", "ok"]}, left="job 7 may still run")
    status = (await carried_out(tmp_path / "t.db", cluster, [wish("t")]))["t"].status
    assert (status.phase, status.code, status.attempt) == ("PermanentFailure", "Died", 0)
    assert status.reason == "as system; job 7 may still run"


def test_the_delay_is_drawn_grows_and_outlives_a_restart() -> None:
    """Full jitter below 1, 2, 4, ... at most 60 s, written down; a clock that was set back never makes it longer."""
    rng = random.Random(5)
    told = failed("X", "x", kind=ErrorKind.SYSTEM, retryable=True)
    status, delays = TaskStatus(), []
    for _ in range(40):
        status = judged(reported(status, told, {}, 1000.0), {"system": 1000}, 1000.0, rng)
        delays.append(delay_left(status, 1000.0))
    assert all(delay <= min(RETRY_CAP, 2**number) for number, delay in enumerate(delays))
    assert max(delays) > RETRY_CAP / 2
    assert len(set(delays)) > 35
    again = TaskStatus.model_validate_json(status.model_dump_json(by_alias=True))
    assert delay_left(again, 1000.0) == delay_left(status, 1000.0)
    assert delay_left(status, 1000.0 + RETRY_CAP) == 0
    assert delay_left(status, 1000.0 - 10 * RETRY_CAP) == 0


async def test_needs_are_waited_for(tmp_path: Path) -> None:
    """A need may be created later; what needs a failed task fails, and so does what needs that."""
    cluster = SmallCluster(ends={"bad": ["fatal"]})
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("last", needs=["late", "fine"]), wish("fine"), wish("next", needs=["after-bad"]),
                            wish("bad"), wish("after-bad", needs=["bad"])])  # fmt: skip
        async with reconciling(store, cluster):
            await until(lambda: says(store, "last", "which does not exist yet"))
            await store.create([wish("late")])
            over = {task.name: task for task in await all_over(store)}
    assert over["last"].status.phase == "Success"
    for name in ("after-bad", "next"):
        assert (over[name].status.phase, over[name].status.code) == ("PermanentFailure", "DependencyFailed")
    assert "task bad, which it needs, ended as PermanentFailure (Died)" in over["after-bad"].status.reason
    order = cluster.steps
    last = order.index("last")
    assert last > max(order.index("late"), order.index("fine"))
    assert not {"next", "after-bad"} & set(order)


async def test_a_wish_to_end_is_heeded_wherever_it_finds_the_task(tmp_path: Path) -> None:
    """Running, waiting for a need, waiting for quota, or created so; nothing of it lives on."""
    cluster = SmallCluster(ends={"long": ["never"]}, room=1)
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("long")])
        async with reconciling(store, cluster):
            await reached(store, "long", "Running")
            await store.create([wish("waits"), wish("needy", needs=["nobody"]), wish("never", abort=True)])
            await reached(store, "waits", "WaitingForResources")
            await reached(store, "never", "Aborted")
            for name in ("needy", "waits", "long"):
                await store.request_abort(NAMESPACE, name)
            over = await all_over(store)
    assert {task.status.phase for task in over} == {"Aborted"}
    assert cluster.living == set()
    assert len(cluster.made) == 1


async def test_waiting_for_quota_costs_no_retry_but_its_time_may_end(tmp_path: Path) -> None:
    """Without a time-out it waits; with one it fails, and says what it waited for."""
    cluster = SmallCluster(ends={"long": ["never"]}, room=1)
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("long")])
        async with reconciling(store, cluster):
            await reached(store, "long", "Running")
            await store.create([wish("patient"), wish("hasty", timeout="1s")])
            await reached(store, "hasty", "PermanentFailure")
            await store.request_abort(NAMESPACE, "long")
            over = {task.name: task for task in await all_over(store)}
    hasty = over["hasty"].status
    assert (hasty.code, hasty.attempt, hasty.retried.system) == ("QuotaTimeout", 0, 0)
    assert "longer than its timeout of 1s: exceeded quota" in hasty.reason
    assert over["patient"].status.phase == "Success"
    assert over["patient"].status.retried.user == 0


async def reached(store: SqliteStore, name: str, phase: str) -> None:
    """Wait until a task is in a phase."""

    async def there() -> bool:
        return (await store.get(NAMESPACE, name)).status.phase == phase

    await until(there)


async def says(store: SqliteStore, name: str, part: str) -> bool:
    """Whether the reason of a task has this part."""
    return part in (await store.get(NAMESPACE, name)).status.reason


async def test_a_key_with_news_all_the_time_takes_turns() -> None:
    """The queue gives each other key its turn before that one comes again; a key is with one worker at a time."""
    queue = KeyedQueue()
    for key in ("noisy", "a", "b", "c"):
        queue.add(key)
    order = []
    for _ in range(9):
        key = await queue.take()
        order.append(key)
        queue.add("noisy")  # while it is with a worker, or queued: once more, at the end
        queue.add("noisy")
        if key != "noisy":
            queue.add(key, 0.0)
        queue.done(key)
    assert order == ["noisy", "a", "b", "c", "noisy", "a", "b", "c", "noisy"]
    held = await queue.take()
    queue.add(held)
    rest = {await queue.take() for _ in range(len(queue))}
    assert held not in rest
    queue.close()


async def test_a_key_wakes_one_worker() -> None:
    """However many wait for one; and one that is forgotten wakes none for good."""
    queue, loop = KeyedQueue(), asyncio.get_running_loop()
    workers = [asyncio.ensure_future(queue.take()) for _ in range(32)]
    await asyncio.sleep(0)
    steps, call_soon = 0, loop.call_soon

    def counted(*given: Any, **more: Any) -> asyncio.Handle:
        nonlocal steps
        steps += 1
        return call_soon(*given, **more)

    loop.call_soon = counted  # type: ignore[method-assign, assignment]
    try:
        queue.add("gone")
        queue.forget("gone")
        queue.add("a")
        done, waiting = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.call_soon = call_soon  # type: ignore[method-assign]
    assert [each.result() for each in done] == ["a"]
    assert steps < 12
    for each in waiting:
        each.cancel()
    queue.close()


@pytest.mark.parametrize("restless", [False, True])
async def test_tasks_that_wait_do_not_flood_the_disk(tmp_path: Path, *, restless: bool) -> None:
    """However often their places change, each is written once a second at most; a new phase is written at once."""
    cluster = SmallCluster(ends={"long": ["never"]}, room=1, restless=restless)
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish("long"), *(wish(f"w{n}") for n in range(50))])
        async with reconciling(store, cluster) as reconciler:
            await reached(store, "long", "Running")
            await reached(store, "w49", "WaitingForResources")
            before, looks, begun = reconciler.counts.writes, reconciler.counts.steps, time.monotonic()

            async def long_enough() -> bool:
                return reconciler.counts.steps > looks + 2000 and time.monotonic() > begun + 1.2 * restless

            await until(long_enough)
            rounds = int(time.monotonic() - begun) + 1
            written = reconciler.counts.writes - before
            assert written <= 51 * rounds if restless else written == 0
            assert bool(written) == restless  # held back, not lost
            assert bool(reconciler.counts.held_back) == restless
            cluster.room = 100
            await reached(store, "w49", "Success")
    assert len(cluster.made) == 51


@pytest.mark.parametrize("phase", ["Success", "Aborted"])
async def test_what_has_ended_before_is_not_touched(tmp_path: Path, phase: str) -> None:
    """A manager that starts takes in unfinished tasks alone."""
    cluster = SmallCluster()
    async with SqliteStore(tmp_path / "t.db") as store:
        ((task, _),) = await store.create([wish("done")])
        await store.set_status(task.uid, 0, TaskStatus(phase=phase), open_=False)
        await store.create([wish("new")])
        async with reconciling(store, cluster):
            await all_over(store)
    assert set(cluster.steps) == {"new"}


async def test_the_number_of_an_attempt_is_written_before_its_object_is_made(tmp_path: Path) -> None:
    """Else a kill in between, and then an abort, would leave an object that nobody knows."""
    cluster = SmallCluster()
    async with SqliteStore(tmp_path / "t.db") as store:
        ((task, _),) = await store.create([wish("t")])
    stepper = Stepper(SmallManager(cluster), "store", lambda: CONFIG, lambda: 1000.0, random.Random(1))
    failure = failed("X", "x", kind=ErrorKind.SYSTEM, retryable=True)
    over = judged(reported(task.status, failure, {}, 900.0), {}, 900.0, random.Random(1))
    cleaned = await stepper.step(task.with_status(over, 1), {})
    assert (cleaned.status.cleaned, cleaned.status.attempt) == (True, 0)
    begun = await stepper.step(task.with_status(cleaned.status, 2), {})
    assert (begun.status.attempt, begun.status.plugin_state, begun.again) == (1, None, 0)
    assert not cluster.made
    await stepper.step(task.with_status(begun.status, 3), {})
    assert list(cluster.made.values()) == [1]

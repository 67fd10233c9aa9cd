"""Crashes, overload, lost answers and broken plugins: nothing is created twice, and no retry is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.plugins.manager.metadata import object_name
from backoff_ctrl.k8s.plugins.phases import ErrorKind, Phase
from backoff_ctrl.k8s.plugins.protocol import Kind
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import POD, BuggyPlugin, PodPlugin, entry, task

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox import BackgroundSandbox


async def test_the_crash_between_create_and_save_doubles_nothing_under_a_full_quota(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    sandbox.create_quota("team", "pods", {"pods": "1"})
    one = task()
    first = await bench.step(one)
    saved = bench.states["uid-one", 0]
    assert first.phase is Phase.NOT_READY
    while await bench.pods() != ["one-0"]:
        await bench.tick()
    bench.states["uid-one", 0] = saved
    await bench.restart()
    await bench.until(one, Phase.QUEUED)
    assert await bench.pods() == ["one-0"]
    state = bench.states["uid-one", 0]
    assert state is not None
    assert state["object"]["uid"] == (await bench.pod("one-0"))["metadata"]["uid"]


async def test_overload_and_answers_that_are_lost_cost_time_and_no_retry(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    sandbox.faults.overload_share = 1.0
    sandbox.faults.retry_after_s = 0
    one, two = task(), task("two")
    assert (await bench.step(one)).error is None
    while not bench.manager.gate.counts.refused["overload"]:
        await bench.tick()
    assert (await bench.step(one)).error is None
    sandbox.faults.overload_share = 0.0
    await bench.until(one, Phase.QUEUED)
    sandbox.faults.unknown_outcome_share = 1.0
    await bench.until(two, Phase.QUEUED)
    assert await bench.pods() == ["one-0", "two-0"]
    assert bench.manager.counts.failures == {}


async def test_a_server_that_is_gone_is_waited_for_and_steps_say_so(sandbox: BackgroundSandbox) -> None:
    async with Bench("http://127.0.0.1:9") as bench:  # the port of no one
        info = await bench.until(task(), Phase.NOT_READY, holds=lambda info: "can't be reached" in info.reason)
        assert info.error is None
        assert (await bench.abort(task())).phase in (Phase.NOT_READY, Phase.ABORTED)


async def test_a_watch_that_is_lost_costs_reads_and_hides_nothing(bench: Bench, sandbox: BackgroundSandbox) -> None:
    one = task()
    await bench.until(one, Phase.QUEUED)
    reads = bench.manager.counts.reads
    sandbox.faults.watch_break_share = 1.0
    await bench.set_phase("one-0", "Running")
    await bench.until(one, Phase.RUNNING)
    sandbox.faults.watch_break_share = 0.0
    await bench.set_phase("one-0", "Succeeded")
    await bench.until(one, Phase.SUCCESS)
    assert reads["cache"] > 0


async def test_a_step_asks_the_server_nothing_once_its_watch_is_fed(bench: Bench, sandbox: BackgroundSandbox) -> None:
    one = task()
    await bench.until(one, Phase.QUEUED)
    kind = entry(PodPlugin(), "x").resource_to_watch
    while not bench.manager.watches.fed(kind, "team"):
        await bench.tick()
    await bench.step(one)
    before = bench.manager.counts.reads["server"]
    two = task("two")
    await bench.until(two, Phase.QUEUED)
    for _ in range(20):
        await bench.step(one)
        await bench.step(two)
    assert bench.manager.counts.reads["server"] == before


async def test_a_plugins_bug_is_a_system_failure_with_its_name_and_is_counted(sandbox: BackgroundSandbox) -> None:
    async with Bench(sandbox.url, entry(BuggyPlugin(), "container")) as bench:
        info = await bench.until(task(), Phase.RETRYABLE_FAILURE)
        assert info.error is not None
        assert info.error.kind is ErrorKind.SYSTEM
        assert "plugin container failed in get_task_phase: ZeroDivisionError" in info.error.message
        assert bench.manager.counts.plugin_errors == {("container", "get_task_phase"): 1}
        await bench.finalize(task())  # nobody could say how it is: the next attempt must not run beside it
        assert await bench.pods() == []


async def test_a_task_that_can_not_be_built_names_the_field_and_creates_nothing(bench: Bench) -> None:
    info = await bench.step(task(spec={}))
    assert info.phase is Phase.PERMANENT_FAILURE
    assert info.error is not None
    assert (info.error.code, info.error.kind) == ("FailedToBuildResource", ErrorKind.USER)
    assert "spec.container: a container is needed" in info.error.message
    unknown = await bench.step(task("u", type="flying"))
    assert unknown.error is not None
    assert "'flying'" in unknown.error.message
    assert await bench.pods() == []


async def test_a_plugin_that_is_missing_later_loses_nothing(bench: Bench, sandbox: BackgroundSandbox) -> None:
    one = task()
    await bench.until(one, Phase.QUEUED)
    stored = bench.states["uid-one", 0]
    async with Bench(sandbox.url, entry(PodPlugin(), "other")) as without:
        info = (await without.manager.handle(one, stored)).info
        assert info.phase is Phase.NOT_READY
        assert "plugin container, which built this task's object, is not enabled" in info.reason


async def test_a_manifest_is_built_once_however_often_it_is_asked_for(sandbox: BackgroundSandbox) -> None:
    plugin = PodPlugin()
    sandbox.create_quota("team", "none", {"pods": "0"})
    async with Bench(sandbox.url, entry(plugin, "container")) as bench:
        for _ in range(5):
            await bench.step(task())
        await bench.until(task(), Phase.WAITING_FOR_RESOURCES)
    assert plugin.builds == 1


@pytest.mark.parametrize("longest", [8, 20, 63])
async def test_names_are_cut_to_the_plugins_length_and_stay_apart(longest: int) -> None:
    given = ["a" * 80 + str(number) for number in range(9)] + ["Über_Größe", "-", "a.b", "a-b", "x" * longest]
    names = [object_name(each, longest) for each in given]
    assert len(set(names)) == len(given)
    assert all(name == name.strip("-").lower() and 0 < len(name) <= longest for name in names)
    assert object_name("x" * longest, longest) == "x" * longest


def test_ten_thousand_names_that_only_differ_behind_the_cut_stay_apart() -> None:
    """A name of 253 letters is cut to 63: its hash alone tells such tasks apart."""
    names = {object_name(f"{'a' * 253}-{number:08x}-0", 63) for number in range(10_000)}
    assert len(names) == 10_000


async def test_only_an_object_of_its_kind_ends_a_launch(sandbox: BackgroundSandbox) -> None:
    """An operator gave its config map the labels and the name of the pod that waits: the pod is still to be made."""
    sandbox.create_quota("team", "none", {"pods": "0"})
    async with Bench(sandbox.url) as bench:
        await bench.until(task(), Phase.WAITING_FOR_RESOURCES)
        marks = {"backoff-ctrl.dev/task-uid": "uid-one", "backoff-ctrl.dev/attempt": "0"}
        metadata = {"namespace": "team", "name": "one-0", "uid": "other", "labels": marks}
        bench.manager.launcher.seen(("uid-one", 0), Kind("v1", "ConfigMap", "configmaps"), {"metadata": metadata})
        assert (await bench.step(task())).phase is Phase.WAITING_FOR_RESOURCES
        bench.manager.launcher.seen(("uid-one", 0), POD, {"metadata": metadata})
        assert (await bench.step(task())).phase is not Phase.WAITING_FOR_RESOURCES

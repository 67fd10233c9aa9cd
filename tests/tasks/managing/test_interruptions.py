"""Crashes, overload, lost answers and broken plugins: nothing is created twice, and no retry is spent."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.objects import object_of
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.manager.checking import ERROR_PAUSE, ERRORS_MAX
from backoff_ctrl.k8s.tasks.plugins.manager.figures import ManagerCounts
from backoff_ctrl.k8s.tasks.plugins.manager.plugin_calls import PluginCalls
from backoff_ctrl.k8s.tasks.plugins.marks import object_name
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, Reason, TaskError, flaw_of
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginBugError, PluginContext, TaskContext
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import POD, BuggyPlugin, PodPlugin, entry, task

NOW = datetime(2026, 1, 2, tzinfo=UTC)


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
    while not bench.manager.watches.need(kind, "team").fed("team"):
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
    """After several in a row, over a time, also across a restart: what a plugin does not understand may pass."""
    plugin, now = BuggyPlugin(), [NOW]
    async with Bench(sandbox.url, entry(plugin, "container"), now=lambda: now[0]) as bench:
        said = await bench.until(task(), Phase.NOT_READY, holds=lambda info: "get_task_phase" in info.reason)
        assert "plugin container failed in get_task_phase: ZeroDivisionError: of seven by nothing" in said.reason
        for _ in range(2 * ERRORS_MAX):  # an object may change often at once
            assert (await bench.step(task())).phase is Phase.NOT_READY
        plugin.understands = True
        assert (await bench.step(task())).phase is Phase.QUEUED
        plugin.understands = False
        for _ in range(ERRORS_MAX - 1):
            now[0] += timedelta(seconds=ERROR_PAUSE)
            assert (await bench.step(task())).phase is Phase.QUEUED
        await bench.restart()
        info = await bench.step(task())
        assert info.phase is Phase.RETRYABLE_FAILURE
        assert info.error is not None
        assert info.error.kind is ErrorKind.SYSTEM
        assert "plugin container failed in get_task_phase: ZeroDivisionError" in info.error.message
        assert bench.manager.counts.plugin_errors == {("container", "get_task_phase"): 1}
        plugin.properties = None  # type: ignore[assignment]
        await bench.finalize(task())  # nobody could say how it is: the next attempt must not run beside it
        assert await bench.pods() == []


FINE = PhaseInfo(Phase.RUNNING)
NO_TIME: Any = "today"


def _fine(**wrong: Any) -> PhaseInfo:
    return replace(FINE, **wrong)


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


FLAWED: list[tuple[Any, str]] = [
    (None, "it returned NoneType instead of a PhaseInfo"),
    (_fine(phase="Running"), "its phase is 'Running'"),
    (replace(FINE, version=-1), "its version is -1"),
    (_fine(reason=None), "its reason is NoneType"),
    (PhaseInfo(Phase.PERMANENT_FAILURE), "PermanentFailure has no error"),
    (replace(FINE, error=TaskError("X", "x")), "Running has an error"),
    (_fine(logs=("log",)), "its logs are not TaskLogs"),
    (replace(FINE, reasons=(Reason("x", NO_TIME),)), "its reasons are not Reasons with a time"),
    (replace(FINE, reason="half \ud800"), "can't be stored as JSON"),
    (replace(FINE, custom={"rate": float("nan")}), "can't be stored as JSON"),
    (replace(FINE, custom={"of": object()}), "can't be stored as JSON"),
    (replace(FINE, outputs={"loss": [int("9" * 400)]}), "a whole number of more than 64 bits"),
    (replace(FINE, custom={"deep": nested(300)}), "more than 50 levels in one another"),
]


@pytest.mark.parametrize(("said", "flaw"), FLAWED, ids=[flaw for _, flaw in FLAWED])
def test_what_a_plugin_says_is_checked_before_it_is_kept(said: Any, flaw: str) -> None:
    """Else it would fail where nobody can say any more whose it was."""
    counts = ManagerCounts()
    plugin = BuggyPlugin(says=said)
    with pytest.raises(PluginBugError, match=re.escape(flaw)):
        PluginCalls(entry(plugin, "container"), counts).phase(PluginContext(K8sPluginConfig(), NOW), {})
    assert counts.plugin_errors == {("container", "get_task_phase"): 1}
    assert flaw_of(replace(FINE, custom={"rate": 0.5})) == ""


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


class _Unbuilding(PodPlugin):
    def build_resource(self, task: TaskContext) -> JSON:
        raise ZeroDivisionError("of seven by nothing")


async def test_a_plugin_that_fails_to_build_fails_the_attempt_as_its_system(sandbox: BackgroundSandbox) -> None:
    async with Bench(sandbox.url, entry(_Unbuilding(), "container")) as bench:
        info = await bench.step(task())
        assert info.phase is Phase.RETRYABLE_FAILURE
        assert info.error is not None
        assert (info.error.code, info.error.kind) == ("PluginFailed", ErrorKind.SYSTEM)
        assert "plugin container failed in build_resource: ZeroDivisionError: of seven" in info.error.message
        assert bench.manager.counts.failures == {("container", info.phase.title, info.error.code): 1}


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
        found = object_of({"metadata": metadata})
        bench.manager.launcher.seen(("uid-one", 0), Kind("v1", "ConfigMap", "configmaps"), found)
        assert (await bench.step(task())).phase is Phase.WAITING_FOR_RESOURCES
        bench.manager.launcher.seen(("uid-one", 0), POD, found)
        assert (await bench.step(task())).phase is not Phase.WAITING_FOR_RESOURCES

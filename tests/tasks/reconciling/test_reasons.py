"""The reasons of tasks as people read them: one line, no empty parts, and no words of Python."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.api.commands.tasks.showing import page, reason_of
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.cluster.conditions import conditions
from backoff_ctrl.k8s.tasks.documents import document, item
from backoff_ctrl.k8s.tasks.model import Retried, TaskEvent, TaskObject, TaskStatus, shown
from backoff_ctrl.k8s.tasks.plugins.core import Handled
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, Reason, failed, running
from backoff_ctrl.k8s.tasks.plugins.pod_phases import demystify_pod_status
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.stepping import Stepper, judged, reported
from backoff_ctrl.k8s.tasks.store import Stored
from tests.tasks.reconciling.running import CONFIG
from tests.tasks.tasks_written import wish

NOW = 1_790_000_000.0
LINES = "\r\n[main] terminated with exit code (1). Reason [Error]. Message: \nTraceback\t\x1b[31m\n\u2028boom\r\n."
EMPTY_PARTS = re.compile(r"[:;,(]\s*[:;,)]|[:;,(]\s*$|^\s*[:;,)]|\(\)")


async def stored(tmp_path: Path, status: TaskStatus, **spec: Any) -> Stored:
    async with SqliteStore(tmp_path / "t.db") as store:
        ((task, _),) = await store.create([wish("t", **spec)])
    return task.with_status(status, 0)


def lines_in(found: Any) -> list[str]:
    """All texts in a document that have more than a line, or what a terminal obeys."""
    if isinstance(found, str):
        return [] if found.isprintable() else [found]
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else ()
    return [each for value in values for each in lines_in(value)]


def end_of(log: str) -> PhaseInfo:
    """The phase of a real pod whose container ended with this at the end of its log."""
    ended = {"exitCode": 1, "reason": "Error", "message": log, "finishedAt": "2026-01-01T00:00:00Z"}
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
    pod = {"metadata": {"name": "p", "namespace": "team"}, "status": status}
    return demystify_pod_status(pod, PluginContext(CONFIG, datetime.now(UTC)))


@pytest.mark.parametrize("info", [end_of("a\r\nb\n\x1b[31mc"), failed("Broken", LINES, retryable=True)])
async def test_a_reason_is_one_line_wherever_it_is_shown(tmp_path: Path, info: PhaseInfo) -> None:
    """In the status, its history and events, and so in a list, a page, the API, conditions; also once it is retried."""
    assert "\n" in info.reason or "\n" in (info.error.message if info.error else "")
    info = replace(info, reasons=(Reason(LINES, datetime.fromtimestamp(NOW, UTC)),))
    status = judged(reported(TaskStatus(created_at=shown(NOW)), info, {"stage": "x"}, NOW), {}, NOW, random.Random(1))
    task = await stored(tmp_path, status)
    assert lines_in(status.model_dump(mode="json")) == []
    assert lines_in(conditions(status, None)) == []
    assert lines_in([vars(item(task)), *map(vars, document(task, NOW).history)]) == []
    assert lines_in([reason_of(item(task)), *page(document(task, NOW), NOW)]) == []


class Silent:
    """A core plugin that never gives a reason."""

    def __init__(self, info: PhaseInfo) -> None:
        self.info = info

    async def handle(self, task: Any, state: Any) -> Handled:
        return Handled(self.info, state)

    async def abort(self, task: Any, state: Any) -> Handled:
        return Handled(PhaseInfo(Phase.ABORTED), state)

    async def sweep(self, task: Any, state: Any) -> None: ...

    async def finalize(self, task: Any, state: Any) -> None: ...


@pytest.mark.parametrize("retries", [{}, {"user": 1}, {"user": 3}, {"user": 0, "system": 0}])
@pytest.mark.parametrize("phase", ["Running", "Queued", "Paused", "WaitingForResources"])
async def test_a_limit_that_ends_what_gave_no_reason_leaves_no_gap(
    tmp_path: Path, phase: str, retries: dict[str, int]
) -> None:
    """With all retries used up, one of one, or none at all."""
    for type_ in ("container", "signal"):
        spec = {"type": type_, "deadline": "1s", "timeout": "1s", "retries": retries}
        at = shown(NOW)
        status = TaskStatus(
            phase=phase, reason="", since=at, plugin_state={}, history=[TaskEvent(phase, at, 0)],
            runs_since=at if phase == "Running" else None, queued_since=at,
            retried=Retried(user=retries.get("user", 0)),
        )  # fmt: skip
        task = await stored(tmp_path / type_, status, **spec)
        stepper = Stepper(Silent(running()), "s", lambda: CONFIG, lambda: NOW + 2, random.Random(1))
        told = (await stepper.step(task, {})).status
        assert told.phase == "PermanentFailure"
        assert not EMPTY_PARTS.search(told.reason), told.reason
        assert "all 0" not in told.reason
        assert "all 1" not in told.reason


async def test_an_abort_that_its_plugin_ends_without_a_word_leaves_no_gap(tmp_path: Path) -> None:
    task = replace(await stored(tmp_path, TaskStatus(phase="Running", plugin_state={})), abort=True)

    class Failing(Silent):
        async def abort(self, task: Any, state: Any) -> Handled:
            return Handled(replace(failed("X", "x"), reason=""), state)

    stepper = Stepper(Failing(running()), "s", lambda: CONFIG, lambda: NOW, random.Random(1))
    assert (await stepper.step(task, {})).status.reason == "aborted"


async def test_an_attempt_that_never_begins_to_run_ends_at_its_deadline(tmp_path: Path) -> None:
    """It counts from its create, over Queued and Initializing together; from when it runs, anew."""
    now = [NOW]
    plugin = Silent(PhaseInfo(Phase.QUEUED, reason="no node has room"))
    stepper = Stepper(plugin, "s", lambda: CONFIG, lambda: now[0], random.Random(1))
    task = await stored(tmp_path, TaskStatus(), deadline="1m", retries={"user": 1})
    step = await stepper.step(task, {})
    assert step.again is not None
    assert step.again <= 60.5
    now[0] += 50
    plugin.info = PhaseInfo(Phase.INITIALIZING, reason="pulls its image")
    step = await stepper.step(task.with_status(step.status, 1), {})
    assert step.again is not None
    assert step.again <= 10.5
    runs = plugin.info = running("runs")
    begun = await stepper.step(task.with_status(step.status, 1), {})
    assert begun.status.runs_since == shown(now[0])
    now[0] += 11
    assert (await stepper.step(task.with_status(begun.status, 1), {})).status.phase == runs.phase.title
    late = (await stepper.step(task.with_status(step.status, 1), {})).status
    assert (late.code, late.kind, late.phase) == ("AttemptTimeout", "USER", "RetryableFailure")
    assert late.reason == "did not begin to run within its deadline of 1m: pulls its image"
    made = TaskObject("v1", "Pod", "t-0", "u-0")
    late = late.model_copy(update={"cleaned": True, "next_attempt_at": None, "object": made})
    fresh = await stepper.step(task.with_status(late, 2), {})
    assert (fresh.status.attempt, fresh.status.queued_since) == (1, None)
    assert (fresh.status.object, fresh.status.earlier_object, fresh.status.earlier_attempt) == (None, made, 0)


@pytest.mark.parametrize("said", ["plugin p failed in build: AssertionError: ", "why:\n", "why; ", "why, \r\n"])
async def test_an_error_that_says_nothing_leaves_no_colon_at_the_end_of_a_reason(said: str) -> None:
    """Nor in the middle, where it is told that there are no retries."""
    info = failed("PluginFailed", said, retryable=True)
    status = judged(reported(TaskStatus(created_at=shown(NOW)), info, {"stage": "x"}, NOW), {}, NOW, random.Random(1))
    assert not EMPTY_PARTS.search(status.reason), status.reason
    assert not EMPTY_PARTS.search(reported(TaskStatus(created_at=shown(NOW)), running(said), {}, NOW).reason)

"""Each phase through the managers: what a plugin reports, what its task shows then, and that its work lives on.

A new phase fails here until it has been given a line in ``SHOWN``.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.meanings import PHASES
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.model import TaskStatus, shown
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.core import Handled
from backoff_ctrl.k8s.tasks.plugins.phases import (
    OF_MANAGERS,
    OF_PLUGINS,
    PhaseInfo,
    TaskError,
    flaw_of,
    queued,
    waiting,
)
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.stepping import ENDED, Stepper
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import BuggyPlugin, entry, task
from tests.tasks.tasks_written import wish
from tests.tasks.webapi.jobs_service import JobsPlugin, JobsService
from tests.tasks.webapi.web_bench import context, web_bench

BUG = "is the manager's to report"
SHOWN: dict[Phase, tuple[str, str]] = {
    Phase.UNDEFINED: ("Queued", "why"),
    Phase.NOT_READY: ("NotReady", "why"),
    Phase.WAITING_FOR_RESOURCES: ("Queued", BUG),
    Phase.QUEUED: ("Queued", "why"),
    Phase.INITIALIZING: ("Initializing", "why"),
    Phase.RUNNING: ("Running", "why"),
    Phase.SUCCESS: ("Success", "why"),
    Phase.RETRYABLE_FAILURE: ("RetryableFailure", "why"),
    Phase.PERMANENT_FAILURE: ("PermanentFailure", "why"),
    Phase.WAITING_FOR_CACHE: ("WaitingForCache", "why"),
    Phase.ABORTED: ("Queued", BUG),
    Phase.PAUSED: ("Paused", "why"),
}
"""What a task in the phase Queued shows after its plugin has reported this one: its phase, and a part of its reason."""


def info(phase: Phase) -> PhaseInfo:
    """What a plugin reports."""
    return PhaseInfo(phase, reason="why", error=TaskError("Broken", "why") if phase.is_failure else None)


def test_the_lists_of_phases_agree() -> None:
    """Each phase has a line here, is a plugin's or a manager's, and a description may name those of plugins alone."""
    assert SHOWN.keys() == set(Phase) == OF_PLUGINS | OF_MANAGERS.keys()
    assert set(PHASES.values()) <= OF_PLUGINS
    assert {phase for phase, (_, said) in SHOWN.items() if said == BUG} == OF_MANAGERS.keys()
    assert all((flaw_of(info(phase)) == "") == (phase in OF_PLUGINS) for phase in Phase)


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.title)
async def test_of_an_object(sandbox: BackgroundSandbox, phase: Phase) -> None:
    """What the manager alone reports is a bug of the plugin, and costs its object nothing."""
    plugin = BuggyPlugin(says=queued("there"))
    async with Bench(sandbox.url, entry(plugin, "container")) as bench:
        one = task()
        await bench.until(one, Phase.QUEUED)
        plugin.says = info(phase)
        told = await bench.step(one)
        title, said = SHOWN[phase]
        assert (told.phase.title, told.error is None) == (title, not phase.is_failure)
        assert said in (told.reason or (told.error.message if told.error else ""))
        assert await bench.pods() == ["one-0"]


class Saying(JobsPlugin):
    """One that reports what a test wants, of each job."""

    says: PhaseInfo = queued("there")

    def status(self, context: Any, resource: Any) -> PhaseInfo:
        return self.says


@pytest.mark.parametrize("at_once", [True, False], ids=["in the answer to the create", "read"])
@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.title)
async def test_of_a_job_elsewhere(phase: Phase, at_once: bool) -> None:
    """No phase of a job that lives on has it deleted, whether the answer to its create or a read shows it."""
    plugin = type("Said", (Saying,), {"says": info(phase)})
    service = JobsService()
    title, said = SHOWN[phase]
    async with service.running() as url, web_bench(url, plugin) as bench:
        about = context(custom={"shows": at_once})
        told = await bench.until(about, lambda each: each.info.reason.count(said) > 0 or each.info.phase.is_terminal)
        if told.info.phase.is_terminal:
            await bench.plugin.finalize(about, told.state)
    assert told.info.phase.title == title
    assert said in told.info.reason
    assert "Undefined" not in bench.phases["a", 0]
    assert (service.calls["POST"], service.calls["DELETE"]) == (1, 0)


class Reporting:
    """A core plugin whose attempts are in one phase."""

    def __init__(self, told: PhaseInfo) -> None:
        self.told = told

    async def handle(self, task: Any, state: Any) -> Handled:
        return Handled(self.told, {"stage": "Begun"})

    async def abort(self, task: Any, state: Any) -> Handled:
        return Handled(PhaseInfo(Phase.ABORTED, reason="aborted"), state)

    async def sweep(self, task: Any, state: Any) -> None: ...

    async def finalize(self, task: Any, state: Any) -> None: ...


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.UNDEFINED}), ids=lambda phase: phase.title)
async def test_of_an_attempt(tmp_path: Path, phase: Phase) -> None:
    """The status has it, with its history; a wait and a pause end by ``timeout``, what is about to run by ``deadline``.

    Which of them limits a phase, and what is said then, is in the test: a phase that neither limits waits for ever.
    """
    told = waiting("why") if phase is Phase.WAITING_FOR_RESOURCES else info(phase)
    now = [1_790_000_000.0]
    async with SqliteStore(tmp_path / "t.db") as store:
        ((made, _),) = await store.create([wish("t", timeout="1m", deadline="1m")])
    stepper = Stepper(Reporting(told), "s", K8sPluginConfig, lambda: now[0], random.Random(1))
    step = await stepper.step(made.with_status(TaskStatus(created_at=shown(now[0])), 0), {})
    assert step.status.history[-1].phase == phase.title or phase is Phase.RETRYABLE_FAILURE
    if phase.title in ENDED:
        return
    assert step.again is not None
    now[0] += 61
    late = (await stepper.step(made.with_status(step.status, 1), {})).status
    assert (late.code, late.reason.partition(": ")[0]) == {
        Phase.NOT_READY: (None, "why"),
        Phase.WAITING_FOR_CACHE: (None, "why"),
        Phase.WAITING_FOR_RESOURCES: ("QuotaTimeout", "waited for quota for longer than its timeout of 1m"),
        Phase.PAUSED: ("ConditionTimedOut", "was paused for longer than its timeout of 1m"),
        Phase.QUEUED: ("AttemptTimeout", "did not begin to run within its deadline of 1m"),
        Phase.INITIALIZING: ("AttemptTimeout", "did not begin to run within its deadline of 1m"),
        Phase.RUNNING: ("AttemptTimeout", "ran for longer than its deadline of 1m"),
    }[phase]

"""Ray's job server as it is described: answers recorded from ray[default] 2.60, and how a submission is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_protocol import RemoteError
from backoff_ctrl.k8s.tasks.services.rest.entry import entry_of
from backoff_ctrl.k8s.tasks.services.rest.service_config import SERVICES
from tests.tasks.webapi.rest.jobs_service import context, phase_in, plugin_of, running_service, task

JSON = dict[str, Any]
RAY = next(each for each in SERVICES.shipped() if each.id == "ray-jobs")
ANSWERS: dict[str, JSON] = json.loads((Path(__file__).parent / "ray_answers.json").read_text("utf-8"))
EXISTS = """\
Traceback (most recent call last):
  File "ray/dashboard/modules/job/job_head.py", line 419, in submit_job
RuntimeError: Request failed with status code 400: Traceback (most recent call last):
ValueError: Job with submission_id task-u-0 already exists. Please use a different submission_id.
.
"""
MEANS = {
    "pending": ("Initializing", None, None, "Job has not started yet. It may be waiting"),
    "running": ("Running", None, None, "Job is currently running"),
    "succeeded": ("Success", None, None, "Job finished successfully"),
    "stopped": ("PermanentFailure", "USER", "Stopped", "somebody stopped the Ray job"),
    "failed": (
        "RetryableFailure",
        "USER",
        "TaskFailedWithError",
        "the Ray job failed: Job entrypoint command failed with exit code 3",
    ),
    "bad runtime env": (
        "RetryableFailure",
        "USER",
        "JOB_SUPERVISOR_ACTOR_START_FAILURE",
        "the Ray job failed: Failed to start",
    ),
}


@pytest.mark.parametrize("state", ANSWERS)
def test_an_answer_of_ray_has_its_phase(state: str) -> None:
    """And a failure its culprit."""
    phase_of = entry_of(RAY).phase_of
    assert phase_of is not None
    info = phase_of(ANSWERS[state])
    phase, kind, code, says = MEANS[state]
    assert (info.phase.title, info.error and info.error.kind, info.error and info.error.code) == (phase, kind, code)
    assert info.reason.startswith(says)


def test_a_lost_supervisor_is_the_platforms() -> None:
    """Another attempt may help, and costs the user nothing."""
    phase_of = entry_of(RAY).phase_of
    assert phase_of is not None
    info = phase_of({**ANSWERS["failed"], "error_type": "JOB_SUPERVISOR_ACTOR_DIED"})
    assert info.error is not None
    assert (info.error.kind, info.error.code) == ("SYSTEM", "JOB_SUPERVISOR_ACTOR_DIED")


def ray_task(**custom: Any) -> Any:
    """A task for Ray."""
    made = task(custom={"entrypoint": "python train.py", **custom}, env=[{"name": "A", "value": "1"}])
    return replace(made, metadata=replace(made.metadata, uid="u"))


async def test_a_submission_has_what_the_task_asks_for() -> None:
    """With our key as its id, so that a repeated one is recognised."""
    more = {"numCpus": 0.5, "runtimeEnv": {"pip": ["x"], "env_vars": {"A": "0", "B": "2"}}, "metadata": {"owner": "me"}}
    async with running_service() as service, plugin_of(RAY, {"url": service.url}) as plugin:
        service.says("POST", json={"job_id": "task-u-0", "submission_id": "task-u-0"})
        created = await plugin.create(context(ray_task(**more)))
        assert created.meta["id"] == "task-u-0"
        method, path, body, headers = service.requests[0]
        assert (method, path, "Authorization" in headers) == ("POST", "/api/jobs/", False)
        assert body == {
            "entrypoint": "python train.py",
            "submission_id": "task-u-0",
            "runtime_env": {"pip": ["x"], "env_vars": {"A": "1", "B": "2"}},
            "metadata": {"owner": "me", "job_name": "team-a/train"},
            "entrypoint_num_cpus": 0.5,
        }
        await plugin.delete(context(ray_task()), created.meta, "Aborted")
        assert service.requests[1][:2] == ("POST", "/api/jobs/task-u-0/stop")


async def test_ray_says_in_a_traceback_that_a_job_exists() -> None:
    """With status 500; then the job is read."""
    async with running_service() as service, plugin_of(RAY, {"url": service.url}) as plugin:
        service.says("POST", 500, text=EXISTS)
        service.says("GET", json=ANSWERS["running"])
        created = await plugin.create(context(ray_task()))
        assert (created.meta["id"], phase_in(created)) == ("task-u-0", Phase.RUNNING)
        service.says("POST", 500, text=EXISTS.replace("already exists", "is too long"))
        with pytest.raises(RemoteError) as raised:
            await plugin.create(context(ray_task()))
        assert str(raised.value).startswith(
            "400: create of u-0: ValueError: Job with submission_id task-u-0 is too long."
        )


def test_a_ray_job_needs_an_entrypoint() -> None:
    """Which is said before it is stored."""
    with pytest.raises(TaskSpecError, match=r"spec\.custom\.entrypoint: ray-jobs needs it: the command"):
        entry_of(RAY).check(task())

"""A task that has ended runs again with changed fields; what can't be changed is refused with its path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.again import read_change, run_again
from backoff_ctrl.k8s.tasks.model import Retried, TaskStatus
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.stepping import once_more
from backoff_ctrl.k8s.tasks.store import ConflictError, Stored
from tests.tasks.tasks_written import wish

CONTAINER = {"image": "busybox", "args": ["a", "b"], "resources": {"requests": {"cpu": "1"}}}


def task(*, open_: bool = False, **spec: Any) -> Stored:
    asked = wish("train", **{"container": CONTAINER, **spec})
    status = TaskStatus(phase="Running" if open_ else "PermanentFailure")
    return Stored("u1", 1, asked.namespace, asked.name, asked.metadata, asked.spec, False, status, 3, open_, 0.0)


def changed(*changes: str, **spec: Any) -> dict[str, Any]:
    return run_again(task(**spec), [read_change(each) for each in changes]).spec


@pytest.mark.parametrize(
    ("change", "place", "value"),
    [
        ("spec.resources.requests.memory=8Gi", ("resources", "requests", "memory"), "8Gi"),
        ('spec.container.resources.requests["nvidia.com/gpu"]=2', ("container", "resources", "requests", "nvidia.com/gpu"), 2),
        ("spec.container.resources.requests['nvidia.com/gpu']=2", ("container", "resources", "requests", "nvidia.com/gpu"), 2),
        ("spec.container.args[1]=x=y", ("container", "args", 1), "x=y"),
        ("spec.container.args[2]=new", ("container", "args", 2), "new"),
        ("spec.env[0].name=A", ("env", 0, "name"), "A"),
        ("spec.retries={user: 2}", ("retries", "user"), 2),
        ("spec.container.args=[1, 2]", ("container", "args"), [1, 2]),
    ],
)  # fmt: skip
def test_a_path_names_one_field(change: str, place: tuple[str | int, ...], value: Any) -> None:
    """All others stay; what is missing on the way is made."""
    spec: Any = changed(change)
    for step in place:
        spec = spec[step]
    assert spec == value
    assert changed(change)["container"]["image"] == "busybox"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("spec.retries.usr=1", r"spec\.retries\.usr: unknown; did you mean user"),
        ("spec.priority=high", r'spec\.priority: "high" can.t be used: write a whole number'),
        ("spec.container.args[7]=x", r"spec\.container\.args\[7\]: there is a list of 2 items, .*item 7"),
        ("spec.container.args.x=1", r"spec\.container\.args\.x: .*a list of 2 items.*the field x"),
        ("spec.container.image.tag=1", r"spec\.container\.image\.tag: "),
        ("spec.container[0]=1", r"spec\.container\[0\]: there is an object"),
        ("metadata.name=other", r"metadata\.name: it can.t be changed"),
        ("status.phase=Success", r"status\.phase: it can.t be changed"),
        ("spec=1", r"spec: "),
        ("spec.priority", r"spec\.priority: this is no change: write PATH=VALUE"),
        ("spec.priority={", r"spec\.priority: the value is not YAML"),
        ("spec..priority=1", r"spec: this is no change"),
        ("=1", "this is no change"),
        ("spec.needs=[train]", r"spec\.needs: train would wait for itself"),
    ],
)
def test_a_wrong_change_is_refused_with_its_path(change: str, said: str) -> None:
    with pytest.raises(TaskSpecError, match=said):
        changed(change)


def test_it_is_the_same_task_without_its_signal_and_its_abort() -> None:
    before = task(type="signal", container=None, signal=7)
    assert run_again(before, []) == wish("train", type="signal", container=None)
    assert run_again(task(), [("metadata.labels.team", "a")]).metadata == {"labels": {"team": "a"}}
    assert task().spec["container"] == CONTAINER


def test_what_has_not_ended_does_not_run_again() -> None:
    with pytest.raises(ConflictError, match="has not ended"):
        run_again(task(open_=True), [])


def test_spec_again_counts_runs_and_none_that_was_aborted() -> None:
    """It is asked for when it is more than the status has seen; a new run begins with all its retries."""
    failed = TaskStatus(phase="PermanentFailure", attempt=3, retried=Retried(user=2, system=1), ended_at="then")
    asked = replace(task(again=1), status=failed)
    assert asked.is_asked_again
    assert not replace(asked, abort=True).is_asked_again
    fresh = once_more(failed, asked.again, 0.0)
    assert not replace(asked, status=fresh).is_asked_again
    assert (fresh.phase, fresh.attempt, fresh.retried, fresh.ended_at) == ("NotReady", 4, Retried(), None)
    assert run_again(asked, []) == wish("train", container=CONTAINER)

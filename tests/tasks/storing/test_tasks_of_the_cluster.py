"""A Task of the API server, read and written, without a server: conditions, columns, what was damaged, what is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.cluster.cache import TaskCache
from backoff_ctrl.k8s.tasks.cluster.conditions import conditions, quiet, waits_for
from backoff_ctrl.k8s.tasks.cluster.objects import read_spec, read_status, status_of, stored
from backoff_ctrl.k8s.tasks.model import TaskStatus, TaskWait, shown
from backoff_ctrl.k8s.tasks.stepping import moved
from tests.tasks.tasks_written import manifest

BORN = 1_790_000_000.0
AT = shown(BORN)


def body(version: int = 5, name: str = "train", uid: str = "", **more: Any) -> dict[str, Any]:
    """A Task as the server has it."""
    task = manifest(name, **more.pop("spec", {}))
    uid = uid or f"00000000-0000-4000-8000-{abs(hash(name)) % 10**12:012}"
    metadata = {
        "uid": uid,
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": "2026-09-21T14:13:20Z",
    }
    return {**task, **more, "metadata": {**task["metadata"], **metadata, **more.get("metadata", {})}}


@pytest.mark.parametrize(
    ("phase", "code", "expected"),
    [
        ("NotReady", None, ["True Queued", "False Queued", "False Queued"]),
        ("WaitingForResources", None, ["True WaitingForResources"] + ["False WaitingForResources"] * 2),
        ("Queued", None, ["True Queued", "False Queued", "False Queued"]),
        ("Initializing", None, ["True Initializing", "False Initializing", "False Initializing"]),
        ("Running", None, ["True Executing", "False Executing", "False Executing"]),
        ("RetryableFailure", "OOMKilled", ["True RetryableFailure"] + ["False RetryableFailure"] * 2),
        ("Success", None, ["False Completed", "True Completed", "False Completed"]),
        ("Aborted", None, ["False Aborted", "False Aborted", "True Aborted"]),
        ("PermanentFailure", "OOMKilled", ["False PermanentFailure"] * 2 + ["True PermanentFailure"]),
        ("PermanentFailure", "PluginNotFound", ["False PluginNotFound"] * 2 + ["True PluginNotFound"]),
        ("PermanentFailure", "QuotaTimeout", ["False TimedOut"] * 2 + ["True TimedOut"]),
        ("PermanentFailure", "InvalidSpec", ["False InvalidSpec"] * 2 + ["True InvalidSpec"]),
    ],
)
def test_conditions_have_the_reasons_of_flyte(phase: str, code: str | None, expected: list[str]) -> None:
    found = conditions(TaskStatus(phase=phase, code=code, since=AT), None)
    assert [each["type"] for each in found] == ["Progressing", "Succeeded", "Failed"]
    assert [f"{each['status']} {each['reason']}" for each in found] == expected


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    """As Kubernetes wants it: kubectl wait and dashboards go by it."""
    first = conditions(TaskStatus(phase="Queued", since=AT), None)
    later = conditions(TaskStatus(phase="Success", since=shown(BORN + 60)), first)
    times = [each["lastTransitionTime"] for each in later]
    assert times == ["2026-09-21T14:14:20Z", "2026-09-21T14:14:20Z", "2026-09-21T14:13:20Z"]


def test_what_a_task_waits_for_is_a_column() -> None:
    wait = TaskWait("quota", "compute", "requests.cpu")
    assert waits_for(TaskStatus(phase="WaitingForResources", wait=wait)) == "compute: requests.cpu"
    assert waits_for(TaskStatus(reason="needs task prepare, which is Running")) == "task prepare"
    assert waits_for(TaskStatus(phase="Success", wait=wait)) == ""


def test_a_status_comes_back_as_it_was_written() -> None:
    """All but what is cut: the reasons of phases that are over. With the fields that only the cluster has."""
    status = TaskStatus(created_at=AT, since=AT)
    for phase in (Phase.WAITING_FOR_RESOURCES, Phase.QUEUED, Phase.RUNNING, Phase.SUCCESS):
        status = moved(status, phase, "why", BORN)
    kept = status_of(status, body())
    assert (kept["try"], kept["observedGeneration"]) == (1, 1)
    assert read_status(kept, BORN) == status
    assert len(json.dumps(kept)) < 2000


def test_of_a_long_history_50_phases_are_kept_and_the_rest_counted() -> None:
    """The first and the latest; whatever their reasons, it stays small."""
    status = TaskStatus(created_at=AT, since=AT)
    for number in range(70):
        phase = Phase.QUEUED if number % 2 else Phase.RUNNING
        status = moved(status, phase, f"{number} " + "x" * 1500, BORN + number)
    assert (len(status.history), status.history_left_out) == (50, 20)
    assert [each.reason.split()[0] for each in status.history[:2]] == ["0", "21"]
    assert len(json.dumps(status_of(status, body()))) < 20_000


@pytest.mark.parametrize(
    ("raw", "phase", "said"),
    [
        ({"phase": "Running", "mood": "fine"}, "Running", ""),
        ({"phase": "Running", "history": "none", "logs": 3}, "Running", ""),
        ({"phase": "Running", "attempt": "many"}, "PermanentFailure", "status.attempt can't be read"),
        ({"phase": 3}, "PermanentFailure", "status.phase can't be read"),
        ({"phase": "Queued", "pluginState": "x"}, "PermanentFailure", "status.pluginState can't be read"),
        ({"phase": "Success", "endedAt": AT, "attempt": "x"}, "Success", ""),
    ],
)
def test_a_status_that_was_edited_is_read_as_far_as_it_can_be(raw: Any, phase: str, said: str) -> None:
    """What nobody needs to go on is left out. Else the task has failed, and what it has begun is still released."""
    status = read_status(raw, BORN)
    assert status.phase == phase
    assert said in status.reason
    assert status.cleaned is (not said)
    task = stored(body(status=raw), read_spec(body()), 5)
    assert task.open is ("endedAt" not in raw)


def test_what_tools_keep_about_a_task_is_not_on_its_objects() -> None:
    """kubectl's copy of the spec, Helm's and Argo CD's notes; what people wrote is."""
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "meta.helm.sh/release-name": "r",
             "argocd.argoproj.io/tracking-id": "t", "team": "vision"}  # fmt: skip
    assert read_spec(body(metadata={"annotations": notes})).metadata == {"annotations": {"team": "vision"}}


def test_changes_within_a_phase_are_written_ever_more_rarely() -> None:
    """Sooner where something runs than where a task only moves up in its line."""
    assert [quiet(TaskStatus(phase="Running"), times) for times in range(6)] == [5, 60, 600, 3600, 3600, 3600]
    assert [quiet(TaskStatus(phase="WaitingForResources"), times) for times in range(3)] == [600, 3600, 3600]


def test_late_and_repeated_news_change_nothing() -> None:
    """An answer may overtake the watch, and come after the news of the end; nothing is taken in twice."""
    cache = TaskCache()
    running = body(7, status={"phase": "Running"})
    cache.take(running)
    at = cache.revision
    for late in (running, body(5), body(6, status={"phase": "Queued"})):
        cache.take(late)
    assert (cache.revision, cache.changes(at)) == (at, [])
    uid = running["metadata"]["uid"]
    cache.forget(uid)
    cache.take(body(9, status={"phase": "Success"}))
    ((change),) = cache.changes(at)
    assert (change.uid, change.task, len(cache)) == (uid, None, 0)


def test_only_a_new_generation_or_a_deletion_is_a_wish() -> None:
    """Statuses, labels and finalizers are none: nobody is woken by own writes."""
    cache = TaskCache()
    cache.take(body(1))
    at = cache.revision
    cache.take(body(2, status={"phase": "Running"}))
    cache.take(body(3, status={"phase": "Running"}, metadata={"finalizers": ["x"]}))
    assert cache.changes(at, wishes=True) == []
    cache.take(body(4, spec={"abort": True}, metadata={"generation": 2}))
    ((change),) = cache.changes(at, wishes=True)
    assert change.task is not None
    assert change.task.abort
    cache.take(body(5, name="other"))
    cache.take(body(6, name="other", metadata={"deletionTimestamp": "2026-09-21T14:13:30Z"}))
    gone = cache.named("team", "other")
    assert gone is not None
    assert gone.task.abort

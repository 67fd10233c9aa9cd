"""Which objects wait for room, and which are left alone, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID, GANG_LABEL
from backoff_ctrl.k8s.workloads.admitting.kinds import (
    ADMITTED,
    JOB,
    KINDS,
    QUEUE_NAME,
    STAY_SUSPENDED,
    SUSPENDED_BY,
    WAIT,
    WEBHOOK,
    AdmissibleKind,
    Left,
    field_at,
    left_waiting,
    may_suspend,
    subject_of,
    suspension,
)
from tests.admitting.objects import merged, named

ASKS = {"metadata": {"labels": {WAIT: "true"}}}
WAITS = {"spec": {"suspend": True}, **ASKS}
BY_WEBHOOK = {"spec": {"suspend": True}, "metadata": {"annotations": {SUSPENDED_BY: WEBHOOK}}}
ADMITTED_SO = {"uid": "u", "annotations": {ADMITTED: json.dumps({"uid": "u"})}}
LET_IN = {"metadata": {**ASKS["metadata"], **ADMITTED_SO}}
COPY = {"metadata": {**ADMITTED_SO, "uid": "another"}, "spec": {"suspend": True}}
RAY_JOB = named("RayJob")


def _owned(kind: str, version: str, *, controller: bool = True) -> dict[str, Any]:
    owner = {"apiVersion": version, "kind": kind, "name": "above", "uid": "u", "controller": controller}
    return {"metadata": {"ownerReferences": [owner]}}


KEPT = merged(WAITS, {"metadata": {"annotations": {STAY_SUSPENDED: "true"}}})
OF_TASK = merged(
    merged(WAITS, _owned("Task", "backoff-ctrl.dev/v1alpha1")), {"metadata": {"annotations": {CREATE_ID: "x"}}}
)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(WAITS, None, id="suspended by whoever set the label"),
        pytest.param(BY_WEBHOOK, None, id="suspended by the webhook"),
        pytest.param({"spec": {"suspend": True}}, Left.UNASKED, id="suspended by its user"),
        pytest.param({"spec": {"suspend": True}, "metadata": {"labels": {WAIT: "no"}}}, Left.UNASKED, id="not true"),
        pytest.param(ASKS, None, id="runs already"),
        pytest.param(merged(LET_IN, {"metadata": {"labels": {WAIT: None}}}), None, id="let in, its label taken off"),
        pytest.param(COPY, Left.UNASKED, id="a copy of what was let in"),
        pytest.param(merged(LET_IN, WAITS), None, id="suspended again"),
        pytest.param(merged(LET_IN, KEPT), Left.HELD, id="kept suspended"),
        pytest.param(merged(KEPT, {"spec": {"suspend": False}}), None, id="runs, to be kept when it is suspended"),
        pytest.param(merged(WAITS, {"metadata": {"labels": {GANG_LABEL: "x"}}}), None, id="says it is in a gang"),
        pytest.param(merged(WAITS, {"metadata": {"annotations": {CREATE_ID: "x"}}}), None, id="says it was gated"),
        pytest.param(merged(OF_TASK, {"metadata": {"annotations": {CREATE_ID: None}}}), None, id="says a Task made it"),
        pytest.param(OF_TASK, Left.RESERVED, id="of a Task"),
        pytest.param(merged(WAITS, _owned("JobSet", "jobset.x-k8s.io/v1alpha2")), Left.PART, id="of a JobSet"),
        pytest.param(merged(WAITS, _owned("JobSet", "jobset.x-k8s.io/v9")), Left.PART, id="of a newer JobSet"),
        pytest.param(merged(WAITS, _owned("CronJob", "batch/v1")), None, id="of a CronJob"),
        pytest.param(merged(WAITS, _owned("Job", "example.com/v1")), None, id="of another Job"),
        pytest.param(
            merged(WAITS, _owned("JobSet", "jobset.x-k8s.io/v1alpha2", controller=False)), None, id="not its controller"
        ),
        pytest.param(merged(WAITS, {"metadata": {"labels": {QUEUE_NAME: "q"}}}), Left.KUEUE, id="of Kueue"),
        pytest.param(merged(WAITS, {"spec": {"managedBy": "example.com/c"}}), Left.ELSEWHERE, id="managed elsewhere"),
        pytest.param(merged(WAITS, {"spec": {"managedBy": JOB.manager}}), None, id="managed by its own controller"),
    ],
)
def test_a_job_is_let_in_only_where_it_is_asked_for_and_nobody_else_is_in_charge(
    body: dict[str, Any], want: Left | None
) -> None:
    assert left_waiting(subject_of(JOB, body)) is want


def test_a_gate_that_has_made_it_has_its_room() -> None:
    marked = merged(WAITS, {"metadata": {"annotations": {CREATE_ID: "x"}}})

    assert left_waiting(subject_of(JOB, marked), by_us=True) is Left.RESERVED
    assert left_waiting(subject_of(JOB, WAITS), by_us=True) is None
    assert left_waiting(subject_of(JOB, OF_TASK), by_us=False) is None


def test_a_copy_of_what_a_task_has_made_says_why_it_stays_suspended() -> None:
    assert f"its annotation {CREATE_ID}" in subject_of(JOB, OF_TASK).why_it_stays(Left.RESERVED)
    assert not subject_of(JOB, merged(OF_TASK, {"spec": {"suspend": False}})).why_it_stays(Left.RESERVED)
    assert not subject_of(JOB, WAITS).why_it_stays(Left.UNASKED)


def test_a_job_that_was_never_suspended_says_why_it_does_not_wait() -> None:
    runs = merged(ASKS, {"metadata": {"generation": 1}})
    assert "it was created without spec.suspend" in subject_of(JOB, runs).why_it_runs()
    assert not subject_of(JOB, merged(runs, {"metadata": {"generation": 2}})).why_it_runs()
    assert not subject_of(JOB, merged(runs, {"metadata": ADMITTED_SO})).why_it_runs()


def test_the_label_of_a_namespace_counts_for_what_is_suspended_there() -> None:
    body = {"metadata": {"namespace": "team"}, "spec": {"suspend": True}}

    assert left_waiting(subject_of(JOB, body), waiting_in={"team"}) is None
    assert left_waiting(subject_of(JOB, body), waiting_in={"other"}) is Left.UNASKED


def test_the_whole_chain_of_controllers_counts() -> None:
    above = [Owner("example.com/v1", "Flow", "f"), Owner("ray.io/v1", "RayJob", "t")]

    assert left_waiting(subject_of(JOB, WAITS), above=above) is Left.PART
    assert left_waiting(subject_of(JOB, WAITS), above=above[:1]) is None


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"shutdownAfterJobFinishes": True}, True),
        ({}, False),
        ({"shutdownAfterJobFinishes": False}, False),
        ({"shutdownAfterJobFinishes": True, "clusterSelector": {"ray.io/cluster": "c"}}, False),
    ],
)
def test_a_ray_job_that_its_operator_refuses_to_suspend_is_left_alone_with_a_sentence(
    spec: dict[str, Any], fits: bool
) -> None:
    body = {**ASKS, "spec": spec}

    assert may_suspend(RAY_JOB, body, {}) is (None if fits else Left.UNFIT)
    assert bool(RAY_JOB.may_not_be_suspended(body)) is not fits


@pytest.mark.parametrize(
    ("body", "told"),
    [
        pytest.param({}, True, id="its field was dropped"),
        pytest.param({"spec": {"suspend": True}}, False, id="it is suspended"),
        pytest.param({"metadata": {"generation": 2}}, False, id="somebody has resumed it"),
        pytest.param({"metadata": ADMITTED_SO}, False, id="let in"),
        pytest.param({"metadata": {"annotations": {SUSPENDED_BY: None}}}, False, id="the webhook did not see it"),
    ],
)
def test_what_the_server_does_not_let_the_webhook_suspend_is_told(body: dict[str, Any], told: bool) -> None:
    dropped = {"metadata": {"annotations": {SUSPENDED_BY: WEBHOOK}, "generation": 1}}

    assert (
        "no field spec.suspend" in subject_of(named("SparkApplication"), merged(dropped, body)).why_it_runs()
    ) is told


@pytest.mark.parametrize(
    ("body", "namespace", "want"),
    [
        pytest.param({}, {}, Left.UNASKED, id="nobody asks"),
        pytest.param(ASKS, {}, None, id="it asks"),
        pytest.param({}, ASKS, None, id="its namespace asks"),
        pytest.param({"spec": {"suspend": True}}, ASKS, Left.HELD, id="suspended by its user"),
        pytest.param(merged(ASKS, _owned("RayJob", "ray.io/v1")), ASKS, Left.PART, id="made by one that waits"),
    ],
)
def test_the_webhook_suspends_what_asks_to_wait(
    body: dict[str, Any], namespace: dict[str, Any], want: Left | None
) -> None:
    assert may_suspend(JOB, body, namespace) is want


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind} {kind.api_version}")
def test_what_the_webhook_suspends_is_let_in_by_the_operator(kind: AdmissibleKind) -> None:
    body = merged({"spec": {"shutdownAfterJobFinishes": True}}, suspension(kind))

    assert kind.is_suspended(body)
    assert left_waiting(subject_of(kind, body)) is None
    assert field_at(body, kind.suspend) is True


@pytest.mark.parametrize(
    ("kind", "status", "want"),
    [
        ("Job", {"conditions": [{"type": "Complete", "status": "True"}]}, True),
        ("Job", {"conditions": [{"type": "Complete", "status": "False"}]}, False),
        ("Job", {"conditions": [{"type": "Suspended", "status": "True"}]}, False),
        ("Job", {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, True),
        ("RayJob", {"jobDeploymentStatus": "Complete"}, True),
        ("RayJob", {"jobDeploymentStatus": "Running"}, False),
        ("RayCluster", {"state": "ready", "conditions": [{"type": "Complete", "status": "True"}]}, False),
        ("SparkApplication", {"applicationState": {"state": "FAILED"}}, True),
        ("SparkApplication", {"applicationState": {"state": "SUSPENDED"}}, False),
        ("PyTorchJob", {"conditions": [{"type": "Succeeded", "status": "True"}]}, True),
    ],
)
def test_an_object_has_ended_by_its_kinds_own_status(kind: str, status: Any, want: bool) -> None:
    assert named(kind).has_ended({"status": status}) is want

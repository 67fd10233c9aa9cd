"""What an existing object is charged at a given time, who owns it, and what ends the charge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.live import By, Ending, live
from backoff_ctrl.k8s.kube.charges.resources import kinds_of

JSON = dict[str, Any]
NOW = datetime(2026, 11, 21, 14, 0, 0, tzinfo=UTC)
REPLICA_SET = {"kind": "ReplicaSet", "name": "web-7d4b9c", "controller": True}


def at(seconds: float) -> str:
    """Return the timestamp of ``NOW`` plus these seconds."""
    return f"{NOW + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def pod(status: JSON | None = None, spec: JSON | None = None, **metadata: Any) -> JSON:
    """Return a pod that requests one cpu."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": {"name": "x", **metadata},
        "spec": {"containers": containers, **(spec or {})},
        "status": status or {},
    }


def dying(since: float, grace: int, **more: Any) -> JSON:
    """Return the metadata of an object that is being deleted."""
    return {"deletionTimestamp": at(since), "deletionGracePeriodSeconds": grace, **more}


def amounts(found: Any) -> dict[str, int]:
    """Return the charge for cpu and pods, in whole units."""
    wanted = ("count/pods", "pods", "requests.cpu")
    return {name: found.charged.amounts[name] // 10**9 for name in wanted if name in found.charged.amounts}


WHOLE = {"count/pods": 1, "pods": 1, "requests.cpu": 1}
COUNT = {"count/pods": 1}


@pytest.mark.parametrize(
    ("manifest", "charged", "owed", "ending"),
    [
        pytest.param(pod(), WHOLE, 0, Ending(By.HAND), id="no owner"),
        pytest.param(pod(ownerReferences=[REPLICA_SET]), WHOLE, 0, Ending(By.OWNER), id="owned"),
        pytest.param(pod({"phase": "Succeeded"}), COUNT, 0, Ending(By.FINISHED), id="succeeded"),
        pytest.param(pod({"phase": "Failed"}), COUNT, 0, Ending(By.FINISHED), id="failed"),
        pytest.param(pod({"phase": "Unknown"}), WHOLE, 0, Ending(By.HAND), id="unknown"),
        pytest.param(
            pod(spec={"activeDeadlineSeconds": 90}),
            WHOLE,
            0,
            Ending(By.DEADLINE, after=timedelta(seconds=90)),
            id="not started",
        ),
        pytest.param(
            pod({"startTime": at(-30)}, {"activeDeadlineSeconds": 90}),
            WHOLE,
            0,
            Ending(By.DEADLINE, NOW + timedelta(seconds=60)),
            id="deadline",
        ),
        pytest.param(
            pod(**dying(20, 30)), WHOLE, 0, Ending(By.DELETION, NOW + timedelta(seconds=20)), id="in its grace"
        ),
        pytest.param(
            pod(**dying(-10, 30)),
            WHOLE,
            0,
            Ending(By.DELETION, NOW + timedelta(seconds=20)),
            id="charged for one more grace period",
        ),
        pytest.param(pod(**dying(-31, 30)), COUNT, 1, Ending(By.NODE), id="overdue"),
        pytest.param(
            pod(spec={"nodeName": "n1"}, **dying(-31, 30)),
            COUNT,
            1,
            Ending(By.NODE, detail="n1"),
            id="node not responding",
        ),
        pytest.param(
            pod(**dying(-31, 30, finalizers=["a/b", "c/d"])),
            COUNT,
            1,
            Ending(By.FINALIZERS, detail="a/b, c/d"),
            id="finalizers",
        ),
        pytest.param(
            pod(**dying(-9, 0, finalizers=["a/b"])), COUNT, 0, Ending(By.FINALIZERS, detail="a/b"), id="no grace"
        ),
        pytest.param(
            pod({"phase": "Failed"}, **dying(-99, 30, finalizers=["a/b"])),
            COUNT,
            0,
            Ending(By.FINALIZERS, detail="a/b"),
            id="ended, with finalizers",
        ),
        pytest.param(
            pod(deletionTimestamp=at(-99)),
            WHOLE,
            0,
            Ending(By.DELETION, NOW - timedelta(seconds=99)),
            id="without a grace period",
        ),
    ],
)
def test_a_pods_charge_depends_on_its_phase_and_the_time(
    manifest: JSON, charged: dict[str, int], owed: int, ending: Ending
) -> None:
    """A finished pod is charged only its count; so is one whose deletion is overdue, and the rest is then owed."""
    found = live("pods", manifest, NOW)

    assert amounts(found) == charged
    assert found.owed.get("requests.cpu", 0) == owed * 10**9
    assert "count/pods" not in found.owed
    assert found.ending == ending


def test_a_deletion_is_stuck_once_it_should_be_finished() -> None:
    """Not during its grace period; after it, with the end of its charge, its node and its finalizers."""
    assert live("pods", pod(**dying(1, 30)), NOW).stuck is None

    stuck = live("pods", pod(spec={"nodeName": "n1"}, **dying(-1, 30, finalizers=["a/b"])), NOW).stuck

    assert stuck is not None
    assert (stuck.since, stuck.until) == (NOW - timedelta(seconds=1), NOW + timedelta(seconds=29))
    assert (stuck.node, stuck.finalizers) == ("n1", ("a/b",))


def test_the_count_of_a_pod_outlives_its_deadline() -> None:
    """The deadline ends only the run: the object stays and counts."""
    found = live("pods", pod({"startTime": at(-30)}, {"activeDeadlineSeconds": 90}), NOW)

    assert found.ending.by is By.DEADLINE
    assert found.gone == Ending(By.HAND)


def resized(asked: str, has: str, allocated: str, *conditions: JSON, restart: str | None = None) -> JSON:
    """Return a pod whose container requests, has and is allocated different amounts of cpu."""
    status = {
        "name": "main",
        "resources": {"requests": {"cpu": has}, "limits": {"cpu": has}},
        "allocatedResources": {"cpu": allocated},
    }
    side = "containers" if restart is None else "initContainers"
    container = {"name": "main", "resources": {"requests": {"cpu": asked}, "limits": {"cpu": asked}}}
    spec = {"containers": [{"name": "other"}], side: [container | ({"restartPolicy": restart} if restart else {})]}
    return {
        "metadata": {"name": "x"},
        "spec": spec,
        "status": {f"{side.removesuffix('s')}Statuses": [status], "conditions": list(conditions)},
    }


INFEASIBLE = {"type": "PodResizePending", "reason": "Infeasible"}
DEFERRED = {"type": "PodResizePending", "reason": "Deferred"}


@pytest.mark.parametrize(
    ("manifest", "requests", "limits"),
    [
        pytest.param(resized("1", "3", "2"), "3", "3", id="shrinking"),
        pytest.param(resized("4", "1", "2"), "4", "4", id="growing"),
        pytest.param(resized("1", "2", "3"), "3", "2", id="allocated"),
        pytest.param(resized("4", "1", "2", DEFERRED), "4", "4", id="deferred"),
        pytest.param(resized("4", "1", "2", INFEASIBLE), "2", "1", id="refused"),
        pytest.param(resized("1", "3", "2", restart="Always"), "3", "3", id="sidecar"),
        pytest.param(resized("1", "3", "2", restart=""), "1", "1", id="init container"),
    ],
)
def test_a_pod_in_a_resize_is_charged_the_largest_amount(manifest: JSON, requests: str, limits: str) -> None:
    """Requested, actual and allocated amounts count, except a request that the node finds infeasible."""
    found = live("pods", manifest, NOW).charged.amounts

    assert found["requests.cpu"] == parse_quantity(requests)
    assert found["limits.cpu"] == parse_quantity(limits)


@pytest.mark.parametrize(("taken", "charged"), [(None, "5Gi"), ("3Gi", "5Gi"), ("9Gi", "9Gi")])
def test_a_claim_is_charged_its_allocated_size(taken: str | None, charged: str) -> None:
    """A claim whose expansion was cancelled is still charged for the size that was allocated."""
    status = {"allocatedResources": {"storage": taken}} if taken else {}
    spec = {"resources": {"requests": {"storage": "5Gi"}}}
    found = live("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec, "status": status}, NOW)

    assert found.charged.amounts["requests.storage"] == parse_quantity(charged)
    assert found.owner == "PersistentVolumeClaim/c"


def job(spec: JSON | None = None, status: JSON | None = None, **metadata: Any) -> JSON:
    """Return a Job."""
    return {"metadata": {"name": "j", **metadata}, "spec": spec or {}, "status": status or {}}


def done(kind: str, seconds: float) -> JSON:
    """Return the status of a finished Job."""
    return {"conditions": [{"type": kind, "status": "True", "lastTransitionTime": at(seconds)}]}


@pytest.mark.parametrize(
    ("manifest", "ending", "made_end"),
    [
        pytest.param(job(), Ending(By.HAND), None, id="running"),
        pytest.param(job({"ttlSecondsAfterFinished": 60}), Ending(By.HAND), None, id="ttl not started"),
        pytest.param(
            job({"ttlSecondsAfterFinished": 60}, done("Complete", -20)),
            Ending(By.TTL, NOW + timedelta(seconds=40)),
            NOW - timedelta(seconds=20),
            id="ttl",
        ),
        pytest.param(job({}, done("Failed", -20)), Ending(By.FINISHED), NOW - timedelta(seconds=20), id="no ttl"),
        pytest.param(
            job({"activeDeadlineSeconds": 60}, {"startTime": at(-20)}),
            Ending(By.HAND),
            NOW + timedelta(seconds=40),
            id="a deadline ends only the pods",
        ),
        pytest.param(
            job({"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5}, {"startTime": at(-20)}),
            Ending(By.DEADLINE, NOW + timedelta(seconds=45)),
            NOW + timedelta(seconds=40),
            id="a deadline and a ttl",
        ),
        pytest.param(
            job(deletionTimestamp=at(-1), finalizers=["orphan"]),
            Ending(By.FINALIZERS, detail="orphan"),
            None,
            id="deleted",
        ),
    ],
)
def test_a_job_shows_what_ends_it_and_its_pods(manifest: JSON, ending: Ending, made_end: datetime | None) -> None:
    """The TTL counts from the finish; a deadline ends the pods, not the Job's own charge."""
    found = live("jobs.batch", manifest, NOW)

    assert (found.ending, found.made_end) == (ending, made_end)
    assert found.finished is (ending.by in {By.TTL, By.FINISHED})


@pytest.mark.parametrize(
    ("references", "owner"),
    [
        pytest.param(None, "Pod/x", id="none"),
        pytest.param([{"kind": "Node", "name": "n"}], "Pod/x", id="no controller"),
        pytest.param([{"kind": "A", "name": "b"}, REPLICA_SET], "ReplicaSet/web-7d4b9c", id="the controller"),
    ],
)
def test_the_owner_is_the_controller(references: list[JSON] | None, owner: str) -> None:
    """Other owner references do not count."""
    assert live("pods", pod(ownerReferences=references), NOW).owner == owner


def test_an_unknown_kind_is_named_by_its_resource() -> None:
    """The name is in the form that kubectl accepts."""
    found = live("widgets.example.com", {"metadata": {"name": "w"}}, NOW)

    assert found.owner == "widgets.example.com/w"
    assert dict(found.charged.amounts) == {"count/widgets.example.com": 10**9}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"creationTimestamp": 3, "deletionTimestamp": "soon", "finalizers": 5},
        {"deletionTimestamp": at(-9), "deletionGracePeriodSeconds": 10**30},
        {"deletionTimestamp": "2026-11-21T14:00:00"},
    ],
    ids=repr,
)
def test_malformed_metadata_counts_as_unknown(metadata: JSON) -> None:
    """An object without a name or with malformed times is charged like any other; its age is unknown."""
    found = live("pods", {**pod(), "metadata": metadata}, NOW)

    assert amounts(found) == WHOLE
    assert (found.name, found.created) == ("?", None)


@pytest.mark.parametrize(
    "broken", [{"metadata": 3}, {"spec": {"containers": 3}}, {"metadata": {"ownerReferences": [3]}}]
)
def test_a_malformed_object_is_refused(broken: JSON) -> None:
    """The caller counts the error and continues."""
    with pytest.raises(FieldError, match="must be a"):
        live("pods", {**pod(), **broken}, NOW)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("pods", ("pods",)),
        ("count/pods", ("pods",)),
        ("requests.nvidia.com/gpu", ("pods",)),
        ("limits.ephemeral-storage", ("pods",)),
        ("hugepages-2Mi", ("pods",)),
        ("requests.storage", ("persistentvolumeclaims",)),
        ("gold.storageclass.storage.k8s.io/requests.storage", ("persistentvolumeclaims",)),
        ("services.loadbalancers", ("services",)),
        ("secrets", ("secrets",)),
        ("count/jobs.batch", ("jobs.batch",)),
        ("gpu.deviceclass.resource.k8s.io/devices", ("resourceclaims.resource.k8s.io",)),
        ("requests.deviceclass.resource.kubernetes.io/gpu", ("pods", "resourceclaims.resource.k8s.io")),
        ("count/events", ()),
        ("count/../../nodes", ()),
        ("example.com/unknown", ()),
    ],
)
def test_a_resource_name_gives_the_kinds_it_charges(name: str, kinds: tuple[str, ...]) -> None:
    """Only those kinds are listed; a crafted name in a quota cannot lead to another path on the server."""
    assert kinds_of(name) == kinds

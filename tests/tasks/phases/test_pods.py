"""A pod's status and the phase that its plugin makes of it, case by case."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest

from tests.tasks.phases.pods import (
    AGES,
    ENDED,
    GRACE,
    LATE,
    MALFORMED,
    NOW,
    OLD,
    PENDING,
    PLUGIN,
    PULL,
    RUNNING,
    YOUNG,
    Pod,
    ago,
    ended,
    not_ready,
    phase_of,
    pod,
    runs,
    told,
)


def before(**span: int) -> datetime:
    return NOW - timedelta(**span)


@pytest.mark.parametrize(("status", "said", "reason"), [row[1:] for row in PENDING], ids=[row[0] for row in PENDING])
def test_a_pending_pod(status: Pod, said: str, reason: str) -> None:
    """It waits for a node, starts up, or never will."""
    info = phase_of(status)

    assert told(info) == said
    assert reason in info.reason


@pytest.mark.parametrize(("status", "said", "reason"), [row[1:] for row in LATE], ids=[row[0] for row in LATE])
def test_a_pod_that_is_pending_for_too_long(status: Pod, said: str, reason: str) -> None:
    """With a pod-pending-timeout of ten minutes it fails then, and not before; without one it never does."""
    info = phase_of(status, pod_pending_timeout="10m")

    assert (told(info), info.reason) == (said, reason)
    assert "PodPendingTimeout" not in told(phase_of(status))


@pytest.mark.parametrize(("status", "config", "said"), [row[1:] for row in AGES], ids=[row[0] for row in AGES])
def test_grace_periods(status: Pod, config: Pod, said: str) -> None:
    """They are counted from the condition, else from the pod; a grace of 0 is none."""
    assert told(phase_of(status, **config)) == said


@pytest.mark.parametrize(
    ("status", "said", "reason"),
    [row[1:] for row in (*ENDED, *MALFORMED)],
    ids=[row[0] for row in (*ENDED, *MALFORMED)],
)
def test_a_pod_that_has_ended(status: Pod, said: str, reason: str) -> None:
    """Whose failure it is follows from what tells most, not from what comes last."""
    info = phase_of(status)

    assert told(info) == said
    assert reason in info.reason
    assert PLUGIN.is_terminal(status)


@pytest.mark.parametrize(("status", "said", "version"), [row[1:] for row in RUNNING], ids=[row[0] for row in RUNNING])
def test_a_pod_that_runs(status: Pod, said: str, version: int) -> None:
    """Its primary container decides if it has one; the version is 1 once there are logs."""
    info = phase_of(status)

    assert (told(info), info.version) == (said, version)
    assert not PLUGIN.is_terminal(status)


def test_the_words_of_a_primary_container() -> None:
    """They are Flyte's."""
    lost = phase_of(pod("Running", primary="gone", containerStatuses=[runs()]))
    out = phase_of(pod("Running", primary="main", containerStatuses=[ended(code=2, reason="Error", message="why")]))

    assert lost.reason == "Primary container [gone] not found in pod's container statuses"
    assert out.reason == "[main] terminated with exit code (2). Reason [Error]. Message: \nwhy."
    assert phase_of(pod("Unschedulable")).reason == "pod unschedulable"


def test_when_it_happened() -> None:
    """Each phase has the time that the cluster gives it, and a pod that has ended that of its last container."""
    later = {"name": "b", "state": {"terminated": {"exitCode": 0, "finishedAt": ago(seconds=2)}}}
    init = {"name": "i", "state": {"terminated": {"exitCode": 1, "finishedAt": ago(seconds=1)}}}
    done = pod("Succeeded", created=OLD, containerStatuses=[ended(), later])

    assert phase_of(not_ready(YOUNG, PULL)).occurred_at == before(minutes=2, seconds=59)
    assert phase_of(not_ready(GRACE, PULL)).occurred_at == before(minutes=3)
    assert phase_of(pod("Running", containerStatuses=[runs()])).occurred_at == before(seconds=30)
    assert phase_of(
        pod("Running", containerStatuses=[{"name": "a"}], initContainerStatuses=[init])
    ).occurred_at == before(seconds=1)
    assert phase_of(done).occurred_at == PLUGIN.get_completion_time(done) == before(seconds=2)
    assert PLUGIN.get_completion_time(pod("Failed", initContainerStatuses=[init])) == before(seconds=1)
    assert (
        PLUGIN.get_completion_time(pod("Failed", containerStatuses=[{"name": "a", "state": {"terminated": {}}}]))
        is None
    )
    assert PLUGIN.get_completion_time(pod("Running", created=OLD)) is None


def test_when_it_ended_if_no_container_says_so() -> None:
    """When it was deleted, else when it started, else when it was created."""
    known = pod("Failed", created=OLD, startTime=GRACE)
    gone = {**known, "metadata": {**known["metadata"], "deletionTimestamp": YOUNG}}

    ends = [PLUGIN.get_completion_time(each) for each in (gone, known, pod("Failed", created=OLD))]

    assert ends == [before(minutes=2, seconds=59), before(minutes=3), before(minutes=10)]


@pytest.mark.parametrize(
    "time", [before(minutes=10), "2026-05-04T11:50:00", before(minutes=10).replace(tzinfo=None), "2026-05-04T13:50:00.000000001+02:00"]
)  # fmt: skip
def test_times_as_yaml_and_servers_write_them(time: Any) -> None:
    """YAML makes objects of times that are not quoted; without a zone they are UTC."""
    assert phase_of(pod("Pending", created=time)).occurred_at == before(minutes=10)
    assert phase_of(pod("Pending", created=date(2026, 5, 4))).occurred_at == before(hours=12)
    assert phase_of(pod("Pending", created="yesterday")).occurred_at is None


def test_where_logs_are_found() -> None:
    """A command per container, once something has run."""
    spec = {"containers": [{"name": "main"}, {"name": "side"}]}
    commands = ["kubectl logs --namespace n p --container main", "kubectl logs --namespace n p --container side"]

    for status in ("Running", "Succeeded", "Failed"):
        assert [each.uri for each in phase_of(pod(status, spec=spec)).logs] == commands
    assert phase_of(pod("Pending", spec=spec)).logs == ()
    assert (
        phase_of({"metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Running"}})
        .logs[0]
        .uri.startswith("kubectl logs --namespace default p ")
    )
    assert phase_of({"spec": spec, "status": {"phase": "Running"}}).logs == ()


def test_a_node_that_does_not_answer() -> None:
    """Its message says so."""
    assert phase_of(pod("Unknown", message="Node n1 is unresponsive")).reason == "Node n1 is unresponsive"

"""A pod's status and the phase that its plugin makes of it, case by case."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.tasks.phases.pods import (
    AGES,
    ENDED,
    GRACE,
    LATE,
    NOW,
    OLD,
    PENDING,
    PLUGIN,
    PULL,
    RUNNING,
    YOUNG,
    ago,
    ended,
    not_ready,
    phase_of,
    pod,
    runs,
    told,
)

if TYPE_CHECKING:
    from tests.tasks.phases.pods import Pod


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


@pytest.mark.parametrize(("status", "said", "reason"), [row[1:] for row in ENDED], ids=[row[0] for row in ENDED])
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
    assert out.reason == "\r\n[main] terminated with exit code (2). Reason [Error]. Message: \nwhy."
    assert phase_of(pod("Unschedulable")).reason == "pod unschedulable"


def test_when_it_happened() -> None:
    """Each phase has the time that the cluster gives it, and a pod that has ended that of its last container."""
    done = pod(
        "Succeeded",
        created=OLD,
        containerStatuses=[
            ended(),
            {**ended("b"), "state": {"terminated": {"exitCode": 0, "finishedAt": ago(seconds=2)}}},
        ],
    )

    assert phase_of(not_ready(YOUNG, PULL)).occurred_at == NOW - timedelta(minutes=2, seconds=59)
    assert phase_of(pod("Running", containerStatuses=[runs()])).occurred_at == NOW - timedelta(seconds=30)
    assert phase_of(done).occurred_at == PLUGIN.get_completion_time(done) == NOW - timedelta(seconds=2)
    assert PLUGIN.get_completion_time(pod("Failed", startTime=GRACE, created=OLD)) == NOW - timedelta(minutes=3)
    assert PLUGIN.get_completion_time(pod("Running", created=OLD)) is None

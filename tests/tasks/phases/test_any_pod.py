"""Whatever stands in a pod, its plugin gives it a phase and never raises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.pods import container
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext

CONTEXT = PluginContext(
    K8sPluginConfig(pod_pending_timeout=timedelta(hours=1)), datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
)

WORDS = st.sampled_from(
    [
        "Pending",
        "Running",
        "Succeeded",
        "Failed",
        "Unknown",
        "Unschedulable",
        "Ready",
        "PodScheduled",
        "DisruptionTarget",
        "True",
        "False",
        "main",
        "Shutdown",
        "OOMKilled",
        "ImagePullBackOff",
        "ContainerCreating",
        "2026-05-04T11:59:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ]
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Return objects with some of these fields, each sensible or junk."""
    return JUNK | st.fixed_dictionaries({}, optional={name: each | JUNK for name, each in fields.items()})


TERMINATED = some(
    {"exitCode": st.sampled_from([0, 1, 137, 247]), "reason": WORDS, "message": WORDS, "finishedAt": WORDS}
)
WAITING = some({"reason": WORDS, "message": WORDS})
STATE = some({"waiting": WAITING, "running": some({"startedAt": WORDS}), "terminated": TERMINATED})
CONTAINERS = st.lists(some({"name": WORDS, "ready": st.booleans(), "state": STATE, "lastState": STATE}), max_size=3)
CONDITION = some({"type": WORDS, "status": WORDS, "reason": WORDS, "message": WORDS, "lastTransitionTime": WORDS})
STATUS = some(
    {
        "phase": WORDS,
        "reason": WORDS,
        "startTime": WORDS,
        "conditions": st.lists(CONDITION, max_size=3),
        "containerStatuses": CONTAINERS,
        "initContainerStatuses": CONTAINERS,
        "ephemeralContainerStatuses": CONTAINERS,
    }
)
METADATA = some({"name": WORDS, "creationTimestamp": WORDS, "annotations": some({"primary_container_name": WORDS})})
PODS = st.fixed_dictionaries(
    {}, optional={"metadata": METADATA, "spec": some({"containers": CONTAINERS}), "status": STATUS}
)


@given(PODS)
def test_any_pod_has_a_phase(pod: dict[str, Any]) -> None:
    """Only the phase Unknown leaves it open; a failure always says whose it is, and what has ended is said to have."""
    info = container.plugin.get_task_phase(CONTEXT, pod)

    status = pod.get("status")
    unknown = isinstance(status, dict) and status.get("phase") == "Unknown"
    assert (info.phase is Phase.UNDEFINED) == unknown
    assert info.phase.is_failure == (info.error is not None)
    if container.plugin.is_terminal(pod):
        assert info.phase.is_terminal
    container.plugin.get_completion_time(pod)

"""An operator's object and the phase that its plugin makes of it: every row of ``operator_cases``."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext
from backoff_ctrl.k8s.tasks.plugins.registry import of_objects
from tests.tasks.phases.operator_cases import CASES, NOW, Case, ago, condition, job_set, kubeflow, manifest

JSON = dict[str, Any]

PLUGINS = registry()
TERMINAL = {"Success", "RetryableFailure", "PermanentFailure"}


def told(task_type: str, resource: JSON, *pods: JSON, now: datetime = NOW, **settings: Any) -> PhaseInfo:
    """Return what the plugin of a task type says."""
    context = PluginContext(K8sPluginConfig(**settings), now, pods)
    return of_objects(PLUGINS.resolve(task_type)).plugin.get_task_phase(context, resource)


def summary(info: PhaseInfo) -> tuple[str, str, str, bool]:
    error = info.error
    return info.phase.title, error.code if error else "", error.kind.value if error else "", info.cleanup_on_failure


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type}: {case.name}")
def test_a_status_has_the_phase_of_its_row(case: Case) -> None:
    """Phase, code, whose failure it is and whether it is cleaned up; the operator's words are repeated."""
    resource = case.resource
    info = told(case.type, resource)
    assert summary(info) == (case.phase, case.code, case.kind, case.cleanup)
    assert case.says in info.reason
    plugin = of_objects(PLUGINS.resolve(case.type)).plugin
    assert plugin.is_terminal(resource) is (case.phase in TERMINAL)
    ended = plugin.get_completion_time(resource)
    if case.ended is not None:
        assert ended == datetime.fromisoformat(case.ended) == info.occurred_at
    if case.phase not in TERMINAL:
        assert ended is None


@pytest.mark.parametrize("task_type", ["pytorch", "tensorflow", "mpi", "mpi-v2beta1"])
def test_a_training_job_that_no_operator_looks_at_is_the_platforms_failure(task_type: str) -> None:
    """After its time, and neither before nor while it is suspended, nor once it has been started."""
    resource = manifest(task_type)
    resource["metadata"]["creationTimestamp"] = ago(seconds=61)
    assert summary(told(task_type, resource)) == ("RetryableFailure", "OperatorTimeout", "SYSTEM", True)
    assert told(task_type, resource, now=NOW - timedelta(seconds=1)).phase.title == "Queued"
    started = {**resource, "status": kubeflow("Job")}
    assert told(task_type, started).phase.title == "Queued"
    resource["spec"]["runPolicy"] = {"suspend": True}
    assert told(task_type, resource).phase.title == "Queued"
    held = condition("Suspended", "JobSuspended")
    suspended = {**resource, "status": kubeflow("Job", held, startTime=None)}
    assert told(task_type, suspended).phase.title == "Queued"
    suspended["spec"]["runPolicy"] = {"suspend": False}  # resumed: its operator will see that in a moment
    assert told(task_type, suspended).phase.title == "Queued"
    resumed = condition("Suspended", "JobResumed", seconds=60, status="False")  # and then starts it anew
    suspended["metadata"]["creationTimestamp"] = ago(seconds=7200)
    suspended["status"] = {"conditions": [condition("Created", "JobCreated", seconds=7200), resumed]}
    assert told(task_type, suspended).phase.title == "Queued"
    assert told(task_type, suspended, now=NOW + timedelta(seconds=1)).error is not None


LABELS = {
    "spark": {"sparkoperator.k8s.io/app-name": "train", "spark-role": "driver"},
    "ray": {"ray.io/cluster": "train-abcde", "ray.io/node-type": "head"},
    "dask": {"dask.org/cluster-name": "train", "dask.org/component": "job-runner"},
    "pytorch": {"training.kubeflow.org/job-name": "train"},
    "tensorflow": {"training.kubeflow.org/job-name": "train"},
    "mpi": {"training.kubeflow.org/job-name": "train"},
    "mpi-v2beta1": {"training.kubeflow.org/job-name": "train"},
    "job": {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/controller-uid": "u-1"},
    "jobset": {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": "u-1"},
}
STARTING = {
    "spark": "submitted",
    "ray": "initializing",
    "dask": "cluster created",
    "pytorch": "created",
    "tensorflow": "created",
    "mpi": "created",
    "mpi-v2beta1": "created",
    "job": "pods are starting",
    "jobset": "active",
}
FAILED = {**dict.fromkeys(STARTING, "failed"), "ray": "failed by its program", "job": "failed too often"}


def row(task_type: str, name: str) -> JSON:
    return next(case.resource for case in CASES if (case.type, case.name) == (task_type, name))


def pulling(labels: JSON, seconds: float) -> JSON:
    """Return a pod whose image can't be pulled."""
    ready = {**condition("Ready", "ContainersNotReady", "not ready", status="False", seconds=seconds)}
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image busybox:1"}
    container = {"name": "main", "ready": False, "state": {"waiting": waiting}}
    status = {"phase": "Pending", "conditions": [ready], "containerStatuses": [container]}
    return {"kind": "Pod", "metadata": {"name": "train-0", "labels": labels}, "status": status}


def ended(labels: JSON, *, reason: str = "Error", code: int = 1, pod_reason: str = "", seconds: float = 5) -> JSON:
    how = {"exitCode": code, "reason": reason, "finishedAt": ago(seconds=seconds)}
    status = {
        "phase": "Failed",
        "reason": pod_reason,
        "containerStatuses": [{"name": "main", "state": {"terminated": how}}],
    }
    return {"kind": "Pod", "metadata": {"name": f"train-{code}", "labels": labels}, "status": status}


@pytest.mark.parametrize("task_type", LABELS)
def test_an_image_that_cannot_be_pulled_ends_a_task_though_its_operator_still_waits(task_type: str) -> None:
    """After the grace period; before it, the reason says what is waited for. Pods of others say nothing."""
    resource = row(task_type, STARTING[task_type])
    labels = LABELS[task_type]
    plugin = of_objects(PLUGINS.resolve(task_type)).plugin
    assert dict(plugin.pod_labels(resource)) == labels  # type: ignore[attr-defined]
    phase, code, kind, cleanup = summary(told(task_type, resource, pulling(labels, 181)))
    assert (phase, kind, cleanup) == ("RetryableFailure", "USER", True)
    assert code.endswith("ImagePullBackOff")
    early = told(task_type, resource, pulling(labels, 179))
    assert early.phase.title == told(task_type, resource).phase.title
    assert task_type == "jobset" or "Back-off pulling image busybox:1" in early.reason
    other = {**labels, next(iter(labels)): "another"}
    assert told(task_type, resource, pulling(other, 181)) == told(task_type, resource)


@pytest.mark.parametrize("task_type", LABELS)
def test_a_failure_is_explained_by_the_pod_that_failed(task_type: str) -> None:
    """A node that went down is the platform's affair, memory that ran out the user's; a plain exit changes no code."""
    resource, labels = row(task_type, FAILED[task_type]), LABELS[task_type]
    plain = told(task_type, resource)
    told_more = told(task_type, resource, ended(labels))
    assert summary(told_more) == summary(plain)
    assert "train-1" in told_more.reason
    assert summary(told(task_type, resource, ended(labels, reason="OOMKilled", code=137)))[1:3] == ("OOMKilled", "USER")
    phase, code, kind, _ = summary(told(task_type, resource, ended(labels, pod_reason="NodeShutdown")))
    assert (phase, kind) == ("RetryableFailure", "SYSTEM")
    assert code == ("HostMaintenance" if task_type == "jobset" else "Interrupted")


def crashed(name: str, labels: JSON, *, seconds: float = 5, **how: Any) -> JSON:
    """Return a pod of this name that failed."""
    pod = ended(labels, seconds=seconds, **how)
    pod["metadata"]["name"] = name
    return pod


RUNNING = {"spark": "RUNNING", "ray": "running", "dask": "running", "pytorch": "running"}
MAIN: dict[str, tuple[str, JSON, str]] = {
    "spark": ("train-driver", LABELS["spark"], "DownstreamSystemError"),
    "ray": ("train-abcde-head", LABELS["ray"], "TaskFailedWithError"),
    "dask": ("train-runner", LABELS["dask"], "DownstreamSystemError"),
    "pytorch": (
        "train-worker-0",
        {**LABELS["pytorch"], "training.kubeflow.org/replica-index": "0"},
        "DownstreamSystemError",
    ),
}
RESTARTS: dict[str, JSON] = {
    "spark": {"restartPolicy": {"type": "OnFailure"}},
    "ray": {"backoffLimit": 2},
    "pytorch": {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": "ExitCode"}}},
}


@pytest.mark.parametrize("task_type", MAIN)
def test_a_main_pod_that_failed_ends_the_attempt_though_the_object_says_that_it_runs(task_type: str) -> None:
    """Found by its labels, or by its name where it has none; a pod of others, or one that is replaced, ends nothing."""
    resource = row(task_type, RUNNING[task_type])
    name, labels, code = MAIN[task_type]
    lost = ("RetryableFailure", code, "USER", True)
    info = told(task_type, resource, crashed("any", labels))
    assert summary(info) == lost
    assert "pod any: " in info.reason
    assert info.occurred_at == datetime.fromisoformat(ago(seconds=5))
    assert summary(told(task_type, resource, crashed(name, {}))) == lost
    assert name in of_objects(PLUGINS.resolve(task_type)).plugin.pod_names(resource)  # type: ignore[attr-defined]
    memory = told(task_type, resource, crashed(name, labels, reason="OOMKilled", code=137))
    assert summary(memory) == ("RetryableFailure", "OOMKilled", "USER", True)
    node = told(task_type, resource, crashed(name, labels, pod_reason="NodeShutdown"))
    assert summary(node) == ("RetryableFailure", "Interrupted", "SYSTEM", True)

    runs = told(task_type, resource)
    assert runs.phase.title == "Running"
    other = {**labels, next(iter(LABELS[task_type])): "another"}
    assert told(task_type, resource, crashed("another", other)) == runs
    assert told(task_type, resource, crashed("stranger", {})) == runs
    stranger = crashed(name, labels)
    stranger["metadata"]["ownerReferences"] = [{"kind": resource["kind"], "name": "train", "uid": "earlier"}]
    assert told(task_type, resource, stranger) == runs
    going = crashed(name, labels)
    going["metadata"]["deletionTimestamp"] = ago(seconds=1)
    assert told(task_type, resource, going) == runs


def test_a_pod_that_others_can_do_without_ends_nothing() -> None:
    """A worker that is not the first: its operator decides."""
    labels = {**LABELS["pytorch"], "training.kubeflow.org/replica-index": "1"}
    assert told("pytorch", row("pytorch", "running"), crashed("train-worker-1", labels)).phase.title == "Running"


@pytest.mark.parametrize("task_type", RESTARTS)
def test_an_operator_that_starts_a_failed_pod_again_has_a_moment_to_do_so(task_type: str) -> None:
    """After it the operator is taken to be gone; a pod that says no time has failed long ago."""
    resource = row(task_type, RUNNING[task_type])
    for key, value in RESTARTS[task_type].items():
        resource["spec"][key] = value
    name, labels, _ = MAIN[task_type]
    assert told(task_type, resource, crashed(name, labels, seconds=4)).phase.title == "Running"
    assert told(task_type, resource, crashed(name, labels, seconds=6)).phase.title == "RetryableFailure"
    timeless = crashed(name, labels)
    del timeless["status"]["containerStatuses"]
    assert told(task_type, resource, timeless).phase.title == "RetryableFailure"


@pytest.mark.parametrize("state", ["FAILING", "PENDING_RERUN", "INVALIDATING"])
def test_what_an_operator_is_at_with_a_failed_pod_is_left_to_it(state: str) -> None:
    """The driver of an application that is about to run again has failed, and is not looked up by its name."""
    resource = row("spark", state)
    assert told("spark", resource, crashed("train-driver", LABELS["spark"])).phase.title == "Running"
    assert of_objects(PLUGINS.resolve("spark")).plugin.pod_names(resource) == ()  # type: ignore[attr-defined]


def test_a_job_is_explained_by_its_last_pod_and_a_gang_by_its_first() -> None:
    """A Job tries one pod after another; of a gang, those that fail later were ended with the first."""
    for task_type, kind in (("job", "USER"), ("jobset", "SYSTEM")):
        labels = LABELS[task_type]
        first, last = ended(labels, pod_reason="NodeShutdown", seconds=9), ended(labels, seconds=3)
        assert summary(told(task_type, row(task_type, FAILED[task_type]), last, first))[2] == kind


def test_a_job_set_fails_with_its_job_once_no_restart_is_left() -> None:
    """Before its controller has noted it; with restarts left, or while it restarts, it goes on."""
    labels = LABELS["jobset"]
    resource = {**row("jobset", "active"), "status": job_set(restarts=1, failed=1)}
    resource["spec"]["failurePolicy"] = {"maxRestarts": 1}
    pod = ended(labels, reason="OOMKilled", code=137)
    assert summary(told("jobset", resource, pod)) == ("RetryableFailure", "OOMKilled", "USER", True)
    resource["spec"]["failurePolicy"]["rules"] = [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]
    assert told("jobset", resource, pod).phase.title == "Running"
    resource["spec"]["failurePolicy"] = {"maxRestarts": 2}
    assert told("jobset", resource, pod).phase.title == "Running"
    resource["spec"]["failurePolicy"] = {"maxRestarts": 1}
    resource["status"] = job_set(condition("RestartingJobSet", "DefaultFailurePolicy"), restarts=1, failed=1)
    assert told("jobset", resource, pod).phase.title == "Running"


@pytest.mark.parametrize("status", [None, [], "x", {"conditions": "x"}, {"conditions": [None, 3]}, {"active": "x"}])
@pytest.mark.parametrize("task_type", LABELS)
def test_a_status_that_nobody_writes_is_no_error(task_type: str, status: Any) -> None:
    """Whatever stands there, the plugin says a phase that doesn't end the task."""
    resource = {**manifest(task_type), "status": status}
    assert not told(task_type, resource).phase.is_terminal
    assert not of_objects(PLUGINS.resolve(task_type)).plugin.is_terminal(resource)


WORDS = sorted({word for case in CASES for word in re.findall(r"[A-Za-z]+", json.dumps([case.status, case.spec]))})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(WORDS) | st.just(ago(seconds=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=20,
)
OBJECTS = st.fixed_dictionaries({}, optional=dict.fromkeys(("metadata", "spec", "status"), VALUES))


@pytest.mark.long
@given(OBJECTS, st.lists(OBJECTS, max_size=2), st.sampled_from(sorted(LABELS)))
def test_whatever_an_object_and_its_pods_say_a_plugin_has_an_answer(
    resource: JSON, pods: list[JSON], task_type: str
) -> None:
    """The operators' own words, in any place and of any type: no error, and one story in all that is told."""
    plugin = of_objects(PLUGINS.resolve(task_type)).plugin
    info = told(task_type, resource, *pods)
    assert (info.error is not None) is info.phase.is_failure
    assert plugin.get_completion_time(resource) is None or plugin.is_terminal(resource)
    assert plugin.is_terminal(resource) <= info.phase.is_terminal
    assert all(plugin.pod_labels(resource).values())  # type: ignore[attr-defined]

"""Objects of operators as these write them, and the phase of each: a row a case.

The statuses are those of the operators' sources (the versions in tests/data/definitions/ORIGIN.md). They are tried
without a server, and stored in a real one whose definitions are the operators' own.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

JSON = dict[str, Any]

NOW: Final = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
SYSTEM, USER = "SYSTEM", "USER"
RETRYABLE, PERMANENT = "RetryableFailure", "PermanentFailure"


def ago(**span: float) -> str:
    """Return a time before now, as the API server writes it."""
    return (NOW - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Case:
    """A task type's object with a status, and what its plugin says of it. ``spec`` is merged into a whole one."""

    type: str
    name: str
    status: JSON
    phase: str
    code: str = ""
    kind: str = ""
    cleanup: bool = False
    says: str = ""
    ended: str | None = None
    spec: JSON = field(default_factory=dict)

    @property
    def resource(self) -> JSON:
        made = manifest(self.type)
        made["metadata"] |= {"creationTimestamp": ago(seconds=30), "uid": "u-1", "namespace": "n"}
        _merge(made["spec"], self.spec)
        return {**made, "status": deepcopy(self.status)} if self.status else made


def manifest(task_type: str) -> JSON:
    """Return an object that the kind's definition accepts, without a status."""
    return deepcopy(_MANIFESTS[task_type])


def _merge(into: JSON, more: JSON) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


_POD: Final = {"spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}
_SPARK: Final = {
    "type": "Scala",
    "mode": "cluster",
    "image": "spark:3.5",
    "mainClass": "org.apache.spark.examples.SparkPi",
    "mainApplicationFile": "local:///opt/spark/examples.jar",
    "sparkVersion": "3.5.3",
    "driver": {"cores": 1, "memory": "512m"},
    "executor": {"cores": 1, "instances": 2, "memory": "512m"},
}
_RAY: Final = {
    "entrypoint": "python train.py",
    "rayClusterSpec": {
        "headGroupSpec": {"rayStartParams": {}, "template": _POD},
        "workerGroupSpecs": [
            {
                "groupName": "w",
                "replicas": 2,
                "minReplicas": 1,
                "maxReplicas": 2,
                "rayStartParams": {},
                "template": _POD,
            }
        ],
    },
}
_DASK: Final = {
    "job": _POD,
    "cluster": {
        "spec": {
            "worker": {"replicas": 2, **_POD},
            "scheduler": {**_POD, "service": {"type": "ClusterIP", "selector": {}, "ports": []}},
        }
    },
}
_JOB: Final = {"spec": {"template": {"spec": {**_POD["spec"], "restartPolicy": "Never"}}}}
_JOB_SET: Final = {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": _JOB}]}


def _object(api_version: str, kind: str, spec: JSON) -> JSON:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "train"}, "spec": spec}


def _replicas(key: str, *types: str) -> JSON:
    return {key: {name: {"replicas": 1, "restartPolicy": "OnFailure", "template": _POD} for name in types}}


_MANIFESTS: Final[dict[str, JSON]] = {
    "spark": _object("sparkoperator.k8s.io/v1beta2", "SparkApplication", _SPARK),
    "ray": _object("ray.io/v1", "RayJob", _RAY),
    "dask": _object("kubernetes.dask.org/v1", "DaskJob", _DASK),
    "pytorch": _object("kubeflow.org/v1", "PyTorchJob", _replicas("pytorchReplicaSpecs", "Master", "Worker")),
    "tensorflow": _object("kubeflow.org/v1", "TFJob", _replicas("tfReplicaSpecs", "Chief", "Worker")),
    "mpi": _object("kubeflow.org/v1", "MPIJob", _replicas("mpiReplicaSpecs", "Launcher", "Worker")),
    "mpi-v2beta1": _object("kubeflow.org/v2beta1", "MPIJob", _replicas("mpiReplicaSpecs", "Launcher", "Worker")),
    "job": _object("batch/v1", "Job", _JOB["spec"]),
    "jobset": _object("jobset.x-k8s.io/v1alpha2", "JobSet", _JOB_SET),
}


def spark(state: str, error: str = "", **more: Any) -> JSON:
    told = {"state": state, **({"errorMessage": error} if error else {})}
    return {
        "applicationState": told,
        "driverInfo": {"podName": "train-driver"},
        "submissionID": "5d3c4d10",
        "executionAttempts": 1,
        "submissionAttempts": 1,
        "lastSubmissionAttemptTime": ago(seconds=25),
        **more,
    }


def ray(state: str, job: str = "", **more: Any) -> JSON:
    return {
        **({"jobDeploymentStatus": state} if state else {}),
        **({"jobStatus": job} if job else {}),
        "jobId": "train-x",
        "rayClusterName": "train-abcde",
        "startTime": ago(seconds=28),
        **more,
    }


def condition(kind: str, reason: str, message: str = "", *, status: str = "True", seconds: float = 20) -> JSON:
    """Return a condition that has held for so long."""
    since = ago(seconds=seconds)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def kubeflow(kind: str, *conditions: JSON, **more: Any) -> JSON:
    """Return a training job's status; it was created, and started unless said otherwise."""
    created = condition("Created", f"{kind}Created", f"{kind} train is created.", seconds=29)
    listed = [{**each, "lastUpdateTime": each["lastTransitionTime"]} for each in (created, *conditions)]
    return {"conditions": listed, "replicaStatuses": {"Worker": {"active": 1}}, "startTime": ago(seconds=28), **more}


def of_kubeflow(task_type: str, kind: str) -> list[Case]:
    """Return the rows of one kind of training job."""
    running = condition("Running", f"{kind}Running", f"{kind} train is running.", seconds=20)
    over = {**running, "status": "False"}
    failed = condition(
        "Failed", f"{kind}Failed", f"{kind} train is failed because 1 Worker replica(s) failed.", seconds=2
    )
    suspend = {"runPolicy": {"suspend": True}}
    return [
        Case(task_type, "no status", {}, "Queued"),
        Case(task_type, "created", kubeflow(kind), "Queued"),
        Case(task_type, "running", kubeflow(kind, running), "Running"),
        Case(task_type, "running since the second of its creation", kubeflow(kind, {**running, "lastTransitionTime": ago(seconds=29)}), "Running"),
        Case(task_type, "restarting", kubeflow(kind, condition("Restarting", f"{kind}Restarting")), "Running"),
        Case(task_type, "succeeded", kubeflow(kind, over, condition("Succeeded", f"{kind}Succeeded", seconds=1), completionTime=ago(seconds=1)), "Success", ended=ago(seconds=1)),
        Case(task_type, "failed", kubeflow(kind, over, failed, completionTime=ago(seconds=2)), RETRYABLE, "DownstreamSystemError", USER, says=f"Job failed:\n\t{kind}Failed - {kind} train is failed because 1 Worker replica(s) failed.", ended=ago(seconds=2)),
        Case(task_type, "failed in the second of a restart", kubeflow(kind, failed, condition("Restarting", f"{kind}Restarting", seconds=2)), RETRYABLE, "DownstreamSystemError", USER),
        Case(task_type, "restarting after it had failed", kubeflow(kind, failed, condition("Restarting", f"{kind}Restarting", seconds=1)), "Running"),
        Case(task_type, "running again after it had failed", kubeflow(kind, {**running, "lastTransitionTime": ago(seconds=1)}, failed), "Running"),
        Case(task_type, "succeeded, and then noted by a newer operator", kubeflow(kind, over, condition("Succeeded", f"{kind}Succeeded", seconds=2), condition("PodsGone", "AllGone", seconds=1)), "Success"),
        Case(task_type, "suspended", kubeflow(kind, over, condition("Suspended", f"{kind}Suspended", seconds=3)), "Queued", says="Suspended", spec=suspend),
        Case(task_type, "suspended from the start", {}, "Queued", says="Suspended", spec=suspend),
        Case(task_type, "no condition is True", {"conditions": [{**over, "lastUpdateTime": ago(seconds=9)}], "startTime": ago(seconds=20), "replicaStatuses": {}}, "Queued"),
        Case(task_type, "a condition of a newer operator", kubeflow(kind, condition("PodsReady", "AllThere", seconds=4)), "Running", says="PodsReady"),
    ]  # fmt: skip


def job_set(*conditions: JSON, restarts: int = 0, **counts: int) -> JSON:
    counted = {"ready": 0, "active": 0, "succeeded": 0, "failed": 0, "suspended": 0, **counts}
    replicated = [{"name": "workers", **counted}]
    return {
        "restarts": restarts,
        "replicatedJobsStatus": replicated,
        **({"conditions": list(conditions)} if conditions else {}),
    }


def job(*conditions: JSON, **more: Any) -> JSON:
    listed = [{**each, "lastProbeTime": each["lastTransitionTime"]} for each in conditions]
    started = {"startTime": ago(seconds=28), "uncountedTerminatedPods": {}}
    return {**({"conditions": listed} if listed else {}), **started, "ready": 0, "terminating": 0, **more}


DOWN: Final = "DownstreamSystemError"
FAILED_RAY: Final = "TaskFailedWithError"
GRACE: Final = "JobDeploymentStatusTransitionGracePeriodExceeded"
STARTED: Final = condition(
    "StartupPolicyCompleted", "InOrderStartupPolicyCompleted", "in order startup policy has completed"
)
LATE: Final = condition("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline", seconds=3)
MET: Final = condition(
    "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods", seconds=3
)


def _failed_job(reason: str, message: str = "m", **more: Any) -> JSON:
    parts = [condition(kind, reason, message, seconds=2) for kind in ("FailureTarget", "Failed")]
    return job(*parts, failed=1, **more)


CASES: Final = [
    Case("spark", "no status", {}, "Queued", says="job queued"),
    Case("spark", "new", spark(""), "Queued", says="job queued"),
    Case("spark", "submitted", spark("SUBMITTED"), "Initializing", says="job submitted"),
    Case("spark", "pending submission", spark("PENDING_SUBMISSION"), "Initializing", says="job submitted"),
    Case("spark", "submission failed", spark("SUBMISSION_FAILED", "failed to run spark-submit: exit 1"), RETRYABLE, DOWN, USER, says="failed to run spark-submit"),
    Case("spark", "failed", spark("FAILED", "driver container failed with ExitCode: 1, Reason: Error", terminationTime=ago(seconds=3)), RETRYABLE, DOWN, USER, says="ExitCode: 1", ended=ago(seconds=3)),
    Case("spark", "completed", spark("COMPLETED", terminationTime=ago(seconds=3)), "Success", ended=ago(seconds=3)),
    *(Case("spark", state, spark(state, terminationTime=None), "Running") for state in ("RUNNING", "PENDING_RERUN", "INVALIDATING", "SUCCEEDING", "FAILING", "UNKNOWN")),
    *(Case("spark", f"submission failed, restarts {policy}", spark("SUBMISSION_FAILED", "exit 1"), "Initializing", says="submit it again", spec={"restartPolicy": {"type": policy, "onSubmissionFailureRetries": 3}}) for policy in ("OnFailure", "Always")),
    Case("spark", "submission failed, never restarts", spark("SUBMISSION_FAILED", "exit 1"), RETRYABLE, DOWN, USER, spec={"restartPolicy": {"type": "Never"}}),
    *(Case("spark", state, spark(state), "Queued") for state in ("SUSPENDING", "SUSPENDED", "RESUMING")),
    Case("ray", "refused by its operator", ray("ValidationFailed", reason="ValidationFailed", message="the RayJob spec is invalid"), "PermanentFailure", "ValidationFailed", USER, cleanup=True, says="spec is invalid"),
    Case("spark", "a state of a newer operator", spark("MIGRATING"), "Running", says="MIGRATING"),
    Case("ray", "no status", {}, "Queued", says="Scheduling"),
    Case("ray", "new", ray(""), "Queued", says="Scheduling"),
    Case("ray", "initializing", ray("Initializing"), "Initializing", says="cluster is creating"),
    Case("ray", "running", ray("Running", "RUNNING", message="Job is currently running."), "Running", says="Job is currently running."),
    Case("ray", "complete", ray("Complete", "SUCCEEDED", endTime=ago(seconds=4), message="Job finished successfully."), "Success", ended=ago(seconds=4)),
    Case("ray", "complete after a grace period", ray("Complete", "SUCCEEDED", endTime=ago(seconds=4), reason=GRACE), "Success"),
    Case("ray", "complete, but stopped by somebody", ray("Complete", "STOPPED", endTime=ago(seconds=4)), PERMANENT, "Stopped", USER, cleanup=True),
    Case("ray", "complete, but failed, as before 1.2", ray("Complete", "FAILED", endTime=ago(seconds=4)), RETRYABLE, FAILED_RAY, USER, cleanup=True),
    Case("ray", "suspending", ray("Suspending"), "Queued", says="Suspending"),
    Case("ray", "suspended", ray("Suspended"), "Queued", says="Suspended"),
    Case("ray", "suspended from the start", {}, "Queued", says="Suspended", spec={"suspend": True}),
    Case("ray", "failed by its program", ray("Failed", "FAILED", reason="AppFailed", message="Job entrypoint command failed with exit code 1", endTime=ago(seconds=4)), RETRYABLE, FAILED_RAY, USER, cleanup=True, says="exit code 1", ended=ago(seconds=4)),
    Case("ray", "failed after its deadline", ray("Failed", "RUNNING", reason="DeadlineExceeded", endTime=ago(seconds=4)), RETRYABLE, FAILED_RAY, USER, cleanup=True),
    Case("ray", "failed to be submitted", ray("Failed", reason="SubmissionFailed", message="Job submission has failed. Reason: BackoffLimitExceeded.", endTime=ago(seconds=4)), RETRYABLE, FAILED_RAY, SYSTEM, cleanup=True, says="BackoffLimitExceeded"),
    Case("ray", "failed after a grace period", ray("Failed", "FAILED", reason=GRACE, endTime=ago(seconds=4)), RETRYABLE, FAILED_RAY, SYSTEM, cleanup=True),
    Case("ray", "failed without a reason", ray("Failed", endTime=ago(seconds=4)), RETRYABLE, FAILED_RAY, SYSTEM, cleanup=True),
    Case("ray", "failed without a reason, as before 1.2", ray("Failed", "FAILED", endTime=ago(seconds=4)), RETRYABLE, FAILED_RAY, USER, cleanup=True),
    Case("ray", "waiting", ray("Waiting"), "Running", says="waits for a job"),
    Case("ray", "retrying", ray("Retrying", failed=1), "Running", says="retried"),
    Case("ray", "a state of a newer operator", ray("ValidationPending"), "Running", says="ValidationPending"),
    Case("dask", "no status", {}, "Initializing", says="unknown"),
    Case("dask", "created", {"jobStatus": "JobCreated"}, "Initializing", says="job created"),
    Case("dask", "cluster created", {"jobStatus": "ClusterCreated", "clusterName": "train", "jobRunnerPodName": "train-runner"}, "Initializing", says="cluster created"),
    Case("dask", "running", {"jobStatus": "Running", "startTime": ago(seconds=20)}, "Running"),
    Case("dask", "successful", {"jobStatus": "Successful", "endTime": ago(seconds=4)}, "Success", ended=ago(seconds=4)),
    Case("dask", "failed", {"jobStatus": "Failed", "endTime": ago(seconds=4)}, RETRYABLE, DOWN, USER, ended=ago(seconds=4)),
    Case("dask", "a state of a newer operator", {"jobStatus": "Scaling"}, "Running", says="Scaling"),
    *of_kubeflow("pytorch", "PyTorchJob"),
    *of_kubeflow("tensorflow", "TFJob"),
    *of_kubeflow("mpi", "MPIJob"),
    *of_kubeflow("mpi-v2beta1", "MPIJob"),
    Case("jobset", "no status", {}, "Initializing", says="pods scheduling"),
    Case("jobset", "its Jobs are made", job_set(), "Initializing", says="pods scheduling"),
    Case("jobset", "active", job_set(active=1), "Running"),
    Case("jobset", "ready", job_set(active=1, ready=1), "Running", says="restart attempt 0"),
    Case("jobset", "was restarted", job_set(restarts=2), "Running", says="restart attempt 2"),
    Case("jobset", "completed", job_set(STARTED, condition("Completed", "AllJobsCompleted", "jobset completed successfully", seconds=3), succeeded=1), "Success", ended=ago(seconds=3)),
    Case("jobset", "failed", job_set(condition("Failed", "FailedJobs", "jobset failed due to one or more job failures (first failed job: train-workers-0)", seconds=3), failed=1), RETRYABLE, "FailedJobs", USER, says="first failed job", ended=ago(seconds=3)),
    Case("jobset", "no restart is left", job_set(condition("Failed", "ReachedMaxRestarts", seconds=3), restarts=3, failed=1), RETRYABLE, "ReachedMaxRestarts", USER),
    Case("jobset", "restarting", job_set(condition("RestartingJobSet", "DefaultFailurePolicy"), restarts=1), "Running", says="restart in progress (attempt 1)"),
    Case("jobset", "restarting, and started in order before", job_set(STARTED, condition("RestartingJobSet", "DefaultFailurePolicy", seconds=20), restarts=1), "Running", says="restart in progress"),
    Case("jobset", "starting in order", job_set(condition("StartupPolicyInProgress", "InOrderStartupPolicyInProgress", "in order startup policy is in progress")), "Running"),
    Case("jobset", "started in order", job_set(STARTED, ready=1), "Running"),
    Case("jobset", "suspended", job_set(condition("Suspended", "SuspendedJobs", "jobset is suspended"), suspended=1), "Queued", says="Suspended", spec={"suspend": True}),
    Case("jobset", "suspended after it had started in order", job_set(STARTED, condition("Suspended", "SuspendedJobs", seconds=20)), "Queued", spec={"suspend": True}),
    Case("jobset", "suspended from the start", {}, "Queued", says="Suspended", spec={"suspend": True}),
    Case("jobset", "resumed", job_set(condition("Suspended", "ResumeJobs", "jobset is resumed", status="False")), "Initializing"),
    Case("jobset", "a condition of a newer operator", job_set(condition("ElasticResizing", "Resizing", "m")), "Running"),
    Case("job", "no status", {}, "Queued", says="job created"),
    Case("job", "no pods yet", job(), "Queued", says="not created yet"),
    Case("job", "pods are starting", job(active=1), "Initializing"),
    Case("job", "pods are ready", job(active=1, ready=1), "Running"),
    Case("job", "some are done", job(active=1, succeeded=1), "Running"),
    Case("job", "one is tried again", job(active=1, failed=1), "Running"),
    Case("job", "complete", job(MET, condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods", seconds=2), succeeded=1, completionTime=ago(seconds=2)), "Success", ended=ago(seconds=2)),
    Case("job", "is done, its pods go", job(MET, succeeded=1, terminating=1), "Running", says="CompletionsReached"),
    Case("job", "failed too often", _failed_job("BackoffLimitExceeded", "Job has reached the specified backoff limit"), RETRYABLE, "BackoffLimitExceeded", USER, says="backoff limit", ended=ago(seconds=2)),
    Case("job", "took too long", _failed_job("DeadlineExceeded", "Job was active longer than specified deadline"), RETRYABLE, "DeadlineExceeded", USER, says="deadline"),
    Case("job", "is failing, its pods go", job(LATE, terminating=1), "Running", says="DeadlineExceeded"),
    Case("job", "failed by its own policy", _failed_job("PodFailurePolicy", "Container main for pod n/train-x failed with exit code 42 matching FailJob rule at index 0"), PERMANENT, "PodFailurePolicy", USER, says="exit code 42"),
    Case("job", "its policy met a disruption", _failed_job("PodFailurePolicy", "Pod n/train-x has condition DisruptionTarget matching FailJob rule at index 0"), RETRYABLE, "PodFailurePolicy", SYSTEM),
    Case("job", "too many of its indexes failed", _failed_job("MaxFailedIndexesExceeded"), RETRYABLE, "MaxFailedIndexesExceeded", USER),
    Case("job", "suspended", job(condition("Suspended", "JobSuspended", "Job suspended")), "Queued", says="Suspended", spec={"suspend": True}),
    Case("job", "suspended from the start", {}, "Queued", says="Suspended", spec={"suspend": True}),
    Case("job", "resumed", job(condition("Suspended", "JobResumed", "Job resumed", status="False"), active=1, ready=1), "Running"),
]  # fmt: skip

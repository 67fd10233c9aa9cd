"""The plugin for Jobs of Kubernetes: the task's ``template`` is the Job.

The status of a Job is defined in ``pkg/controller/job/job_controller.go`` and ``pkg/apis/batch/types.go`` of Kubernetes
1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import mapping, moment
from backoff_ctrl.k8s.kube.answers.statuses import Condition, conditions_of, labels_with, number
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.kube.operators.states import JOB as STATES
from backoff_ctrl.k8s.kube.operators.states import Stands, that_are
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, failed, initializing, queued, running, success
from backoff_ctrl.k8s.tasks.plugins.pod_building import TEMPLATE, object_of, pod_template
from backoff_ctrl.k8s.tasks.plugins.pod_phases import (
    cause_of_failure,
    explained,
    never_starting,
    own_pods,
    still_starting,
)
from backoff_ctrl.k8s.tasks.plugins.protocol import (
    PluginContext,
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
    refuse_custom,
    refuse_unread,
)

JOB: Final = Kind("batch/v1", "Job", "jobs")
_ENDS: Final = that_are(STATES, Stands.ENDED)
_DISRUPTED: Final = "has condition DisruptionTarget"
"""The controller's message for a disruption that matched a rule of a pod failure policy."""


class JobPlugin:
    """Runs a Job. Its own retries (``backoffLimit``) come before those of the task."""

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        del task
        return {"apiVersion": JOB.api_version, "kind": JOB.kind}

    def build_resource(self, task: TaskContext) -> JSON:
        refuse_custom(task)
        refuse_unread(task, "template")
        made = object_of(task, JOB)
        made["spec"] = job_spec(made["spec"], f"{TEMPLATE}.spec", task)
        return made

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        status = mapping(resource.get("status"))
        conditions = {each.type: each for each in conditions_of(status) if each.status == "True"}
        pods = own_pods(context, self.pod_labels(resource))
        over = self._over(conditions, pods, context, resource)
        if over is not None:
            return over
        if "Suspended" in conditions or (_is_suspended(resource) and not number(status.get("active"))):
            return queued("Suspended")
        stuck = never_starting(pods, context)
        if stuck is not None:
            return stuck
        info = _at_work(status, pods)
        return info if info.phase is Phase.RUNNING else info.with_reason(still_starting(pods, context))

    def _over(
        self, conditions: Mapping[str, Condition], pods: list[JSON], context: PluginContext, resource: JSON
    ) -> PhaseInfo | None:
        """Return the phase of a Job that has ended, or is about to; None for any other."""
        if "Complete" in conditions:
            return replace(success(), occurred_at=self.get_completion_time(resource))
        if "Failed" in conditions:
            info = replace(_failure(conditions["Failed"]), occurred_at=self.get_completion_time(resource))
            return explained(info, cause_of_failure(pods, context, latest=True))
        if "FailureTarget" in conditions:  # it has failed, and still holds the room of the pods that are ended
            return running(f"is failing, its pods are ended: {_words(conditions['FailureTarget'])}")
        if "SuccessCriteriaMet" in conditions:
            return running(f"is done, its pods are ended: {_words(conditions['SuccessCriteriaMet'])}")
        return None

    def get_properties(self) -> PluginProperties:
        """Return the longest name: pods add 6 characters, and their index where they have one."""
        return PluginProperties()

    def is_terminal(self, resource: JSON) -> bool:
        return _end(resource) is not None

    def get_completion_time(self, resource: JSON) -> datetime | None:
        """Return its completion time, or for a failed Job, which has none, that of its condition."""
        end = _end(resource)
        return None if end is None else moment(mapping(resource.get("status")).get("completionTime")) or end.since

    def pod_labels(self, resource: JSON) -> Mapping[str, str]:
        return labels_with(resource, name="batch.kubernetes.io/job-name", uid="batch.kubernetes.io/controller-uid")


def job_spec(spec: JSON, path: str, task: TaskContext) -> JSON:
    """Return a Job's spec with the platform's defaults in its pod template. Raises ``TaskSpecError``."""
    template = pod_template(task, spec.get("template"), f"{path}.template")
    template["spec"].setdefault("restartPolicy", "Never")  # a pod's own default, Always, is refused in a Job
    return {**spec, "template": template}


def _at_work(status: Mapping[str, Any], pods: list[JSON]) -> PhaseInfo:
    """Return the phase of a Job that is neither suspended nor ended, by its counts."""
    ended = number(status.get("succeeded")) + number(status.get("failed"))
    if (
        any(mapping(pod.get("status")).get("phase") == "Running" for pod in pods)
        or number(status.get("ready"))
        or ended
    ):
        return running()
    if number(status.get("active")):
        return initializing("its pods are starting") if "ready" in status else running()
    if status.get("startTime") is None:
        return queued("job created")
    return queued("its pods are not created yet")


def _failure(condition: Condition) -> PhaseInfo:
    """Return whose failure it is: the user's, unless the policy of the Job reacted to a disruption."""
    message = _words(condition)
    if condition.reason == "PodFailurePolicy":
        if _DISRUPTED in condition.message:
            return failed(condition.reason, message, kind=ErrorKind.SYSTEM, retryable=True)
        return failed(condition.reason, message)  # its user's policy says that a retry does not help
    return failed(condition.reason or "JobFailed", message, retryable=True)


def _words(condition: Condition) -> str:
    return ": ".join(filter(None, (condition.reason, condition.message)))


def _end(resource: JSON) -> Condition | None:
    conditions = conditions_of(mapping(resource.get("status")))
    return next((each for each in conditions if each.type in _ENDS and each.status == "True"), None)


def _is_suspended(resource: JSON) -> bool:
    return mapping(resource.get("spec")).get("suspend") is True


entry = PluginEntry("job", ("job",), JOB, JobPlugin())

"""The plugin for JobSets, Flyte's ``clustered-task``: the task's ``template`` is the JobSet.

The status of a JobSet is defined in ``pkg/controllers/jobset_controller.go`` and ``failure_policy.go`` of
sigs.k8s.io/jobset v0.12.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import mapping, mapping_in, mappings
from backoff_ctrl.k8s.kube.answers.statuses import Condition, conditions_of, labels_with, number
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind
from backoff_ctrl.k8s.kube.operators.states import JOB_SET as STATES
from backoff_ctrl.k8s.kube.operators.states import Stands, that_are
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, failed, initializing, queued, running, success
from backoff_ctrl.k8s.tasks.plugins.pod_building import TEMPLATE, object_of
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
    TaskSpecError,
    refuse_custom,
    refuse_unread,
)

from .job import job_spec

JOB_SET: Final = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets")
HOST_MAINTENANCE: Final = "HostMaintenance"
"""The code of a JobSet that failed since the platform ended one of its pods."""
_COUNTS: Final = ("ready", "active", "succeeded", "failed")
_NAME_MAX: Final = 35
_POD_NAME_MAX: Final = 63
_POD_SUFFIX: Final = 6
"""What a Job adds to the names of its pods: a dash, and five characters at random."""


class JobSetPlugin:
    """Runs a JobSet: several Jobs that compute together, and are restarted together."""

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        del task
        return {"apiVersion": JOB_SET.api_version, "kind": JOB_SET.kind}

    def build_resource(self, task: TaskContext) -> JSON:
        refuse_custom(task)
        refuse_unread(task, "template")
        made = object_of(task, JOB_SET)
        listed, at = made["spec"].get("replicatedJobs"), f"{TEMPLATE}.spec.replicatedJobs"
        if not isinstance(listed, list) or not listed:
            raise TaskSpecError(at, "must list at least one replicated job")
        length = min(len(task.metadata.generated_name), _NAME_MAX)
        for index, replicated in enumerate(listed):
            place = f"{at}[{index}]"
            template = replicated.get("template") if isinstance(replicated, dict) else None
            if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
                raise TaskSpecError(f"{place}.template.spec", "must be an object: the spec of a Job")
            _check_names(replicated, place, length)
            replicated["template"] = {**template, "spec": job_spec(template["spec"], f"{place}.template.spec", task)}
        return made

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        """Return the phase by the JobSet's conditions and its pods.

        An unknown condition doesn't change that it runs: new operators have new ones.
        """
        status = mapping(resource.get("status"))
        conditions = {each.type: each for each in conditions_of(status) if each.status == "True"}
        pods = own_pods(context, self.pod_labels(resource))
        return (
            _over(conditions, pods, context)
            or never_starting(pods, context)
            or _at_work(resource, pods, context, known=bool(conditions), restarting="RestartingJobSet" in conditions)
        )

    def get_properties(self) -> PluginProperties:
        """Return the longest name: those of its Jobs and their pods are longer."""
        return PluginProperties(generated_name_max_length=_NAME_MAX)

    def is_terminal(self, resource: JSON) -> bool:
        return _end(resource) is not None

    def get_completion_time(self, resource: JSON) -> datetime | None:
        end = _end(resource)
        return None if end is None else end.since

    def pod_labels(self, resource: JSON) -> Mapping[str, str]:
        return labels_with(resource, name="jobset.sigs.k8s.io/jobset-name", uid="jobset.sigs.k8s.io/jobset-uid")


def _over(conditions: Mapping[str, Condition], pods: list[JSON], context: PluginContext) -> PhaseInfo | None:
    """Return the phase of a JobSet that has ended, or is suspended; None for any other."""
    if "Completed" in conditions:
        return replace(success(), occurred_at=conditions["Completed"].since)
    if "Failed" in conditions:
        info = _failure(conditions["Failed"])
        return _by_host(explained(info, cause_of_failure(pods, context, latest=False)))
    if "Suspended" in conditions:
        return replace(queued("Suspended"), occurred_at=conditions["Suspended"].since)
    return None


def _at_work(resource: JSON, pods: list[JSON], context: PluginContext, *, known: bool, restarting: bool) -> PhaseInfo:
    """Return the phase of a JobSet that has not ended. ``known``: one of its conditions is True."""
    status = mapping(resource.get("status"))
    restarts = number(status.get("restarts"))
    if restarting:
        return running(f"restart in progress (attempt {restarts})")
    if known or _has_started(status):
        return _lost(resource, pods, context) or running(f"running (restart attempt {restarts})")
    if mapping(resource.get("spec")).get("suspend") is True:
        return queued("Suspended")
    return initializing("pods scheduling / DNS resolving").with_reason(still_starting(pods, context))


def _failure(condition: Condition) -> PhaseInfo:
    message = condition.message or condition.reason
    info = failed(condition.reason or "JobSetFailed", message, retryable=True)
    return replace(info, occurred_at=condition.since)


def _by_host(info: PhaseInfo) -> PhaseInfo:
    """Name the platform's failures as Flyte does, and free what such a JobSet still holds."""
    if info.error is None or info.error.kind is not ErrorKind.SYSTEM:
        return info
    return replace(info, error=replace(info.error, code=HOST_MAINTENANCE), cleanup_on_failure=True)


def _lost(resource: JSON, pods: list[JSON], context: PluginContext) -> PhaseInfo | None:
    """Return the failure of a pod where a Job has failed and no restart is left: the JobSet fails in a moment."""
    status = mapping(resource.get("status"))
    policy = mapping_in(resource.get("spec"), "failurePolicy")
    spent = number(status.get("restarts")) >= number(policy.get("maxRestarts"))
    if not spent or policy.get("rules") or not any(number(each.get("failed")) for each in _jobs(status)):
        return None
    cause = cause_of_failure(pods, context, latest=False)
    return replace(_by_host(cause), cleanup_on_failure=True) if cause else None


def _has_started(status: Mapping[str, Any]) -> bool:
    """Whether it ever had a pod: one of its Jobs counts one, or it was restarted."""
    counted = any(number(each.get(key)) for each in _jobs(status) for key in _COUNTS)
    return counted or number(status.get("restarts")) > 0


def _check_names(replicated: JSON, place: str, length: int) -> None:
    """Refuse at once names of pods that Kubernetes would refuse only later."""
    name, spec = replicated.get("name"), replicated["template"]["spec"]
    if not isinstance(name, str) or not name:
        raise TaskSpecError(f"{place}.name", "must be the name of the replicated job")
    last = max(number(replicated.get("replicas", 1)) - 1, 0)
    index = f"-{max(number(spec.get('completions', 1)) - 1, 0)}"
    longest = length + len(f"-{name}-{last}{index}") + _POD_SUFFIX
    if longest > _POD_NAME_MAX:
        raise TaskSpecError(
            f"{place}.name",
            f"pods of {name!r} would have names of {longest} characters, and {_POD_NAME_MAX} are possible: use a "
            f"name that is {longest - _POD_NAME_MAX} shorter",
        )


def _jobs(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return mappings(status.get("replicatedJobsStatus"))


def _end(resource: JSON) -> Condition | None:
    conditions = [each for each in conditions_of(mapping(resource.get("status"))) if each.status == "True"]
    return next(
        (each for kind in sorted(that_are(STATES, Stands.ENDED)) for each in conditions if each.type == kind), None
    )


entry = PluginEntry("jobset", ("jobset", "clustered-task"), JOB_SET, JobSetPlugin())

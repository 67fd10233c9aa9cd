"""The phase of a pod, the kind of its failure, when it ended; and what pods show of the object that owns them.

These are Flyte's ``DemystifyPending``, ``DemystifySuccess``, ``DemystifyFailure`` and
``DeterminePrimaryContainerPhase``, corrected. For a pending pod the first condition with information decides; a waiting
container gets a grace period if its problem may pass, from the time of that condition, else of the pod. For a failed
pod the container with most information decides, not the last of the list; a primary container that was OOMKilled is its
user's failure even while a node goes down. No function here raises, for any status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import annotations_of, labels_of, mapping, mappings, metadata_of, moment, text
from backoff_ctrl.k8s.kube.answers.statuses import (
    Condition,
    ContainerStatus,
    Termination,
    Waiting,
    conditions_of,
    containers_of,
)
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.kube.operators.sections import format_duration

from .config import K8sPluginConfig
from .phases import PhaseInfo, TaskLog, failed, initializing, queued, running, success
from .protocol import PluginContext

PRIMARY_CONTAINER: Final = "primary_container_name"
"""The annotation that names the container whose end is the task's."""
ADJUSTED: Final = "backoff-ctrl.dev/adjusted-resources"
"""The annotation that lists the resources that the platform's limits lowered, and why."""
POD_PENDING_TIMEOUT: Final = "PodPendingTimeout"
TOO_MANY_REQUESTS: Final = "429 Too Many Requests"
_IMAGE_PULL: Final = "ImagePullBackOff"
_STARTING: Final = frozenset({"", "ErrImagePull", "ContainerCreating", "PodInitializing"})
"""Reasons of containers that are starting. A pull that failed once is retried, and then backs off."""
UNSTATED: Final = "the pod is pending, and none of its conditions says why yet"
OOM_KILLED: Final = "OOMKilled"
INTERRUPTED: Final = "Interrupted"
UNKNOWN_ERROR: Final = "UnknownError"
PRIMARY_CONTAINER_NOT_FOUND: Final = "PrimaryContainerNotFound"
_INTERRUPTING: Final = frozenset({"Shutdown", "Terminated", "NodeShutdown", "NodeAffinity", "NodeLost", "Preempting"})
"""Reasons of a pod that its node or the scheduler ended, not its own program."""
_REFUSED: Final = frozenset({"UnexpectedAdmissionError", "TopologyAffinityError", "UnexpectedPredicateFailureType"})
"""Reasons, beside ``OutOfcpu`` and its like, of a kubelet that refused a pod which the scheduler had given it."""
_ALL: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def demystify_pod_status(pod: Mapping[str, Any], context: PluginContext) -> PhaseInfo:
    """Return the phase of a task by its pod's status.

    A pod without a phase was just created, so it is pending. ``Unknown`` is Undefined: its node does not answer, so the
    last phase stays.
    """
    info = _told(pod, context)
    if info.phase is Phase.UNDEFINED:
        return info
    if info.phase.is_terminal:
        info = replace(info, occurred_at=info.occurred_at or get_completion_time(pod))
    elif adjusted := text(annotations_of(pod).get(ADJUSTED)):
        info = info.with_reason(adjusted)
    logs = logs_of(pod) if info.phase is Phase.RUNNING or info.phase.is_terminal else ()
    return replace(info, logs=logs, occurred_at=info.occurred_at or _last_transition(pod))


def _told(pod: Mapping[str, Any], context: PluginContext) -> PhaseInfo:
    status = mapping(pod.get("status"))
    phase = text(status.get("phase"))
    if phase == "Succeeded":
        return demystify_success(status)
    if phase == "Failed":
        return demystify_failure(status, primary_container(pod))
    if phase in ("Pending", ""):
        return demystify_pending(pod, context)
    if phase == "Unschedulable":
        return queued("pod unschedulable")
    if phase == "Unknown":
        return PhaseInfo(Phase.UNDEFINED, reason=text(status.get("message")))
    return _running(pod, status)


def _running(pod: Mapping[str, Any], status: Mapping[str, Any]) -> PhaseInfo:
    """Return the phase of a running pod: its containers may have ended before it is marked as ended."""
    version = 1 if logs_of(pod) else 0  # news beside Initializing's 0: now there are logs
    primary = primary_container(pod)
    if not primary:
        return demystify_success(status) if _all_succeeded(pod, status) else running(version=version)
    info = determine_primary_container_phase(primary, containers_of(status, "containerStatuses"), disruption(status))
    if info.error and info.error.code == PRIMARY_CONTAINER_NOT_FOUND and primary in _declared(pod):
        return running()  # its status will follow
    return info.with_version(version) if info.phase is Phase.RUNNING else info


def _all_succeeded(pod: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether every container has succeeded, sidecars included."""
    containers = containers_of(status, "containerStatuses")
    every = [*containers, *containers_of(status, "initContainerStatuses")]
    ended = all(
        each.terminated and each.terminated.exit_code == 0 and not each.waiting and not each.is_running
        for each in every
    )
    return bool(containers) and ended and {each.name for each in containers} >= set(_declared(pod))


def _declared(pod: Mapping[str, Any]) -> list[str]:
    return [text(each.get("name")) for each in mappings(mapping(pod.get("spec")).get("containers"))]


def primary_container(pod: Mapping[str, Any]) -> str:
    """Return the name of the container whose end is the task's; empty: all of them have to succeed."""
    return text(annotations_of(pod).get(PRIMARY_CONTAINER))


def logs_of(pod: Mapping[str, Any]) -> tuple[TaskLog, ...]:
    """Return a command per container that prints its log; empty for a pod without a name."""
    metadata = metadata_of(pod)
    name, namespace = text(metadata.get("name")), text(metadata.get("namespace")) or "default"
    if not name:
        return ()
    return tuple(
        TaskLog(each, f"kubectl logs --namespace {namespace} {name} --container {each}")
        for each in _declared(pod)
        if each
    )


def is_terminal(pod: Mapping[str, Any]) -> bool:
    return text(mapping(pod.get("status")).get("phase")) in ("Succeeded", "Failed")


def get_completion_time(pod: Mapping[str, Any]) -> datetime | None:
    """Return when a pod ended: with its last container, else the closest known time."""
    if not is_terminal(pod):
        return None
    status, metadata = mapping(pod.get("status")), metadata_of(pod)
    every = containers_of(status, "initContainerStatuses", "containerStatuses")
    ends = [how.finished_at for each in every for how in (each.terminated, each.last) if how and how.finished_at]
    if ends:
        return max(ends)
    known = (metadata.get("deletionTimestamp"), status.get("startTime"), metadata.get("creationTimestamp"))
    return next((found for value in known if (found := moment(value))), None)


def _last_transition(pod: Mapping[str, Any]) -> datetime | None:
    every = containers_of(mapping(pod.get("status")), "containerStatuses", "initContainerStatuses")
    times = [each.started_at if each.is_running else each.terminated and each.terminated.finished_at for each in every]
    return max((time for time in times if time), default=None)


def demystify_pending(pod: Mapping[str, Any], context: PluginContext) -> PhaseInfo:
    """Return the phase of a pending pod: a failure if it has been pending for too long."""
    status = mapping(pod.get("status"))
    created = _created(pod)
    conditions = conditions_of(status)
    for condition in conditions:
        since = condition.since or created
        info = _by_condition(condition, status, _age(since, context.now), context.config)
        if info is not None:
            return _in_time(info, since, context)
    visited = (condition.since for condition in reversed(conditions) if condition.since)
    return _in_time(queued(UNSTATED), created or next(visited, None), context)


def _by_condition(
    condition: Condition, status: Mapping[str, Any], age: timedelta, config: K8sPluginConfig
) -> PhaseInfo | None:
    """Return the phase by one condition; None if it is not about the start."""
    if condition.type == "Unschedulable" or (condition.type == "PodScheduled" and condition.status == "False"):
        return queued(f"{condition.reason}:{condition.message}")  # no room on any node, or a scheduling gate
    if condition.type == "Ready" and condition.status == "False":
        for container in containers_of(status, "initContainerStatuses", "containerStatuses"):
            if container.waiting is not None and not container.ready:
                return _by_waiting(condition, container.waiting, age, config)
    return None


def _by_waiting(condition: Condition, waiting: Waiting, age: timedelta, config: K8sPluginConfig) -> PhaseInfo:
    code = f"{condition.reason}|{waiting.reason}"
    message = f"{condition.message}|{waiting.message}"
    starting = initializing(f"[{code}]: {message}")
    if waiting.reason in _STARTING:
        return starting
    if waiting.reason == "InvalidImageName":
        return failed(code, message, cleanup=True)
    grace = _grace(waiting.reason, config)
    if grace is None:
        return failed(code, message, kind=ErrorKind.SYSTEM, retryable=True, cleanup=True)
    if age < grace:
        return starting
    message = f"Grace period [{format_duration(grace)}] exceeded|{message}"
    if waiting.reason != _IMAGE_PULL:
        return failed(code, message, cleanup=True)
    kind = ErrorKind.SYSTEM if TOO_MANY_REQUESTS in message else ErrorKind.USER  # the registry slows all of us down
    return failed(code, message, kind=kind, retryable=True, cleanup=True)


def _grace(reason: str, config: K8sPluginConfig) -> timedelta | None:
    """Return how long a problem may last; None: it is not a temporary one."""
    return {
        _IMAGE_PULL: config.image_pull_backoff_grace_period,
        "CreateContainerError": config.create_container_error_grace_period,
        "CreateContainerConfigError": config.create_container_config_error_grace_period,
    }.get(reason)


def _in_time(info: PhaseInfo, since: datetime | None, context: PluginContext) -> PhaseInfo:
    """Return the phase with its time, or a failure if the pod has been pending for too long."""
    limit = context.config.pod_pending_timeout
    if not info.phase.is_terminal and limit > timedelta(0) and _age(since, context.now) >= limit:
        info = failed(POD_PENDING_TIMEOUT, info.reason, kind=ErrorKind.SYSTEM, retryable=True, cleanup=True)
    return replace(info, occurred_at=since)


def _created(pod: Mapping[str, Any]) -> datetime | None:
    """Return the time of the pod itself, for statuses without a time."""
    created = moment(metadata_of(pod).get("creationTimestamp"))
    return created or moment(mapping(pod.get("status")).get("startTime"))


def _age(since: datetime | None, now: datetime) -> timedelta:
    """Return the age of a time; 0 for an unknown one, and for one of a node whose clock is ahead."""
    return max(now - since, timedelta(0)) if since else timedelta(0)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A container that has ended, and how."""

    name: str
    how: Termination

    @property
    def sentence(self) -> str:
        how = self.how
        if how.exit_code == 0:
            return f"\r\n[{self.name}] terminated with ExitCode 0."
        return _terminated(self.name, how)


def demystify_success(status: Mapping[str, Any]) -> PhaseInfo:
    """Return the phase of a pod that reports success: a failure if one of its containers ran out of memory."""
    for container in containers_of(status, *_ALL):
        if container.terminated and container.terminated.is_out_of_memory:
            return failed(OOM_KILLED, "Pod reported success despite being OOMKilled", retryable=True)
    return success()


def demystify_failure(status: Mapping[str, Any], primary: str = "") -> PhaseInfo:
    """Return the failure of a failed pod, with its kind. ``primary`` names the task's container, if there is one."""
    reason = text(status.get("reason"))
    ended = [_Ended(each.name, how) for each in containers_of(status, *_ALL) if (how := each.last or each.terminated)]
    said = text(status.get("message"))
    disrupted = disruption(status)
    message = said or disrupted or "Pod failed. No message received from kubernetes."
    message += "".join(each.sentence for each in ended)
    main = next((each.how for each in ended if each.name == (primary or _only_container(status))), None)
    named = main if primary else None
    if main and main.is_out_of_memory:
        return failed(OOM_KILLED, message, retryable=True)
    if reason in _INTERRUPTING or disrupted:
        return failed(INTERRUPTED, message, kind=ErrorKind.SYSTEM, retryable=True)
    if _is_refused(reason, said):
        return failed(reason, message, kind=ErrorKind.SYSTEM, retryable=True)
    if _is_limited(reason, said):
        named, ended = None, [each for each in ended if each.how.is_out_of_memory]  # it was killed for that reason
    elif (named and named.is_killed) or _is_unexplained(reason, ended):
        return failed(INTERRUPTED, message, kind=ErrorKind.SYSTEM, retryable=True)
    return failed(_code(reason, named, ended), message, retryable=True)


def _code(reason: str, primary: Termination | None, ended: list[_Ended]) -> str:
    """Return the code of a user's failure: the most serious reason of any container, else the pod's own.

    Containers that were killed after the primary one had failed by itself don't count.
    """
    if any(each.how.is_out_of_memory for each in ended):
        return OOM_KILLED
    if any(each.how.is_killed for each in ended) and (primary is None or primary.exit_code == 0):
        return INTERRUPTED
    return reason or UNKNOWN_ERROR


def _is_unexplained(reason: str, ended: list[_Ended]) -> bool:
    """Whether the pod failed without a reason: its node was lost before its kubelet could write one."""
    return not reason and not any(each.how.exit_code != 0 or each.how.is_out_of_memory for each in ended)


def _is_refused(reason: str, message: str) -> bool:
    """Whether a kubelet never started the pod: its node was full or under pressure when the pod came."""
    under_pressure = reason == "Evicted" and "The node had condition" in message
    return reason in _REFUSED or reason.startswith("OutOf") or under_pressure


def _is_limited(reason: str, message: str) -> bool:
    """Whether the pod reached a limit that its own user had set: a deadline, or local storage."""
    return reason == "DeadlineExceeded" or (reason == "Evicted" and "exceed" in message and "limit" in message)


def disruption(status: Mapping[str, Any]) -> str:
    """Return why the cluster ends the pod, empty if it doesn't. If it does, the pod's exit codes have no meaning.

    A kubelet that evicts a pod for one of the pod's own limits doesn't set this condition.
    """
    for each in conditions_of(status):
        if each.type == "DisruptionTarget" and each.status == "True":
            return f"{each.reason or each.type}: {each.message}" if each.message else each.reason or each.type
    return ""


def _only_container(status: Mapping[str, Any]) -> str | None:
    """Return the name of a pod's only container, which then is the task's."""
    containers = containers_of(status, "containerStatuses")
    return containers[0].name if len(containers) == 1 else None


def determine_primary_container_phase(
    primary: str, containers: list[ContainerStatus], disrupted: str = ""
) -> PhaseInfo:
    """Return the phase by the primary container of a running pod: when that ends, the task has ended.

    ``disrupted`` says why the cluster ends the pod, if it does: the primary container may be the first to end.
    """
    container = next((each for each in containers if each.name == primary), None)
    if container is None:
        return failed(
            PRIMARY_CONTAINER_NOT_FOUND, f"Primary container [{primary}] not found in pod's container statuses"
        )
    how = container.terminated
    if container.waiting or container.is_running or how is None:
        return running()
    message = _terminated(primary, how)
    if how.is_out_of_memory:  # that is a SIGKILL too, but its user's limit is too low
        return failed(how.reason, message, retryable=True)
    if how.exit_code == 0:
        return success()
    kind = ErrorKind.SYSTEM if how.is_killed or disrupted else ErrorKind.USER
    return failed(INTERRUPTED if disrupted else how.reason, disrupted + message, kind=kind, retryable=True)


def _terminated(name: str, how: Termination) -> str:
    return f"\r\n[{name}] terminated with exit code ({how.exit_code}). Reason [{how.reason}]. Message: \n{how.message}."


def own_pods(context: PluginContext, labels: Mapping[str, str]) -> list[JSON]:
    """Return the pods that may be the object's: without those that have another value for one of its labels."""
    return [pod for pod in context.pods if labels_of(pod).items() <= {**labels_of(pod), **labels}.items()]


def never_starting(pods: Iterable[JSON], context: PluginContext) -> PhaseInfo | None:
    """Return the failure of a pod that can't start: its image can't be pulled, it has been pending for too long."""
    for pod in pods:
        if text(mapping(pod.get("status")).get("phase")) in ("Pending", ""):
            info = demystify_pod_status(pod, context)
            if info.phase.is_failure and info.error is not None:
                said = f"pod {_name(pod)}: {info.error.message}"
                return replace(info, reason=said, error=replace(info.error, message=said))
    return None


def cause_of_failure(pods: Iterable[JSON], context: PluginContext, *, latest: bool) -> PhaseInfo | None:
    """Return the failure of the last or first failed pod: after one pod of a gang has failed, the others are ended.

    Pods without a time count as early.
    """
    found = []
    for place, pod in enumerate(pods):
        if text(mapping(pod.get("status")).get("phase")) == "Failed":
            ended = get_completion_time(pod)
            found.append((ended.timestamp() if ended else 0.0, place, pod))
    if not found:
        return None
    *_, pod = (max if latest else min)(found, key=lambda each: each[:2])
    info = demystify_pod_status(pod, context)
    if info.error is None:
        return None
    said = f"pod {_name(pod)}: {info.error.message.strip()}"
    return replace(info, error=replace(info.error, message=said))


def explained(info: PhaseInfo, cause: PhaseInfo | None) -> PhaseInfo:
    """Return a failure with the message of the pod that caused it.

    If the platform ended the pod it is the platform's failure: another attempt may help, whatever the object reports.
    """
    if info.error is None or cause is None or cause.error is None:
        return info
    error = info.error
    message = f"{error.message}; {cause.error.message}"
    if cause.error.kind is ErrorKind.SYSTEM:
        made = failed(cause.error.code, message, kind=ErrorKind.SYSTEM, retryable=True, cleanup=info.cleanup_on_failure)
        return replace(made, custom=info.custom, occurred_at=info.occurred_at, logs=info.logs)
    code = OOM_KILLED if cause.error.code == OOM_KILLED else error.code  # more precise than the object's own code
    return replace(info, reason=message, error=replace(error, code=code, message=message))


def still_starting(pods: Iterable[JSON], context: PluginContext) -> str:
    """Return what the first pod that hasn't started waits for; empty if unknown."""
    for pod in pods:
        if text(mapping(pod.get("status")).get("phase")) in ("Pending", ""):
            info = demystify_pod_status(pod, context)
            if info.phase in (Phase.QUEUED, Phase.INITIALIZING) and mapping(pod.get("status")).get("conditions"):
                return f"pod {_name(pod)}: {info.reason}"
    return ""


def _name(pod: JSON) -> str:
    return text(metadata_of(pod).get("name")) or "without a name"

"""A pod as it stands: its phase, whether it has ended, and when. Never raises, whatever the status looks like."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.phases import Phase, PhaseInfo, TaskLog, queued, running

from .ended import (
    PRIMARY_CONTAINER_NOT_FOUND,
    demystify_failure,
    demystify_success,
    determine_primary_container_phase,
    disruption,
)
from .pending import demystify_pending
from .reading import containers_of, mapping, mappings, moment, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from backoff_ctrl.k8s.plugins.protocol import PluginContext

PRIMARY_CONTAINER: Final = "primary_container_name"
"""The annotation that names the container whose end is the task's."""
ADJUSTED: Final = "backoff-ctrl.dev/adjusted-resources"
"""The annotation that tells which resources the platform's limits lowered, and why."""


def demystify_pod_status(pod: Mapping[str, Any], context: PluginContext) -> PhaseInfo:
    """Say what a pod's status means for its task.

    A pod without a phase was just created: it is pending. ``Unknown`` is Undefined: its node does not answer, so the
    last phase stays.
    """
    info = _told(pod, context)
    if info.phase is Phase.UNDEFINED:
        return info
    if info.phase.is_terminal:
        info = replace(info, occurred_at=info.occurred_at or get_completion_time(pod))
    elif adjusted := text(_annotations(pod).get(ADJUSTED)):
        info = info.with_reason(adjusted)
    logs = logs_of(pod) if info.phase is Phase.RUNNING or info.phase.is_terminal else ()
    return replace(info, logs=logs, occurred_at=info.occurred_at or _last_transition(pod))


def _told(pod: Mapping[str, Any], context: PluginContext) -> PhaseInfo:
    """Return what the pod's own phase says."""
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
    """Return what a pod that runs is at: its containers may have done their work before it is marked as ended."""
    version = 1 if logs_of(pod) else 0  # news beside Initializing's 0: now there are logs
    primary = primary_container(pod)
    if not primary:
        return demystify_success(status) if _all_succeeded(pod, status) else running(version=version)
    info = determine_primary_container_phase(primary, containers_of(status, "containerStatuses"), disruption(status))
    if info.error and info.error.code == PRIMARY_CONTAINER_NOT_FOUND and primary in _declared(pod):
        return running()  # its status is still to come
    return info.with_version(version) if info.phase is Phase.RUNNING else info


def _all_succeeded(pod: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether every container has ended well, init containers that run along included."""
    containers = containers_of(status, "containerStatuses")
    every = [*containers, *containers_of(status, "initContainerStatuses")]
    ended = all(
        each.terminated and each.terminated.exit_code == 0 and not each.waiting and not each.is_running
        for each in every
    )
    return bool(containers) and ended and {each.name for each in containers} >= set(_declared(pod))


def _declared(pod: Mapping[str, Any]) -> list[str]:
    return [text(each.get("name")) for each in mappings(mapping(pod.get("spec")).get("containers"))]


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(pod.get("metadata")).get("annotations"))


def primary_container(pod: Mapping[str, Any]) -> str:
    """Return the name of the container whose end is the task's; empty: all of them have to succeed."""
    return text(_annotations(pod).get(PRIMARY_CONTAINER))


def logs_of(pod: Mapping[str, Any]) -> tuple[TaskLog, ...]:
    """Return a command per container that prints its log; none for a pod without a name."""
    metadata = mapping(pod.get("metadata"))
    name, namespace = text(metadata.get("name")), text(metadata.get("namespace")) or "default"
    if not name:
        return ()
    return tuple(
        TaskLog(each, f"kubectl logs --namespace {namespace} {name} --container {each}")
        for each in _declared(pod)
        if each
    )


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has ended and will not change again."""
    return text(mapping(pod.get("status")).get("phase")) in ("Succeeded", "Failed")


def get_completion_time(pod: Mapping[str, Any]) -> datetime | None:
    """Return when a pod ended: with its last container, else the nearest time that is known of it."""
    if not is_terminal(pod):
        return None
    status, metadata = mapping(pod.get("status")), mapping(pod.get("metadata"))
    every = containers_of(status, "initContainerStatuses", "containerStatuses")
    ends = [how.finished_at for each in every for how in (each.terminated, each.last) if how and how.finished_at]
    if ends:
        return max(ends)
    known = (metadata.get("deletionTimestamp"), status.get("startTime"), metadata.get("creationTimestamp"))
    return next((found for value in known if (found := moment(value))), None)


def _last_transition(pod: Mapping[str, Any]) -> datetime | None:
    """Return when one of the containers last started or ended."""
    every = containers_of(mapping(pod.get("status")), "containerStatuses", "initContainerStatuses")
    times = [each.started_at if each.is_running else each.terminated and each.terminated.finished_at for each in every]
    return max((time for time in times if time), default=None)

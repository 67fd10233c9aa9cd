"""A pending pod: does it wait for a node, start up, or never start? Flyte's ``DemystifyPending``, mended.

Conditions are read in their order, and the first that says something decides. A container that waits is given a grace
period where its trouble may pass; its age is that of the condition, else that of the pod.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.config.durations import format_duration
from backoff_ctrl.k8s.plugins.phases import ErrorKind, PhaseInfo, failed, initializing, queued

from .reading import Condition, Waiting, conditions_of, containers_of, mapping, moment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from backoff_ctrl.k8s.plugins.config.settings import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import PluginContext

POD_PENDING_TIMEOUT: Final = "PodPendingTimeout"
TOO_MANY_REQUESTS: Final = "429 Too Many Requests"

_IMAGE_PULL: Final = "ImagePullBackOff"
_STARTING: Final = frozenset({"", "ErrImagePull", "ContainerCreating", "PodInitializing"})
"""Reasons of containers that are on their way. A pull that failed once is tried again: then it is backing off."""


UNSTATED: Final = "the pod is pending, and none of its conditions says why yet"


def demystify_pending(pod: Mapping[str, Any], context: PluginContext) -> PhaseInfo:
    """Say what a pod in the phase Pending is at, and end one that has been pending for longer than is allowed."""
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
    """Return what one condition says; None if it says nothing about a start."""
    if condition.type == "Unschedulable" or (condition.type == "PodScheduled" and condition.status == "False"):
        return queued(f"{condition.reason}:{condition.message}")  # no room on any node, or a scheduling gate
    if condition.type == "Ready" and condition.status == "False":
        for container in containers_of(status, "initContainerStatuses", "containerStatuses"):
            if container.waiting is not None and not container.ready:
                return _by_waiting(condition, container.waiting, age, config)
    return None


def _by_waiting(condition: Condition, waiting: Waiting, age: timedelta, config: K8sPluginConfig) -> PhaseInfo:
    """Return what a container's reason for waiting means."""
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
    """Return how long a trouble may last; None: it is none of those that pass."""
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
    """Return since when the pod is there, for what has no time of its own."""
    created = moment(mapping(pod.get("metadata")).get("creationTimestamp"))
    return created or moment(mapping(pod.get("status")).get("startTime"))


def _age(since: datetime | None, now: datetime) -> timedelta:
    """Return how long ago it was; 0 for an unknown time, and for that of a node whose clock is ahead."""
    return max(now - since, timedelta(0)) if since else timedelta(0)

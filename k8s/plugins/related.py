"""What the pods of an object tell of it: why it doesn't start, and why it failed. Only there it is told. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from .phases import ErrorKind, Phase, PhaseInfo, failed
from .pods.reading import mapping, text
from .pods.status import demystify_pod_status, get_completion_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .protocol import JSON, PluginContext

_TELLING: Final = "OOMKilled"
"""The code of a pod's failure that says more than the code of what made the pod."""


def own_pods(context: PluginContext, labels: Mapping[str, str]) -> list[JSON]:
    """Return the pods that may be the object's: none that carries one of its labels with another value."""
    return [pod for pod in context.pods if _labels(pod).items() <= {**_labels(pod), **labels}.items()]


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
    """Return the failure of the pod that failed last, or first: after one of a gang has failed, the others are ended.

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
    """Return a failure with what the pod that caused it says.

    What the platform did to the pod is the platform's failure: another attempt may help, whatever the object says.
    """
    if info.error is None or cause is None or cause.error is None:
        return info
    error = info.error
    message = f"{error.message}; {cause.error.message}"
    if cause.error.kind is ErrorKind.SYSTEM:
        made = failed(cause.error.code, message, kind=ErrorKind.SYSTEM, retryable=True, cleanup=info.cleanup_on_failure)
        return replace(made, custom=info.custom, occurred_at=info.occurred_at, logs=info.logs)
    code = _TELLING if cause.error.code == _TELLING else error.code
    return replace(info, reason=message, error=replace(error, code=code, message=message))


def still_starting(pods: Iterable[JSON], context: PluginContext) -> str:
    """Return what the first pod that hasn't started waits for; empty if none says."""
    for pod in pods:
        if text(mapping(pod.get("status")).get("phase")) in ("Pending", ""):
            info = demystify_pod_status(pod, context)
            if info.phase in (Phase.QUEUED, Phase.INITIALIZING) and mapping(pod.get("status")).get("conditions"):
                return f"pod {_name(pod)}: {info.reason}"
    return ""


def _labels(pod: JSON) -> Mapping[str, Any]:
    return mapping(mapping(pod.get("metadata")).get("labels"))


def _name(pod: JSON) -> str:
    return text(mapping(pod.get("metadata")).get("name")) or "without a name"

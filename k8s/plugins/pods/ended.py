"""A pod, or its primary container, that has ended: whose failure it is, if it is one.

Flyte's ``DemystifySuccess``, ``DemystifyFailure`` and ``DeterminePrimaryContainerPhase``, mended: the container that
tells most decides, not the last of the list, and a primary container that was OOMKilled is its user's affair even
while a node goes down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.phases import ErrorKind, PhaseInfo, failed, running, success

from .reading import conditions_of, containers_of, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .reading import ContainerStatus, Termination

OOM_KILLED: Final = "OOMKilled"
INTERRUPTED: Final = "Interrupted"
UNKNOWN_ERROR: Final = "UnknownError"
PRIMARY_CONTAINER_NOT_FOUND: Final = "PrimaryContainerNotFound"

_INTERRUPTING: Final = frozenset({"Shutdown", "Terminated", "NodeShutdown", "NodeAffinity", "NodeLost", "Preempting"})
"""Reasons of a pod that its node or the scheduler ended, not its own program."""
_REFUSED: Final = frozenset({"UnexpectedAdmissionError", "TopologyAffinityError", "UnexpectedPredicateFailureType"})
"""Reasons, beside ``OutOfcpu`` and its like, of a kubelet that refused a pod which the scheduler had given it."""
_ALL: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@dataclass(frozen=True, slots=True)
class _Ended:
    """A container that has ended, and how."""

    name: str
    how: Termination

    @property
    def sentence(self) -> str:
        """What is told of it, in Flyte's words."""
        how = self.how
        if how.exit_code == 0:
            return f"\r\n[{self.name}] terminated with ExitCode 0."
        return _terminated(self.name, how)


def demystify_success(status: Mapping[str, Any]) -> PhaseInfo:
    """Say what a pod that reports success has come to: no success if one of its containers ran out of memory."""
    for container in containers_of(status, *_ALL):
        if container.terminated and container.terminated.is_out_of_memory:
            return failed(OOM_KILLED, "Pod reported success despite being OOMKilled", retryable=True)
    return success()


def demystify_failure(status: Mapping[str, Any], primary: str = "") -> PhaseInfo:
    """Say whose a failed pod's failure is. ``primary`` names the container that the task is about, if one is."""
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
    """Return the code of a user's failure: the gravest word of any container, else the pod's own reason.

    What was killed after the primary container had failed by itself was only cleaned up.
    """
    if any(each.how.is_out_of_memory for each in ended):
        return OOM_KILLED
    if any(each.how.is_killed for each in ended) and (primary is None or primary.exit_code == 0):
        return INTERRUPTED
    return reason or UNKNOWN_ERROR


def _is_unexplained(reason: str, ended: list[_Ended]) -> bool:
    """Whether nothing says why the pod failed: its node went before its kubelet could write that down."""
    return not reason and not any(each.how.exit_code != 0 or each.how.is_out_of_memory for each in ended)


def _is_refused(reason: str, message: str) -> bool:
    """Whether a kubelet never started the pod: its node was full or in trouble when the pod came."""
    under_pressure = reason == "Evicted" and "The node had condition" in message
    return reason in _REFUSED or reason.startswith("OutOf") or under_pressure


def _is_limited(reason: str, message: str) -> bool:
    """Whether the pod ran into what its own user had set: a deadline, or a limit of its local storage."""
    return reason == "DeadlineExceeded" or (reason == "Evicted" and "exceed" in message and "limit" in message)


def disruption(status: Mapping[str, Any]) -> str:
    """Say why the cluster ends the pod, empty if it doesn't: then the pod's own exit codes say nothing.

    A kubelet that evicts a pod for one of the pod's own limits doesn't set this condition.
    """
    for each in conditions_of(status):
        if each.type == "DisruptionTarget" and each.status == "True":
            return f"{each.reason or each.type}: {each.message}" if each.message else each.reason or each.type
    return ""


def _only_container(status: Mapping[str, Any]) -> str | None:
    """Return the name of a pod's only container, which then is what its task is about."""
    containers = containers_of(status, "containerStatuses")
    return containers[0].name if len(containers) == 1 else None


def determine_primary_container_phase(
    primary: str, containers: list[ContainerStatus], disrupted: str = ""
) -> PhaseInfo:
    """Say what the primary container of a running pod is at: when it ends, the task has ended.

    ``disrupted`` says why the cluster ends the pod, if it does: the primary container may be the first to go.
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

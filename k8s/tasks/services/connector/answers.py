"""What a connector's answer means for a task: its phase, its error, its outputs and links. Pure.

The phases are Flyte's ``TaskExecution.Phase``. A job that waits for resources at its service is ``Queued``: ours called
``WaitingForResources`` means that no job was created yet. A connector without it has its older ``State`` read, as
in Flyte. A number that this version does not know is news of a newer connector: the task goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from flyteidl.admin.agent_pb2 import AgentError, Resource, State
from flyteidl.core.execution_pb2 import ExecutionError, TaskExecution

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind
from backoff_ctrl.k8s.tasks.plugins.kept import flaw_of_kept
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, TaskLog, failed, initializing, queued, running, success

from .channels import shortened
from .literals import plain, plain_struct

FAILED: Final = "TaskFailedWithError"
"""The code of a failure whose connector names no code, as in Flyte."""
NO_END: Final = "NoEnd"
LINKS_MAX: Final = 20
_STATES: Final = {
    State.PENDING: TaskExecution.INITIALIZING,
    State.RUNNING: TaskExecution.RUNNING,
    State.SUCCEEDED: TaskExecution.SUCCEEDED,
    State.PERMANENT_FAILURE: TaskExecution.FAILED,
    State.RETRYABLE_FAILURE: TaskExecution.RETRYABLE_FAILED,
}


def phase_of(resource: Resource) -> PhaseInfo:
    """Return what a job's state means for its task."""
    number = resource.phase or _STATES.get(resource.state, 0)
    message = shortened(resource.message).strip()
    match number:
        case TaskExecution.QUEUED:
            info = queued(message)
        case TaskExecution.WAITING_FOR_RESOURCES:
            info = queued(": ".join(filter(None, ("its service waits for resources", message))))
        case TaskExecution.INITIALIZING:
            info = initializing(message)
        case TaskExecution.RUNNING:
            info = running(message)
        case TaskExecution.SUCCEEDED:
            info = success(message)
            if resource.outputs.literals:
                info = _keeping(info, "outputs", plain(resource.outputs))
        case TaskExecution.FAILED | TaskExecution.RETRYABLE_FAILED | TaskExecution.ABORTED:
            info = _failure(number, message, resource)
        case _:
            said = f"phase {resource.phase}" if resource.phase else f"state {resource.state}"
            info = running(": ".join(filter(None, (f"the connector reports {said}, which is unknown here", message))))
    logs = tuple(TaskLog(each.name or "log", each.uri) for each in resource.log_links[:LINKS_MAX] if each.uri)
    info = replace(info, logs=logs)
    return _keeping(info, "custom", plain_struct(resource.custom_info)) if resource.custom_info.fields else info


def phase_at_once(resource: Resource) -> PhaseInfo:
    """Return what the answer of a synchronous connector means: one that is no end is the connector's failure."""
    info = phase_of(resource)
    if info.phase.is_terminal:
        return info
    said = f"a synchronous connector answered {info.phase.title}, which is no end"
    return failed(NO_END, ": ".join(filter(None, (said, info.reason))), kind=ErrorKind.SYSTEM, retryable=True)


def broken(message: str) -> Resource:
    """Return the state of a job that a connector's own exception has ended before it began."""
    error = AgentError(code=FAILED, kind=AgentError.RECOVERABLE, origin=ExecutionError.SYSTEM)
    return Resource(phase=TaskExecution.RETRYABLE_FAILED, message=message, agent_error=error)


def _failure(number: int, message: str, resource: Resource) -> PhaseInfo:
    error = resource.agent_error
    has_error = resource.HasField("agent_error")
    said = "the job was aborted at its service" if number == TaskExecution.ABORTED else "failed to run the job"
    return failed(
        error.code or FAILED,
        ": ".join(filter(None, (said, message))),
        kind=ErrorKind.SYSTEM if has_error and error.origin == ExecutionError.SYSTEM else ErrorKind.USER,
        retryable=number == TaskExecution.RETRYABLE_FAILED or (has_error and error.kind == AgentError.RECOVERABLE),
    )


def _keeping(info: PhaseInfo, field: Literal["outputs", "custom"], value: Mapping[str, Any]) -> PhaseInfo:
    """Return the same with outputs or facts of the job, if they are small enough to keep."""
    if flaw := flaw_of_kept(value):
        return info.with_reason(f"its {field} {'are' if field == 'outputs' else 'is'} not kept: {flaw}")
    return replace(info, outputs=value) if field == "outputs" else replace(info, custom=value)

"""What a plugin reports of its object: a phase with what belongs to it. The words are Flyte's.

Pure. Meanings and numbers follow Flyte's ``core/phase.go``; a growing *version* marks news within a phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase

from .kept import flaw_of_kept

UNKNOWN_CODE: Final = "Unknown"
CORRUPTED_STATE: Final = "CorruptedPluginState"
NO_PLUGIN: Final = "PluginNotFound"
PLUGIN_FAILED: Final = "PluginFailed"
TIMED_OUT: Final = "QuotaTimeout"
SIGNAL_TIMED_OUT: Final = "ConditionTimedOut"
"""Codes of failures that every manager of plugins reports."""
CODE_MAX: Final = 200
"""Characters of a code that are kept: it may be a service's, or a user's."""


OF_MANAGERS: Final[Mapping[Phase, str]] = {
    Phase.WAITING_FOR_RESOURCES: "it means that nothing was created yet; Queued fits",
    Phase.ABORTED: "it means that the task's user ended it; a failure fits",
}
"""The phases that a manager reports and no plugin may, with what to report instead. A plugin may report all others."""
OF_PLUGINS: Final = frozenset(Phase) - OF_MANAGERS.keys()
"""The phases that a plugin may report of an object, or of a job. ``UNDEFINED`` leaves the task in its present phase."""


@dataclass(frozen=True, slots=True)
class TaskError:
    """Why an attempt failed: ``code`` for machines (``OOMKilled``), ``message`` for people."""

    code: str
    message: str
    kind: ErrorKind = ErrorKind.USER


@dataclass(frozen=True, slots=True)
class TaskLog:
    """Where a log is found: a name for people, and a URL or a command."""

    name: str
    uri: str


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that happened to the object, from a Kubernetes event."""

    text: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class PhaseInfo:
    """A phase with its details.

    ``version`` grows while the phase stays and its reason changes: the same phase and version is no news. ``reason`` is
    for people. Failures, and only they, have an ``error``. ``cleanup_on_failure``: the object still holds something and
    is to be deleted. ``wait`` says what a task in ``WaitingForResources`` waits for, ``next_try_at`` when room is
    tested next. ``occurred_at``: the cluster's time of it.
    """

    phase: Phase
    version: int = 0
    reason: str = ""
    error: TaskError | None = None
    cleanup_on_failure: bool = False
    logs: tuple[TaskLog, ...] = ()
    reasons: tuple[Reason, ...] = ()
    wait: Wait | None = None
    next_try_at: datetime | None = None
    occurred_at: datetime | None = None
    custom: Mapping[str, Any] = field(default_factory=dict)
    """Anything else that a plugin wants to show, as plain JSON."""
    outputs: Mapping[str, Any] | None = None
    """What the task has computed, as plain JSON of at most ``OUTPUTS_MAX`` bytes; None: nothing new."""

    def with_version(self, version: int) -> PhaseInfo:
        return replace(self, version=version)

    def with_reason(self, reason: str) -> PhaseInfo:
        """Return the same with a further reason."""
        return replace(self, reason=", ".join(filter(None, (self.reason, reason))))


def flaw_of(returned: object) -> str:
    """Return what is wrong with the result of a plugin; empty: it is right."""
    if not isinstance(returned, PhaseInfo):
        return f"it returned {type(returned).__name__} instead of a PhaseInfo"
    wrong = {
        f"its phase is {returned.phase!r} instead of a Phase": not isinstance(returned.phase, Phase),
        f"its version is {returned.version!r} instead of a number": type(returned.version) is not int
        or returned.version < 0,
        f"its reason is {type(returned.reason).__name__} instead of a text": not isinstance(returned.reason, str),
        "its logs are not TaskLogs": not all(isinstance(each, TaskLog) for each in returned.logs),
        "its reasons are not Reasons with a time": not all(map(_is_reason, returned.reasons)),
    }
    for flaw, is_there in wrong.items():
        if is_there:
            return flaw
    if returned.wait is not None or returned.next_try_at is not None:
        return "it returned a wait or the time of a next try, which are the manager's to report"
    if returned.phase not in OF_PLUGINS:
        return f"it returned {returned.phase.title}, which is the manager's to report: {OF_MANAGERS[returned.phase]}"
    if returned.phase.is_failure != isinstance(returned.error, TaskError):
        has = "no" if returned.error is None else "an"
        return f"{returned.phase.title} has {has} error: failures have one, and nothing else"
    return _no_json(returned)


def _is_reason(found: object) -> bool:
    return isinstance(found, Reason) and isinstance(found.occurred_at, datetime)


def _no_json(returned: PhaseInfo) -> str:
    texts = [returned.reason, *(each.text for each in returned.reasons)]
    texts += [text for each in returned.logs for text in (each.name, each.uri)]
    texts += [] if returned.error is None else [returned.error.code, returned.error.message]
    try:
        "".join(texts).encode()
    except (TypeError, ValueError) as wrong:
        return f"what it says can't be stored as JSON: {wrong}"
    if returned.custom and (flaw := flaw_of_kept(returned.custom, most=None)):
        return f"its facts can't be kept: {flaw}"
    if returned.outputs is not None and (flaw := flaw_of_kept(returned.outputs)):
        return f"its outputs can't be kept: {flaw}"
    return ""


def not_ready(reason: str) -> PhaseInfo:
    """Something that the task needs does not exist yet."""
    return PhaseInfo(Phase.NOT_READY, reason=reason)


def waiting(reason: str, wait: Wait | None = None, next_try_at: datetime | None = None) -> PhaseInfo:
    """The quota has no room now; this costs no retry."""
    return PhaseInfo(Phase.WAITING_FOR_RESOURCES, reason=reason, wait=wait, next_try_at=next_try_at)


def queued(reason: str) -> PhaseInfo:
    """The object exists, and has not started."""
    return PhaseInfo(Phase.QUEUED, reason=reason)


def initializing(reason: str) -> PhaseInfo:
    """Images are pulled, containers are made."""
    return PhaseInfo(Phase.INITIALIZING, reason=reason)


def paused(reason: str) -> PhaseInfo:
    """It waits for people, as long as its time limit lets it."""
    return PhaseInfo(Phase.PAUSED, reason=reason)


def running(reason: str = "", *, version: int = 0, logs: tuple[TaskLog, ...] = ()) -> PhaseInfo:
    """Its containers run."""
    return PhaseInfo(Phase.RUNNING, version, reason, logs=logs)


def success(reason: str = "", *, outputs: Mapping[str, Any] | None = None) -> PhaseInfo:
    """It has succeeded."""
    return PhaseInfo(Phase.SUCCESS, reason=reason, outputs=outputs)


def aborted(reason: str) -> PhaseInfo:
    """Its user ended it."""
    return PhaseInfo(Phase.ABORTED, reason=reason)


def failed(
    code: str, message: str, *, kind: ErrorKind = ErrorKind.USER, retryable: bool = False, cleanup: bool = False
) -> PhaseInfo:
    """It failed: for good, or so that another attempt may help. ``cleanup``: its object is to be deleted."""
    phase = Phase.RETRYABLE_FAILURE if retryable else Phase.PERMANENT_FAILURE
    error = TaskError((code or UNKNOWN_CODE)[:CODE_MAX], message.strip() or "no message was given", kind)
    return PhaseInfo(phase, reason=error.message, error=error, cleanup_on_failure=cleanup)


def system_failure(code: str, message: str, *, retryable: bool = True, cleanup: bool = False) -> PhaseInfo:
    """It failed because of the platform."""
    return failed(code, message, kind=ErrorKind.SYSTEM, retryable=retryable, cleanup=cleanup)

"""How a status goes on: what a phase, a failure, a further attempt and the end make of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.phases import ErrorKind, Phase, PhaseInfo, TaskError

from .model import Event, Log, ObjectReference, Retried, TaskStatus, Told, WaitStatus
from .times import shown, unix

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from backoff_ctrl.k8s.creates.wait import Wait

    from .model import JSON

HISTORY_MAX: Final = 50
"""Phases that are kept of one task; the first stays."""
REASON_MAX: Final = 2_000
TOLD_MAX: Final = 20
RETRY_BASE: Final = 1.0
RETRY_CAP: Final = 60.0
DEPENDENCY_FAILED: Final = "DependencyFailed"
STEPS_FAILED: Final = "StepsFailed"


def moved(
    status: TaskStatus, phase: Phase, reason: str, now: float, error: TaskError | None = None, **more: Any
) -> TaskStatus:
    """Return the status in a phase. One that it was not in before becomes an entry of the history."""
    reason = reason if len(reason) <= REASON_MAX else reason[: REASON_MAX - 3] + "..."
    code, kind = (None, None) if error is None else (error.code, str(error.kind))
    update: dict[str, Any] = {"phase": phase.title, "reason": reason, "code": code, "kind": kind, **more}
    if phase.title != status.phase or not status.history:
        at = shown(now)
        event = Event.model_construct(
            phase=phase.title, at=at, attempt=status.attempt, reason=reason, code=code, kind=kind
        )
        history = [*status.history, event]
        if len(history) > HISTORY_MAX:
            del history[1]
        update |= {"history": history, "since": at}
    return status.model_copy(update=update)


def reported(status: TaskStatus, info: PhaseInfo, state: Mapping[str, Any] | None, now: float) -> TaskStatus:
    """Return the status after the plugin manager has said how the attempt is."""
    state = state or {}
    made = state.get("object")
    return moved(
        status,
        info.phase,
        info.reason,
        now,
        info.error,
        version=info.version,
        wait=None if info.wait is None else wait_status(info.wait, now),
        plugin_state=dict(state),
        plugin=state.get("plugin") or status.plugin,
        object=_reference(made) if isinstance(made, dict) else status.object,
        logs=[Log(name=log.name, uri=log.uri) for log in info.logs] or status.logs,
        reasons=_told(status, info),
        custom=dict(info.custom),
        cleaned=not info.phase.is_terminal,
    )


def _reference(made: Mapping[str, Any]) -> ObjectReference:
    return ObjectReference(
        api_version=made["apiVersion"], kind=made["kind"], name=made["name"], uid=made.get("uid") or ""
    )


def _told(status: TaskStatus, info: PhaseInfo) -> list[Told]:
    if not info.reasons:
        return status.reasons
    fresh = [Told(text=each.text[:REASON_MAX], at=shown(each.occurred_at.timestamp())) for each in info.reasons]
    return [*status.reasons, *(each for each in fresh if each not in status.reasons)][-TOLD_MAX:]


def wait_status(wait: Wait, now: float) -> WaitStatus:
    """Return what a create waits for, with times of the clock in place of seconds from now.

    Times are in whole seconds: else each look would differ from the one before.
    """

    def at(seconds: float | None) -> str | None:
        return None if seconds is None else shown(round(now + seconds))

    return WaitStatus(
        reason=wait.reason,
        quota=wait.quota,
        resource=wait.resource,
        asked=wait.asked,
        left=wait.left,
        limited=wait.limited,
        place=wait.place,
        next_probe_at=at(wait.next_probe),
        estimated_at=at(wait.estimate),
    )


def judged(status: TaskStatus, retries: JSON, now: float, rng: random.Random) -> TaskStatus:
    """Return the status after an attempt has failed: another attempt is due, or the task has failed.

    ``retries`` is that of the spec. The delay before the next attempt is written down, so that a restart neither
    skips it nor begins it anew. A failure of the platform is followed by a longer and longer delay, drawn anew each
    time, so that tasks which failed together do not come back together; one of the user's own is not: waiting would
    mend nothing.
    """
    if status.phase != Phase.RETRYABLE_FAILURE.title:
        return status
    system = status.kind == ErrorKind.SYSTEM
    taken = status.retried.system if system else status.retried.user
    budget = retries.get("system", 3) if system else retries.get("user", 0)
    whose = "platform" if system else "user"
    if taken >= budget:
        told = f"{status.reason}; all {budget} retries after failures of the {whose} are taken"
        error = TaskError(status.code or "Unknown", told, ErrorKind.SYSTEM if system else ErrorKind.USER)
        return moved(status, Phase.PERMANENT_FAILURE, told, now, error)
    delay = rng.uniform(0, min(RETRY_CAP, RETRY_BASE * 2 ** min(taken, 30))) if system else 0.0
    retried = Retried(user=status.retried.user + (not system), system=status.retried.system + system)
    return status.model_copy(update={"retried": retried, "next_attempt_at": shown(now + delay)})


def next_attempt(status: TaskStatus, now: float) -> TaskStatus:
    """Return the status at the beginning of another attempt, before anything is done for it."""
    begun = status.model_copy(
        update={"attempt": status.attempt + 1, "plugin_state": None, "object": None, "next_attempt_at": None,
                "version": 0, "logs": [], "custom": {}}
    )  # fmt: skip
    return moved(begun, Phase.NOT_READY, f"attempt {begun.attempt + 1} begins", now, wait=None)


def delay_left(status: TaskStatus, now: float) -> float:
    """Return the seconds until the next attempt is due. A clock that was set back makes it no longer than it can be."""
    left = unix(status.next_attempt_at or "") - now
    return left if 0 < left <= RETRY_CAP else 0.0


def ended(status: TaskStatus, now: float) -> TaskStatus:
    """Return the status of a task that is over for good, with all of it let go."""
    return status.model_copy(update={"ended_at": status.ended_at or shown(now), "cleaned": True, "wait": None})


def waited_since(status: TaskStatus) -> float:
    """Return since when this attempt waits for quota without a break, as Unix time; 0: it does not."""
    return unix(status.since) if status.phase == Phase.WAITING_FOR_RESOURCES.title else 0.0


def failed_at_once(status: TaskStatus, code: str, reason: str, now: float, kind: ErrorKind) -> TaskStatus:
    """Return the status of a task that can't go on."""
    return moved(status, Phase.PERMANENT_FAILURE, reason, now, TaskError(code, reason, kind), wait=None)

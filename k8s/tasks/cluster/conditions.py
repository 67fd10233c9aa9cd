"""What the cluster shows of a status beside it: conditions for ``kubectl wait``, and fields for columns. Pure.

The reasons of conditions are those of Flyte's TaskAction, and ``WaitingForResources``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from backoff_ctrl.k8s.gate.creates.wait import reason_words
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.model import JSON, TaskEvent, TaskStatus, TaskWait
from backoff_ctrl.k8s.tasks.plugins.manager.outcomes import NOT_BUILT
from backoff_ctrl.k8s.tasks.plugins.phases import NO_PLUGIN, SIGNAL_TIMED_OUT, TIMED_OUT
from backoff_ctrl.k8s.tasks.stepping import OVER

INVALID_SPEC: Final = "InvalidSpec"
"""The code of a task that the server accepted, and that can't be read as one."""
MESSAGE_MAX: Final = 300
"""Characters of a condition's message; the whole reason stands in the status itself."""
EARLIER_MAX: Final = 200
"""Characters of the reason of a phase that is over: with 50 phases a status has to stay small."""
QUIET: Final = (5.0, 60.0, 600.0, 3600.0)
"""Seconds until a change within a phase is written: the first one, the second, ...; the last holds for all others.

Each write is stored by etcd, and sent to everybody who watches Tasks.
"""
WAITS: Final = 2
"""Where a task that waits for quota begins in ``QUIET``: its place in line changes with each task before it."""
_PROGRESS: Final[Mapping[str, str]] = {
    Phase.NOT_READY.title: "Queued",
    Phase.RUNNING.title: "Executing",
    Phase.SUCCESS.title: "Completed",
}
"""The reason of Progressing; for other phases it is the phase."""
_CODES: Final[Mapping[str, str]] = {
    NO_PLUGIN: "PluginNotFound",
    INVALID_SPEC: "InvalidSpec",
    NOT_BUILT: "InvalidSpec",
    TIMED_OUT: "TimedOut",
    SIGNAL_TIMED_OUT: "TimedOut",
}
"""The reason of Failed by the code of the failure; for others it is the phase."""


def shown_with(status: TaskStatus, before: object) -> JSON:
    """Return the conditions and the fields for columns of a status; ``before`` is the list of earlier conditions."""
    fields: JSON = {"try": status.attempt + 1, "conditions": conditions(status, before)}
    waits = waits_for(status)
    return {**fields, "waitsFor": waits} if waits else fields


def conditions(status: TaskStatus, before: object) -> list[JSON]:
    """Return the conditions of a status. A time changes only with the condition's own status."""
    over = status.phase in OVER
    succeeded = status.phase == Phase.SUCCESS.title
    reason = _PROGRESS.get(status.phase, status.phase)
    failed = _CODES.get(status.code or "", status.phase) if over and not succeeded else reason
    message = status.reason if len(status.reason) <= MESSAGE_MAX else status.reason[: MESSAGE_MAX - 3] + "..."
    known = {each.get("type"): each for each in before if isinstance(each, dict)} if isinstance(before, list) else {}
    rows = (
        ("Progressing", not over, failed if over else reason, message),
        ("Succeeded", succeeded, failed, ""),
        ("Failed", over and not succeeded, failed, ""),
    )
    found: list[JSON] = []
    for type_, holds, why, said in rows:
        value = "True" if holds else "False"
        earlier = known.get(type_, {})
        since = earlier.get("lastTransitionTime") if earlier.get("status") == value else None
        row = {"type": type_, "status": value, "reason": why, "lastTransitionTime": since or _whole(status)}
        found.append({**row, "message": said} if said else row)
    return found


def _whole(status: TaskStatus) -> str:
    """Return the time of the phase in whole seconds, as conditions have it."""
    since = status.since or status.created_at or "1970-01-01T00:00:00Z"
    return since.partition(".")[0].rstrip("Z") + "Z"


def waits_for(status: TaskStatus) -> str:
    """Return what a task waits for, for a column; empty: that is unknown."""
    if status.phase in OVER:
        return ""
    if status.wait is not None:
        return _waits(status.wait)
    if status.phase == Phase.NOT_READY.title and status.reason.startswith("needs task "):
        return status.reason.partition(",")[0].removeprefix("needs ")
    return ""


def _waits(wait: TaskWait) -> str:
    if not wait.quota:
        return reason_words(wait.reason)
    return f"{wait.quota}: {wait.resource}" if wait.resource else wait.quota


def short(status: TaskStatus) -> TaskStatus:
    """Return the status as the cluster keeps it: the reasons of phases that are over are cut."""
    history = status.history
    if not any(len(each.reason) > EARLIER_MAX for each in history):
        return status
    return status.model_copy(update={"history": [_cut(each) for each in history]})


def _cut(event: TaskEvent) -> TaskEvent:
    reason = event.reason
    return event if len(reason) <= EARLIER_MAX else replace(event, reason=reason[: EARLIER_MAX - 3] + "...")


def quiet(status: TaskStatus, times: int) -> float:
    """Return the seconds between two writes of a status within a phase, after so many of them."""
    waits: Any = status.phase == Phase.WAITING_FOR_RESOURCES.title
    return QUIET[min(times + (WAITS if waits else 0), len(QUIET) - 1)]

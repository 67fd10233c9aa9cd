"""Tasks as JSON documents: what ``list`` and ``show`` print, and what the status API answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .times import shown

if TYPE_CHECKING:
    from .store import Stored


PAYLOAD: Final = ("container", "custom", "env", "podTemplate", "template")
"""Fields of a spec that may hold anything: variables, arguments and custom resources often hold secrets."""


@dataclass
class TaskObject:
    """The object of the present attempt."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass
class TaskWait:
    """What a task in ``WaitingForResources`` waits for."""

    reason: str
    quota: str
    resource: str
    asked: str
    left: str
    limited: str
    place: int
    next_probe_at: str | None
    estimated_at: str | None


@dataclass
class TaskItem:
    """One task of a list."""

    namespace: str
    name: str
    uid: str
    type: str
    plugin: str | None
    phase: str
    version: int
    reason: str
    code: str | None
    kind: str | None
    """Whose failure it was: USER or SYSTEM."""
    attempt: int
    """0 is the first."""
    object: TaskObject | None
    wait: TaskWait | None
    created_at: str
    ended_at: str | None
    since: str
    """When it came into this phase."""
    next_attempt_at: str | None
    abort: bool
    """Whether somebody wishes that it ends."""
    unfinished: bool
    """Whether a manager has still something to do for it."""


@dataclass
class TaskEvent:
    """One phase that a task came into."""

    phase: str
    at: str
    attempt: int
    reason: str
    code: str | None
    kind: str | None


@dataclass
class TaskLink:
    """Where a log is found."""

    name: str
    uri: str


@dataclass
class TaskTold:
    """One thing that the cluster told of the object."""

    text: str
    at: str


@dataclass
class TaskDocument(TaskItem):
    """A task with its spec, status and history."""

    as_of: str = ""
    spec: dict[str, Any] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    """Fields of the spec that are left out: who asks may not read such objects in that namespace."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    retried_user: int = 0
    retried_system: int = 0
    logs: list[TaskLink] = field(default_factory=list)
    reasons: list[TaskTold] = field(default_factory=list)
    history: list[TaskEvent] = field(default_factory=list)
    custom: dict[str, Any] = field(default_factory=dict)


def item(task: Stored) -> TaskItem:
    """Return a task as an item of a list."""
    return TaskItem(**_fields(task))


def document(task: Stored, now: float, *, whole: bool = True) -> TaskDocument:
    """Return a task; ``whole``: with what it runs, else without the fields and annotations that may hold secrets."""
    status = task.status
    hidden: list[str] = [] if whole else [name for name in PAYLOAD if name in task.spec]
    return TaskDocument(
        **_fields(task),
        as_of=shown(now),
        spec={name: value for name, value in task.spec.items() if name not in hidden},
        hidden=hidden,
        labels=task.metadata.get("labels", {}),
        annotations=task.metadata.get("annotations", {}) if whole else {},
        retried_user=status.retried.user,
        retried_system=status.retried.system,
        logs=[TaskLink(log.name, log.uri) for log in status.logs],
        reasons=[TaskTold(told.text, told.at) for told in status.reasons],
        history=[
            TaskEvent(event.phase, event.at, event.attempt, event.reason, event.code, event.kind)
            for event in status.history
        ],
        custom=status.custom,
    )


def _fields(task: Stored) -> dict[str, Any]:
    status = task.status
    made, wait = status.object, status.wait
    return {
        "namespace": task.namespace,
        "name": task.name,
        "uid": task.uid,
        "type": task.spec["type"],
        "plugin": status.plugin,
        "phase": status.phase,
        "version": status.version,
        "reason": status.reason,
        "code": status.code,
        "kind": status.kind,
        "attempt": status.attempt,
        "object": None if made is None else TaskObject(made.api_version, made.kind, made.name, made.uid),
        "wait": None if wait is None else TaskWait(**wait.model_dump()),
        "created_at": shown(task.created_at),
        "ended_at": status.ended_at,
        "since": status.since,
        "next_attempt_at": status.next_attempt_at,
        "abort": task.abort,
        "unfinished": task.open,
    }

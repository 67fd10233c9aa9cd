"""Tasks as JSON documents: what ``list`` and ``show`` print, and what the status API answers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from .model import Ending, TaskEvent, TaskLink, TaskObject, TaskStatus, TaskTold, TaskWait, Whose, shown
from .store import Stored

PAYLOAD: Final = ("container", "custom", "env", "podTemplate", "template")
"""Fields of a spec that may hold anything: variables, arguments and custom resources often hold secrets."""


@dataclass
class TaskItem:
    """One task of a list."""

    # a docstring of a field would be lost on the class that inherits it
    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True, json_schema_serialization_defaults_required=True)

    namespace: str
    name: str
    uid: Annotated[str, Field(description="Unique: a task that is created again under its name has another one.")]
    type: Annotated[str, Field(description="The task type, which chooses the plugin.")]
    plugin: Annotated[str | None, Field(description="The plugin that runs it; null: none has yet.")]
    phase: Annotated[str, Field(description="NotReady, WaitingForResources, Running, Success and the like.")]
    version: Annotated[int, Field(description="The plugin's own progress within the phase.")]
    reason: Annotated[str, Field(description="Why it is in this phase, in a sentence.")]
    code: Annotated[str | None, Field(description="What failed, in one word.")]
    kind: Annotated[Whose | None, Field(description="Who caused the failure: the author of the task, or the platform.")]
    attempt: Annotated[int, Field(description="0 is the first.")]
    object: Annotated[TaskObject | None, Field(description="The object of the present attempt; null: there is none.")]
    wait: Annotated[TaskWait | None, Field(description="What it waits for; null: it does not wait.")]
    created_at: str
    ended_at: Annotated[str | None, Field(description="When it ended and its object was released; null: it has not.")]
    since: Annotated[str, Field(description="When it came into this phase.")]
    next_attempt_at: Annotated[str | None, Field(description="When the next attempt begins, after one that failed.")]
    needs: Annotated[dict[str, Ending], Field(description="The tasks that have to end before it begins, and how.")]
    abort: Annotated[bool, Field(description="Whether its end was requested.")]
    unfinished: Annotated[bool, Field(description="Whether a manager still has something to do for it.")]


@dataclass
class TaskDocument(TaskItem):
    """A task with its spec, status and history."""

    as_of: str = ""
    """When it was read. It does not count for the ETag."""
    spec: dict[str, Any] = field(default_factory=dict)
    """What it runs, as its author wrote it."""
    hidden: list[str] = field(default_factory=list)
    """Fields of the spec that are left out, because the caller may not read such objects in that namespace."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    retried_user: int = 0
    """Further attempts after failures of the user."""
    retried_system: int = 0
    """Further attempts after failures of the platform."""
    logs: list[TaskLink] = field(default_factory=list)
    """Where its logs are found: addresses of web pages, or commands."""
    reasons: list[TaskTold] = field(default_factory=list)
    """The latest 20 events about its objects."""
    history: list[TaskEvent] = field(default_factory=list)
    """The phases that it has entered; of more than 50 the first and the latest."""
    custom: dict[str, Any] = field(default_factory=dict)
    """Further data of the plugin."""
    outputs: dict[str, Any] | None = None
    """What the task has computed, if its plugin reports that; left out with the fields in `hidden`."""


_OF_STATUS: Final = TaskItem.__dataclass_fields__.keys() & TaskStatus.model_fields.keys() - {"created_at"}
"""The fields that an item takes from the status."""


_SCHEME: Final = re.compile(r"\s*([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_DROPPED: Final = re.compile(r"[\t\r\n\x00-\x1f]")
"""What browsers leave out of an address."""


def _is_harmless(uri: str) -> bool:
    """Return whether a page may make a link of it: a service, or a tenant, has written it (``javascript:`` runs)."""
    scheme = _SCHEME.match(_DROPPED.sub("", uri))
    return scheme is None or scheme[1].lower() in {"http", "https"}


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
        logs=[each for each in status.logs if _is_harmless(each.uri)],
        reasons=status.reasons,
        history=status.history,
        custom=status.custom,
        outputs=status.outputs if whole else None,
    )


def _fields(task: Stored) -> dict[str, Any]:
    return {
        "namespace": task.namespace,
        "name": task.name,
        "uid": task.uid,
        "type": task.spec["type"],
        "created_at": shown(task.created_at),
        "needs": task.needs,
        "abort": task.abort,
        "unfinished": task.open,
        **{name: getattr(task.status, name) for name in _OF_STATUS},
    }

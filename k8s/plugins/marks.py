"""What marks an object in the cluster as a task's: its labels, its finalizer, and the key that it is known by. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Key: TypeAlias = tuple[str, int]
"""A task's uid and the number of the attempt: one object each."""

TASK_UID: Final = "backoff-ctrl.dev/task-uid"
ATTEMPT: Final = "backoff-ctrl.dev/attempt"
STORE: Final = "backoff-ctrl.dev/store"
"""The label that bounds what is watched, and what is ever swept."""
TASK_NAME: Final = "backoff-ctrl.dev/task-name"
PROJECT: Final = "backoff-ctrl.dev/project"
DOMAIN: Final = "backoff-ctrl.dev/domain"
"""Labels for people who look for a task's objects with kubectl; names that are no label values are cut and mended."""
FINALIZER: Final = "backoff-ctrl.dev/finalizer"


def marks_of(key: Key, store: str) -> dict[str, str]:
    """Return the labels of an object of this key."""
    return {TASK_UID: key[0], ATTEMPT: str(key[1]), STORE: store}


def key_of(resource: Mapping[str, Any]) -> Key | None:
    """Return the key of an object; None: it is no task's."""
    labels = metadata_of(resource).get("labels")
    if not isinstance(labels, dict):
        return None
    uid, attempt = labels.get(TASK_UID), labels.get(ATTEMPT)
    if not isinstance(uid, str) or not uid or not isinstance(attempt, str) or not attempt.isdecimal():
        return None
    return uid, int(attempt)


def metadata_of(resource: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object's metadata; empty if it has none."""
    metadata = resource.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def is_going(resource: Mapping[str, Any]) -> bool:
    """Say whether an object is being deleted."""
    return bool(metadata_of(resource).get("deletionTimestamp"))

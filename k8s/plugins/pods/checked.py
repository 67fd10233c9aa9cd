"""Read a task's fields, and name the one that is wrong: what people write is checked before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.plugins.protocol import TaskSpecError

if TYPE_CHECKING:
    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext


def object_at(parent: Mapping[str, Any], key: str, path: str) -> JSON:
    """Return an object field; empty if it is missing or null. Raises ``TaskSpecError`` for anything else."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TaskSpecError(f"{path}.{key}", f"must be an object, not {type(value).__name__}")
    return dict(value)


def objects_at(parent: Mapping[str, Any], key: str, path: str, each: str = "must be an object") -> list[JSON]:
    """Return a list of objects; empty if it is missing or null. Raises ``TaskSpecError``; ``each`` is what one is."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TaskSpecError(f"{path}.{key}", f"must be a list, not {type(value).__name__}")
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise TaskSpecError(f"{path}.{key}[{index}]", each)
    return [dict(item) for item in value]


def text_at(parent: Mapping[str, Any], key: str, path: str) -> str:
    """Return a text; empty if it is missing or null. Raises ``TaskSpecError`` for anything else."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TaskSpecError(f"{path}.{key}", f"must be a text, not {type(value).__name__}")
    return value


def refuse_custom(task: TaskContext) -> None:
    """Raise ``TaskSpecError`` where a task has parameters for a plugin that knows none: nobody would read them."""
    if task.spec.get("custom") is not None:
        raise TaskSpecError("spec.custom", f"tasks of type {task.type} have no parameters of their own: leave it out")

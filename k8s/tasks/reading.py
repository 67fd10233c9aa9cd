"""Reads tasks from manifests. An error names the field and the valid values; no value is guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from backoff_ctrl.k8s.kube.answers.spelling import hint, misspelt
from backoff_ctrl.k8s.kube.operators.wrong_values import keys_at, told
from backoff_ctrl.k8s.tasks.plugins.kept import LEVELS_MAX
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError

from .model import API_VERSION, COMES_LATER, KIND, Task
from .store import Wish

VALUES_MAX: Final = 300_000
"""The most values of a task: more than etcd stores of one object."""
_PATTERNS: Final = {
    "name": "write lower-case letters, digits, - and ., beginning and ending with a letter or digit",
    "namespace": "write lower-case letters, digits and -, beginning and ending with a letter or digit",
    "task": "write the name of a task",
}
_KINDS: Final = {
    "bool_type": "write true or false",
    "int_type": "write a whole number",
    "string_type": "write a text (in quotes where YAML would read something else)",
    "dict_type": "write an object",
    "list_type": "write a list",
    "missing": "it is required",
}


def read_task(manifest: Mapping[str, Any], namespace: str = "default") -> Task:
    """Return the task that a manifest describes; ``namespace`` is for one that names none. Raises ``TaskSpecError``."""
    if manifest.get("apiVersion") != API_VERSION or manifest.get("kind") != KIND:
        raise _no_task(manifest)
    if manifest.get("status") is not None:
        raise TaskSpecError("status", "only the manager writes it: leave it out")
    for part in ("metadata", "spec"):
        _refuse_what_is_no_json(manifest.get(part), part)
    try:
        task = Task.model_validate(manifest)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        unknown = (each for each in wrong if each["type"] == "extra_forbidden")  # it says which missing one is meant
        raise _told(next(unknown, wrong[0])) from None
    if task.metadata.namespace is None:
        task = task.model_copy(update={"metadata": task.metadata.model_copy(update={"namespace": namespace})})
    needs = [each.task for each in task.spec.needs]
    if task.metadata.name in needs:
        raise TaskSpecError("spec.needs", f"{task.metadata.name} would wait for itself: take it out")
    if doubled := {name for name, times in Counter(needs).items() if times > 1}:
        raise TaskSpecError("spec.needs", f"{min(doubled)} is named twice: name it once")
    return task


def _no_task(manifest: Mapping[str, Any]) -> TaskSpecError:
    """Return what a manifest is instead of a Task: one with a slip in what says so, or another object."""
    for key, right in (("apiVersion", API_VERSION), ("kind", KIND)):
        if manifest.get(key) is None:
            slip = next((str(name) for name in manifest if name != key and misspelt(str(name), [key])), None)
            return TaskSpecError(
                *((key, f"it is required: {right}") if slip is None else (slip, f"unknown; did you mean {key}?"))
            )
    found = {"apiVersion": str(manifest["apiVersion"]), "kind": str(manifest["kind"])}
    for key, right, of in (("apiVersion", API_VERSION, "kind"), ("kind", KIND, "apiVersion")):
        near = misspelt(found[key], [right]) or found[key].partition("/")[0] == API_VERSION.partition("/")[0]
        if found[key] != right and near and misspelt(found[of], [KIND if of == "kind" else API_VERSION]):
            return TaskSpecError(key, f"{_shown(found[key])} can't be used: did you mean {right}?")
    other = f"{found['apiVersion']} {found['kind']}"
    return TaskSpecError("apiVersion", f"this is {other[:100]}, not {API_VERSION} {KIND}: wrap it in a Task")


def wish_of(task: Task) -> Wish:
    """Return a task as a ``Wish`` for a store.

    Its spec and metadata are normalised: defaults and ``abort`` are left out, so that equal tasks compare equal.
    """
    namespace, name = task.metadata.namespace, task.metadata.name
    assert namespace is not None  # reading it has put one in
    spec = task.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"abort"})
    metadata = task.metadata.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"name", "namespace"}
    )
    return Wish(namespace, name, metadata, spec, task.spec.abort)


def difference(old: Any, new: Any, path: str = "spec") -> str:
    """Return the path of the first field that differs, with both values; empty: they are equal.

    A signal, and who asked for what, is no part of what a task is: it comes later.
    """
    if path == "spec" and isinstance(old, dict) and isinstance(new, dict):
        old, new = ({key: value for key, value in each.items() if key not in COMES_LATER} for each in (old, new))
    found = first_difference(old, new, path)
    return "" if found is None else f"{found[0]} is {_shown(found[1])} there and {_shown(found[2])} here"


def first_difference(old: Any, new: Any, path: str) -> tuple[str, Any, Any] | None:
    """Return the path of the first field that differs, and both values; None: they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        each = (
            first_difference(old.get(key), new.get(key), f"{path}.{key}") for key in sorted(old.keys() | new.keys())
        )
        return next((found for found in each if found is not None), None)
    return None if old == new else (path, old, new)


def _refuse_what_is_no_json(whole: Any, name: str) -> None:
    """Raise ``TaskSpecError`` for the first value that JSON can't hold, and for too many values.

    In YAML a few lines of aliases stand for billions of values: they are counted before anything copies them.
    """
    left = [(name, whole, 0)]
    for _ in range(VALUES_MAX):
        if not left:
            return
        path, value, level = left.pop()
        if level > LEVELS_MAX and isinstance(value, dict | list):
            raise TaskSpecError(name, f"more than {LEVELS_MAX} levels in one another: store it elsewhere")
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str) or _is_half(key):
                    raise TaskSpecError(path, f"the key {ascii(key)[:60]} can't be used: write a text, in quotes")
            left += [(f"{path}.{key}", each, level + 1) for key, each in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{number}]", each, level + 1) for number, each in enumerate(value)]
        elif isinstance(value, str):
            if _is_half(value):
                raise TaskSpecError(path, f"{_shown(value)} can't be used: half a surrogate pair is not a character")
        elif isinstance(value, float) and not isfinite(value):
            raise TaskSpecError(path, f"{value} can't be used: JSON has no such number")
        elif not isinstance(value, bool | int | float | None):
            raise TaskSpecError(path, f"{_shown(value)} can't be used: write it in quotes")
    raise TaskSpecError(name, f"more than {VALUES_MAX:,} values: no API server accepts that; are YAML aliases nested?")


def _is_half(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _told(error: ErrorDetails) -> TaskSpecError:
    """Return one error of pydantic in our own words."""
    place = list(error["loc"])
    path = _path(place)
    kind, said = error["type"], told(error)
    if kind == "extra_forbidden":
        known = [name for name in keys_at(Task, place[:-1]) if name != "status"]
        return TaskSpecError(path, f"unknown; {hint(str(place[-1]), known)}")
    if kind == "string_pattern_mismatch":
        field = next((part for part in reversed(place) if isinstance(part, str)), "")
        return TaskSpecError(path, f"{_shown(error['input'])} can't be used: {_PATTERNS.get(field, said)}")
    if kind == "missing":
        return TaskSpecError(path, _KINDS[kind])
    right = _KINDS.get(kind, said[:1].lower() + said[1:])
    return TaskSpecError(path, f"{_shown(error['input'])} can't be used: {right}")


def _path(place: Sequence[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    text = value if isinstance(value, str) else repr(value)
    text = text if text.isprintable() else ascii(text)
    return f'"{text}"' if len(text) <= 60 else f'"{text[:57]}..."'

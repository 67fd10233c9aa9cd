"""A task that has ended, run again under its name with some fields changed. Pure.

A change names a field by a path as in JSONPath: ``spec.resources.requests.memory``, ``spec.container.args[0]``, and in
brackets and quotes what has a dot in it: ``spec.resources.requests["nvidia.com/gpu"]``. Objects on the way are made
where they are missing; a list is changed only where it has an item, or one more. What comes of it is read as any new
task is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

import yaml

from backoff_ctrl.k8s.kube.charges.bounded_yaml import KubernetesLoader
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError

from .model import API_VERSION, ASKED_LATER, JSON, KIND, Ending
from .reading import read_task, wish_of
from .stepping import DEPENDENCY_FAILED
from .store import ConflictError, Stored, Wish

CHANGEABLE: Final = ("spec", "metadata.labels", "metadata.annotations")
_STEP: Final = re.compile(r"""\.?([A-Za-z_$][^.\[\]=]*)|\[([0-9]+)\]|\[("[^"]*"|'[^']*')\]""")
_HOW: Final = 'write PATH=VALUE, such as spec.resources.requests.memory=8Gi or spec.container.args[0]="now"'


def read_change(text: str) -> tuple[str, Any]:
    """Return the path and the value of a change ``PATH=VALUE``; the value is YAML. Raises ``TaskSpecError``."""
    place = _end_of_path(text)
    path = text[:place]
    if not path or text[place : place + 1] != "=":
        raise TaskSpecError(path or text[:60], f"this is no change: {_HOW}")
    try:
        return path, yaml.load(text[place + 1 :], KubernetesLoader)  # noqa: S506 - a safe loader, bounded
    except (yaml.YAMLError, ValueError) as error:
        raise TaskSpecError(path, f"the value is not YAML ({' '.join(str(error).split())[:200]})") from None


def read_path(path: str) -> str:
    """Return a path as it is. Raises ``TaskSpecError`` for other texts."""
    if not path or _end_of_path(path) != len(path):
        raise TaskSpecError(path[:60], "this is no path: write one such as spec.resources.requests.memory")
    return path


def _end_of_path(text: str) -> int:
    place = 0
    while (found := _STEP.match(text, place)) is not None:
        place = found.end()
    return place


def run_again(task: Stored, changes: Sequence[tuple[str, Any]]) -> Wish:
    """Return the wish that runs a task again. Raises ``TaskSpecError``, and ``ConflictError`` if it has not ended."""
    if task.open:
        raise ConflictError(f"task {task.namespace}/{task.name} has not ended ({task.status.phase}): abort it first")
    spec = {name: value for name, value in task.spec.items() if name not in ASKED_LATER}
    manifest: JSON = {"spec": deepcopy(spec), "metadata": deepcopy(task.metadata)}
    for path, value in changes:
        if not path.startswith(CHANGEABLE):
            raise TaskSpecError(path, f"it can't be changed: choose a field below {', '.join(CHANGEABLE)}")
        _set(manifest, path, value)
    whole = {"apiVersion": API_VERSION, "kind": KIND, **manifest}
    if isinstance(whole["metadata"], dict):
        whole["metadata"] |= {"name": task.name, "namespace": task.namespace}
    return wish_of(read_task(whole))


class Needing(NamedTuple):
    """What counts of a task when others run again: how it ended, and which tasks it needs."""

    phase: str
    code: str | None
    needs: Mapping[str, Ending]


def failed_by_need(name: str, ended: Mapping[str, Needing]) -> list[str]:
    """Return which of the tasks that have ended failed since ``name`` did, or since one of these did.

    Each comes after those that it needs. One that would fail again by another of its needs is left out.
    """
    again, rest = [name], {each: task for each, task in ended.items() if task.code == DEPENDENCY_FAILED}
    rest.pop(name, None)
    while ready := [each for each, task in rest.items() if _may_run(task, again, ended)]:
        again += ready
        for each in ready:
            del rest[each]
    return again[1:]


def _may_run(task: Needing, again: Sequence[str], ended: Mapping[str, Needing]) -> bool:
    """Return whether a task needs one of those that run again, and no other that has failed."""
    wanted = [each for each, how in task.needs.items() if how == "Success" and each not in again]
    failed = any(each in ended and ended[each].phase != Phase.SUCCESS.title for each in wanted)
    return not failed and any(each in again for each in task.needs)


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    for name, index, quoted in _STEP.findall(path):
        steps.append(int(index) if index else json.loads(quoted.replace("'", '"')) if quoted else name)
    return steps


def _set(manifest: JSON, path: str, value: Any) -> None:
    """Set one field. Raises ``TaskSpecError`` where something else is in the way."""
    *steps, last = _steps(path)
    whole: Any = manifest
    for step, following in zip(steps, [*steps[1:], last], strict=False):
        if isinstance(whole, dict) and isinstance(step, str) and whole.get(step) is None:
            whole[step] = [] if isinstance(following, int) else {}
        elif isinstance(whole, list) and step == len(whole):
            whole.append([] if isinstance(following, int) else {})
        whole = _within(whole, step, path)[step]
    if isinstance(whole, list) and last == len(whole):
        whole.append(value)
    else:
        _within(whole, last, path)[last] = value


def _within(whole: Any, step: str | int, path: str) -> Any:
    """Return what a step goes into, a list or an object. Raises ``TaskSpecError`` if it does not go into it."""
    if isinstance(whole, list) and isinstance(step, int) and step < len(whole):
        return whole
    if isinstance(whole, dict) and isinstance(step, str):
        return whole
    said = "a list" if isinstance(whole, list) else "an object" if isinstance(whole, dict) else "neither of both"
    there = f"a list of {len(whole)} items" if isinstance(whole, list) else said
    wanted = f"item {step} of a list" if isinstance(step, int) else f"the field {step} of an object"
    raise TaskSpecError(path, f"there is {there}, and this names {wanted}: correct the path")

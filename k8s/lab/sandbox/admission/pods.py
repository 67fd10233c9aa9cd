"""Validation of pods, on create and update (``pkg/apis/core/validation``). Only mistakes that creators really make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backoff_ctrl.k8s.lab.sandbox.objects.answers import Problem, bad, in_range, missing, unsupported
from backoff_ctrl.k8s.lab.sandbox.objects.metadata import LABEL, LABEL_TEXT
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON

from .amounts import NANO, Amount
from .resources import (
    HUGE_PAGES,
    asked,
    container_resource_problems,
    container_total,
    for_whole_pods,
    is_extended,
    may_be_overcommitted,
)

_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_UPDATE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_DEADLINE = "spec.activeDeadlineSeconds"
_MOST_SECONDS = 2**31 - 1
_ENV_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_RESTARTS = ("Always", "OnFailure", "Never")
_PULLS = ("Always", "IfNotPresent", "Never")


def problems_of_pod(spec: JSON) -> list[Problem]:
    if not spec.get("containers"):
        return [missing("spec.containers")]
    problems: list[Problem] = []
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    seen: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            path = f"spec.{field}[{index}]"
            problems += _name_problems(path, container.get("name"), seen)
            problems += _container_problems(path, container, volumes)
            problems += _resource_problems(f"{path}.resources", container)
    problems += _pod_level_problems(spec)
    if spec.get("restartPolicy") not in _RESTARTS:
        problems.append(unsupported("spec.restartPolicy", spec.get("restartPolicy"), *_RESTARTS))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        problems += in_range(_DEADLINE, deadline, 1, _MOST_SECONDS)
    return problems


def _name_problems(path: str, name: Any, seen: set[str]) -> Iterator[Problem]:
    if not name:
        yield missing(f"{path}.name")
        return
    if not LABEL.fullmatch(name):
        yield bad(f"{path}.name", name, LABEL_TEXT)
    if name in seen:
        yield ("FieldValueDuplicate", f"{path}.name", f'Duplicate value: "{name}"')
    seen.add(name)


def _container_problems(path: str, container: JSON, volumes: set[Any]) -> Iterator[Problem]:
    if not container.get("image"):
        yield missing(f"{path}.image")
    if container.get("imagePullPolicy") not in _PULLS:
        yield unsupported(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), *_PULLS)
    for index, port in enumerate(container.get("ports") or ()):
        where, number = f"{path}.ports[{index}].containerPort", port.get("containerPort") or 0
        yield from in_range(where, number, 1, 65535) if number else [missing(where)]
    for index, variable in enumerate(container.get("env") or ()):
        where, name = f"{path}.env[{index}].name", variable.get("name")
        if not name:
            yield missing(where)
        elif "=" in name or not (name.isascii() and name.isprintable()):
            yield bad(where, name, _ENV_TEXT)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            where = f"{path}.volumeMounts[{index}].name"
            yield ("FieldValueNotFound", where, f'Not found: "{mount.get("name")}"')


def _resource_problems(path: str, container: JSON) -> Iterator[Problem]:
    """Requests and limits of one container (``ValidateResourceRequirements``)."""
    limits, requests = asked(container, "limits"), asked(container, "requests")
    for name, amount in limits.items():
        yield from _entry_problems(f"{path}.limits[{name}]", name, amount)
    for name, amount in requests.items():
        yield from _entry_problems(f"{path}.requests[{name}]", name, amount)
        yield from _pair_problems(path, name, amount, limits.get(name))


def _entry_problems(where: str, name: str, amount: Amount) -> Iterator[Problem]:
    for text in container_resource_problems(name):
        yield bad(where, name, text)
    if amount.nano < 0:
        yield bad(where, str(amount), "must be greater than or equal to 0")
    if is_extended(name) and amount.nano % NANO:
        yield bad(where, str(amount), "must be an integer")


def _pair_problems(path: str, name: str, request: Amount, limit: Amount | None) -> Iterator[Problem]:
    """A request must not exceed its limit; what cannot be overcommitted needs an equal limit."""
    firm = not may_be_overcommitted(name)
    if limit is None:
        if firm:
            yield missing(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif firm and request.nano != limit.nano:
        yield bad(f"{path}.requests", str(request), f"must be equal to {name} limit of {limit}")
    elif request.nano > limit.nano:
        yield bad(f"{path}.requests", str(request), f"must be less than or equal to {name} limit of {limit}")


def _pod_level_problems(spec: JSON) -> Iterator[Problem]:
    """Pod-level resources: of a few names, and at least what the containers need together."""
    path = "spec.resources"
    requests, limits = asked(spec, "requests"), asked(spec, "limits")
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if not for_whole_pods(name):
                yield unsupported(f"{path}.{side}[{name}]", name, "cpu", HUGE_PAGES, "memory")
            if side == "requests":
                yield from _pair_problems(path, name, amount, limits.get(name))
    for name, total in container_total(spec, "requests").items():
        if name in requests and total.nano > requests[name].nano:
            text = f"must be greater than or equal to aggregate container requests of {total}"
            yield bad(f"{path}.requests[{name}]", str(requests[name]), text)


def problems_of_pod_update(before: JSON, after: JSON) -> list[Problem]:
    for field in ("containers", "initContainers"):
        if len(before.get(field) or ()) != len(after.get(field) or ()):
            text = f"Forbidden: pod updates may not add or remove {'init ' if field != 'containers' else ''}containers"
            return [*problems_of_pod(after), ("FieldValueForbidden", f"spec.{field}", text)]
    problems = problems_of_pod(after)
    if not problems and _fixed(before) != _fixed(after):
        problems.append(("FieldValueForbidden", "spec", _UPDATE))
    return problems


def _fixed(spec: JSON) -> JSON:
    """The part of a pod's spec that a plain update must not change."""
    fixed = {field: value for field, value in spec.items() if field not in _MUTABLE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in each.items() if k != "image"} for each in fixed[field] or ()]
    return fixed

"""Validation of pods, on create and update (``pkg/apis/core/validation``). Only mistakes that creators really make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.storage.identity import LABEL, LABEL_TEXT
from backoff_ctrl.k8s.sandbox.wire.problems import bad, in_range, missing, unsupported

from .resource_validation import problems_of_container_resources, problems_of_pod_resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON
    from backoff_ctrl.k8s.sandbox.wire.problems import Problem

_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_UPDATE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_DEADLINE = "spec.activeDeadlineSeconds"
_MOST_SECONDS = 2**31 - 1
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_ENV_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def problems_of_new_pod(spec: JSON) -> list[Problem]:
    """Everything that is wrong with the spec of a new pod. Raises ``AmountError``."""
    problems = problems_of_pod(spec)
    if spec.get("ephemeralContainers"):
        problems.append(("FieldValueForbidden", "spec.ephemeralContainers", "Forbidden: cannot be set on create"))
    return problems


def problems_of_pod(spec: JSON) -> list[Problem]:
    """Everything that is wrong with the spec of a pod. Raises ``AmountError``."""
    if not spec.get("containers"):
        return [missing("spec.containers")]
    problems: list[Problem] = []
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    claims = {each.get("name") or "" for each in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for path, container in _with_paths(spec):
        problems += _name_problems(path, container.get("name"), seen)
        problems += _container_problems(path, container, volumes)
        problems += problems_of_container_resources(f"{path}.resources", container.get("resources") or {}, claims)
    problems += problems_of_pod_resources(spec, claims)
    if spec.get("restartPolicy") not in {"Always", "OnFailure", "Never"}:
        problems.append(unsupported("spec.restartPolicy", spec.get("restartPolicy"), "Always", "OnFailure", "Never"))
    if spec.get("dnsPolicy") not in _DNS:
        problems.append(unsupported("spec.dnsPolicy", spec.get("dnsPolicy"), *_DNS))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        problems += in_range(_DEADLINE, deadline, 1, _MOST_SECONDS)
    return problems


def problems_of_pod_update(before: JSON, after: JSON) -> list[Problem]:
    """Everything that is wrong with an update of a pod's spec. Raises ``AmountError``."""
    for field in ("containers", "initContainers"):
        if len(before.get(field) or ()) != len(after.get(field) or ()):
            text = f"Forbidden: pod updates may not add or remove {'init ' if field != 'containers' else ''}containers"
            return [*problems_of_pod(after), ("FieldValueForbidden", f"spec.{field}", text)]
    problems = [*problems_of_pod(after), *_deadline_problems(before, after), *_toleration_problems(before, after)]
    if not problems and _fixed(before) != _fixed(after):
        problems.append(("FieldValueForbidden", "spec", _UPDATE))
    return problems


def _deadline_problems(before: JSON, after: JSON) -> Iterator[Problem]:
    old, new = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if old is None:
        return
    if new is None:
        text = "Invalid value: null: must not update from a positive integer to nil value"
        yield ("FieldValueInvalid", _DEADLINE, text)
    elif new > old:
        yield bad(_DEADLINE, new, "must be less than or equal to previous value")


def _toleration_problems(before: JSON, after: JSON) -> Iterator[Problem]:
    kept = [_without_seconds(each) for each in after.get("tolerations") or ()]
    if any(_without_seconds(each) not in kept for each in before.get("tolerations") or ()):
        text = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        yield ("FieldValueForbidden", "spec.tolerations", text)


def _without_seconds(toleration: JSON) -> JSON:
    return {field: value for field, value in toleration.items() if field != "tolerationSeconds"}


def _fixed(spec: JSON) -> JSON:
    """The part of a pod's spec that a plain update must not change."""
    fixed = {field: value for field, value in spec.items() if field not in _MUTABLE}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in each.items() if k != "image"} for each in fixed[field] or ()]
    grace = "terminationGracePeriodSeconds"
    return {**fixed, grace: 1} if (fixed.get(grace) or 0) < 0 else fixed


def _with_paths(spec: JSON) -> Iterator[tuple[str, JSON]]:
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container


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
    if container.get("imagePullPolicy") not in {"Always", "IfNotPresent", "Never"}:
        where = f"{path}.imagePullPolicy"
        yield unsupported(where, container.get("imagePullPolicy"), "Always", "IfNotPresent", "Never")
    for index, port in enumerate(container.get("ports") or ()):
        where = f"{path}.ports[{index}].containerPort"
        number = port.get("containerPort") or 0
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

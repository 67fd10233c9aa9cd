"""Checks that answer 422 before quota admission is asked. Only what a creator can well get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .amounts import amount_of
from .identity import name_problems
from .kinds import PODS, QUOTAS
from .pod_defaults import is_whole
from .scopes import SCOPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .encoding import JSON
    from .kinds import Kind

    Problem = tuple[str, str, str]

_WHOLE_NAMES = frozenset({"pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas",
                          "replicationcontrollers", "services.nodeports", "services.loadbalancers"})  # fmt: skip
_MUTABLE_POD_FIELDS = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates")
_POD_UPDATE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def problems_of_new(kind: Kind, obj: JSON) -> list[Problem]:
    """Everything that is wrong with a new object. Raises ``AmountError``."""
    problems = name_problems(kind, obj["metadata"])
    if kind is PODS:
        problems += _pod_problems(obj["spec"])
    if kind is QUOTAS:
        problems += _quota_problems(obj.get("spec") or {})
    return problems


def problems_of_update(kind: Kind, before: JSON, obj: JSON, subresource: str) -> list[Problem]:
    """What an update may not do."""
    if kind is QUOTAS and not subresource:
        return _quota_problems(obj.get("spec") or {})
    if kind is PODS and not subresource and _fixed(before["spec"]) != _fixed(obj["spec"]):
        return [("FieldValueForbidden", "spec", _POD_UPDATE)]
    if kind.plural in {"configmaps", "secrets"} and before.get("immutable"):
        changed = [field for field in ("data", "binaryData") if before.get(field) != obj.get(field)]
        return [("FieldValueForbidden", field, "Forbidden: field is immutable when `immutable` is set")
                for field in changed]  # fmt: skip
    return []


def _fixed(spec: JSON) -> JSON:
    """The part of a pod's spec that no plain update may change."""
    fixed = {field: value for field, value in spec.items() if field not in _MUTABLE_POD_FIELDS}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in each.items() if k != "image"} for each in fixed[field] or ()]
    return fixed


def _pod_problems(spec: JSON) -> list[Problem]:
    if not spec.get("containers"):
        return [_required("spec.containers")]
    problems: list[Problem] = []
    seen: set[str] = set()
    for path, container in _with_paths(spec):
        name = container.get("name")
        if not name:
            problems.append(_required(f"{path}.name"))
        elif name in seen:
            problems.append(("FieldValueDuplicate", f"{path}.name", f'Duplicate value: "{name}"'))
        seen.add(str(name))
        if not container.get("image"):
            problems.append(_required(f"{path}.image"))
        problems += _resource_problems(f"{path}.resources", container.get("resources") or {})
    if spec.get("restartPolicy") not in {"Always", "OnFailure", "Never"}:
        problems.append(_unsupported("spec.restartPolicy", spec.get("restartPolicy"), "Always", "OnFailure", "Never"))
    return problems


def _with_paths(spec: JSON) -> Iterator[tuple[str, JSON]]:
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container


def _resource_problems(path: str, resources: JSON) -> list[Problem]:
    problems: list[Problem] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            where = f"{path}.{side}[{name}]"
            if amount_of(text).nano < 0:
                problems.append(_invalid(where, text, "must be greater than or equal to 0"))
            if ("/" in name or name.startswith("hugepages-")) and not is_whole(text):
                problems.append(_invalid(where, text, "must be an integer"))
    for name, text in requests.items():
        problems += _pair_problems(path, name, text, limits.get(name))
    return problems


def _pair_problems(path: str, name: str, request: Any, limit: Any) -> list[Problem]:
    """A request may not be above its limit; what can't be overcommitted must be limited to the same."""
    extended = "/" in name or name.startswith("hugepages-")
    if limit is None:
        if not extended:
            return []
        return [_required(f"{path}.limits", "Limit must be set for non overcommitable resources")]
    asked, bound = amount_of(request).nano, amount_of(limit).nano
    if extended and asked != bound:
        return [_invalid(f"{path}.requests", request, f"must be equal to {name} limit of {limit}")]
    if asked > bound:
        return [_invalid(f"{path}.requests", request, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _quota_problems(spec: JSON) -> list[Problem]:
    problems: list[Problem] = []
    for name, text in (spec.get("hard") or {}).items():
        where = f"spec.hard[{name}]"
        if amount_of(text).nano < 0:
            problems.append(_invalid(where, text, "must be greater than or equal to 0"))
        if name in _WHOLE_NAMES and not is_whole(text):
            problems.append(_invalid(where, text, "must be an integer"))
    unknown = [scope for scope in spec.get("scopes") or () if scope not in SCOPES]
    if unknown:
        listed = ",".join(f'"{scope}"' for scope in spec["scopes"])
        problems.append(("FieldValueInvalid", "spec.scopes", f"Invalid value: [{listed}]: unsupported scope"))
    return problems


def _invalid(field: str, value: Any, text: str) -> Problem:
    return ("FieldValueInvalid", field, f'Invalid value: "{value}": {text}')


def _required(field: str, text: str = "") -> Problem:
    return ("FieldValueRequired", field, f"Required value: {text}" if text else "Required value")


def _unsupported(field: str, value: Any, *supported: str) -> Problem:
    listed = ", ".join(f'"{each}"' for each in supported)
    return ("FieldValueNotSupported", field, f'Unsupported value: "{value}": supported values: {listed}')

"""Checks that answer 422 before quota admission is asked. Only what a creator can well get wrong."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .amounts import amount_of
from .identity import name_problems
from .kinds import CLAIMS, PODS, QUOTAS, SERVICES
from .pod_defaults import is_whole
from .scopes import SCOPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .encoding import JSON
    from .kinds import Kind

    Problem = tuple[str, str, str]

_WHOLE_NAMES = frozenset({"pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas",
                          "replicationcontrollers", "services.nodeports", "services.loadbalancers"})  # fmt: skip
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_QUOTA_NAMES = frozenset({*_WHOLE_NAMES, *_COMPUTE, *(f"requests.{n}" for n in (*_COMPUTE, "storage")),
                          *(f"limits.{n}" for n in _COMPUTE)})  # fmt: skip
_CONFLICTING = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
_CONTROLLERS = frozenset({"deployments", "daemonsets", "replicasets", "statefulsets", "jobs", "replicationcontrollers"})
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
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
    if kind is CLAIMS:
        problems += _claim_problems(obj.get("spec") or {})
    if kind is SERVICES and (obj.get("spec") or {}).get("type") != "ExternalName":
        headless = (obj.get("spec") or {}).get("clusterIP") == "None"
        problems += [] if (obj.get("spec") or {}).get("ports") or headless else [_required("spec.ports")]
    if kind.plural in {"configmaps", "secrets"}:
        problems += _key_problems(obj)
    if kind.plural in _CONTROLLERS:
        problems += _controller_problems(kind, obj.get("spec") or {})
    return problems + _label_problems(obj["metadata"])


def problems_of_update(kind: Kind, before: JSON, obj: JSON, subresource: str) -> list[Problem]:
    """What an update may not do."""
    return _kept_problems(kind, before, obj, subresource) + _label_problems(obj["metadata"])


def _kept_problems(kind: Kind, before: JSON, obj: JSON, subresource: str) -> list[Problem]:
    if kind is QUOTAS and not subresource:
        return _quota_problems(obj.get("spec") or {})
    if kind is PODS and not subresource and _fixed(before["spec"]) != _fixed(obj["spec"]):
        return [("FieldValueForbidden", "spec", _POD_UPDATE)]
    if kind is CLAIMS and not subresource:
        return _claim_update_problems(before, obj)
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


def _claim_problems(spec: JSON) -> list[Problem]:
    problems = []
    if not spec.get("accessModes"):
        problems.append(_required("spec.accessModes", "at least 1 access mode is required"))
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        problems.append(_required("spec.resources[storage]"))
    return problems


def _claim_update_problems(before: JSON, obj: JSON) -> list[Problem]:
    """Only a bound claim may change, and only in its size and its attributes."""
    bound = (before.get("status") or {}).get("phase") == "Bound"
    free = {"resources", "volumeAttributesClassName"} if bound else set()
    old, new = before.get("spec") or {}, obj.get("spec") or {}
    if all(old.get(field) == new.get(field) for field in {*old, *new} - free):
        return []
    text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [("FieldValueForbidden", "spec", f"Forbidden: {text}")]


def _key_problems(obj: JSON) -> list[Problem]:
    return [
        _invalid(f"{field}[{key}]", key, _KEY_TEXT)
        for field in ("data", "binaryData")
        for key in obj.get(field) or ()
        if not _KEY.fullmatch(key)
    ]


def _label_problems(metadata: JSON) -> list[Problem]:
    problems = []
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            if not _QUALIFIED.fullmatch(key.rpartition("/")[2]):
                problems.append(_invalid(f"metadata.{field}", key, _QUALIFIED_TEXT))
            if field == "labels" and not _LABEL_VALUE.fullmatch(value):
                problems.append(_invalid("metadata.labels", value, _LABEL_VALUE_TEXT))
    return problems


def _controller_problems(kind: Kind, spec: JSON) -> list[Problem]:
    """What makes pods must say which, and how they look."""
    template = spec.get("template")
    if kind.plural == "replicationcontrollers":
        given = (template or {}).get("metadata", {}).get("labels")
        return [_required(f"spec.{field}") for field, value in (("selector", spec.get("selector") or given),
                                                                ("template", template)) if not value]  # fmt: skip
    problems = []
    if kind.plural != "jobs":
        if not spec.get("selector"):
            problems.append(_required("spec.selector"))
        wanted = (spec.get("selector") or {}).get("matchLabels") or {}
        labels = ((template or {}).get("metadata") or {}).get("labels")
        if not spec.get("selector") or not wanted.items() <= (labels or {}).items():
            where, text = "spec.template.metadata.labels", "`selector` does not match template `labels`"
            problems.append(("FieldValueInvalid", where, f"Invalid value: {json.dumps(labels)}: {text}"))
    pod = (template or {}).get("spec") or {}
    if not pod.get("containers"):
        problems.append(_required("spec.template.spec.containers"))
    if kind.plural == "jobs" and pod.get("restartPolicy") not in {"OnFailure", "Never"}:
        problems.append(_required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    return problems


def _quota_problems(spec: JSON) -> list[Problem]:
    problems: list[Problem] = []
    for name, text in (spec.get("hard") or {}).items():
        where = f"spec.hard[{name}]"
        if amount_of(text).nano < 0:
            problems.append(_invalid(where, text, "must be greater than or equal to 0"))
        if not _is_quota_name(name):
            problems.append(_invalid(where, name, "must be a standard resource type or fully qualified"))
            problems.append(_invalid(where, name, "must be a standard resource for quota"))
        if name in _WHOLE_NAMES and not is_whole(text):
            problems.append(_invalid(where, str(amount_of(text)), "must be an integer"))
    scopes = spec.get("scopes") or []
    listed = ",".join(f'"{scope}"' for scope in scopes)
    if not SCOPES.issuperset(scopes):
        problems.append(("FieldValueInvalid", "spec.scopes", f"Invalid value: [{listed}]: unsupported scope"))
    if any(pair.issubset(scopes) for pair in _CONFLICTING):
        problems.append(("FieldValueInvalid", "spec.scopes", f"Invalid value: [{listed}]: conflicting scopes"))
    return problems


def _is_quota_name(name: str) -> bool:
    return "/" in name or name in _QUOTA_NAMES or name.startswith(("hugepages-", "requests.hugepages-"))


def _invalid(field: str, value: Any, text: str) -> Problem:
    return ("FieldValueInvalid", field, f'Invalid value: "{value}": {text}')


def _required(field: str, text: str = "") -> Problem:
    return ("FieldValueRequired", field, f"Required value: {text}" if text else "Required value")


def _unsupported(field: str, value: Any, *supported: str) -> Problem:
    listed = ", ".join(f'"{each}"' for each in supported)
    return ("FieldValueNotSupported", field, f'Unsupported value: "{value}": supported values: {listed}')

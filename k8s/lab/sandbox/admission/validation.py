"""What a new or changed object must pass, kind by kind; the answer is 422, before quota admission runs.

For pods, services, claims, quotas and limit ranges: the fields that charges depend on. For the rest: what creators
get wrong. Source: ``k8s.io/kubernetes/pkg/apis/*/validation`` (1.36).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from backoff_ctrl.k8s.lab.sandbox.objects.answers import Problem, bad, fixed, in_range, missing, unsupported
from backoff_ctrl.k8s.lab.sandbox.objects.definitions import problems_of_definition
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import QUOTAS, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.metadata import metadata_problems, name_problems
from backoff_ctrl.k8s.lab.sandbox.objects.schema import problems_of
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON

from .amounts import NANO, amount_of
from .charges import SCOPES
from .pods import problems_of_pod, problems_of_pod_update
from .resources import COUNTS, is_standard, resource_name_problems

Rule = Callable[[JSON], Iterable[Problem]]
ChangeRule = Callable[[JSON, JSON], Iterable[Problem]]

_OF_PODS = frozenset({"pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"})
_NAMES_OF_SCOPE = {
    **dict.fromkeys(("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass"), _OF_PODS),
    "CrossNamespacePodAffinity": _OF_PODS,
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
_CONFLICTING = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))
_NAMED = frozenset({"PriorityClass", "VolumeAttributesClass"})
_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_LARGEST = 1024 * 1024  # bytes of data
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_CONTROLLERS = ("deployments", "daemonsets", "replicasets", "statefulsets", "jobs")


def problems_of_new(kind: Kind, obj: JSON) -> list[Problem]:
    """Everything that is wrong with a new object. Raises ``AmountError``."""
    metadata, rule = obj["metadata"], _NEW.get(kind.plural)
    problems = [*name_problems(kind, metadata.get("name") or ""), *metadata_problems(metadata)]
    if kind.schema:
        return [*problems, *problems_of(kind.schema, obj)]
    return [*problems, *rule(obj)] if rule is not None and kind.strategic else problems


def problems_of_update(kind: Kind, before: JSON, obj: JSON, subresource: str) -> list[Problem]:
    """Everything that is wrong with an update. Raises ``AmountError``."""
    metadata, rule = obj["metadata"], _CHANGED.get(kind.plural)
    problems = metadata_problems(metadata)
    if kind.schema:
        return [*problems, *problems_of(kind.schema, obj)]
    if kind is QUOTAS and subresource:
        status = obj.get("status") or {}
        return [*problems, *_amounts("status.hard", status.get("hard")), *_amounts("status.used", status.get("used"))]
    return [*problems, *rule(before, obj)] if rule is not None and kind.strategic and not subresource else problems


def _spec(obj: JSON) -> JSON:
    return obj.get("spec") or {}


def _quota(quota: JSON) -> list[Problem]:
    spec = _spec(quota)
    return [*_amounts("spec.hard", spec.get("hard")), *_scopes(spec), *_selector(spec)]


def _quota_update(before: JSON, quota: JSON) -> list[Problem]:
    scopes = _spec(quota).get("scopes") or []
    changed = set(scopes) != set(_spec(before).get("scopes") or ())
    return [*_quota(quota), *([fixed("spec.scopes", scopes or None)] if changed else [])]


def _amounts(field: str, amounts: Mapping[str, Any] | None) -> Iterator[Problem]:
    for name, text in (amounts or {}).items():
        where = f"{field}[{name}]"
        for problem in resource_name_problems(name):
            yield bad(where, name, problem)
        if "/" not in name and not is_standard(name):
            yield bad(where, name, "must be a standard resource for quota")
        amount = amount_of(text)
        if amount.nano < 0:
            yield bad(where, str(amount), "must be greater than or equal to 0")
        whole = name in COUNTS or ("/" in name and "kubernetes.io/" not in name and not name.startswith("requests."))
        if whole and amount.nano % NANO:
            yield bad(where, str(amount), "must be an integer")


def _misapplied(scope: str, hard: JSON | None) -> int:
    """How many standard names in a quota do not go with this scope."""
    fitting = _NAMES_OF_SCOPE.get(scope, frozenset(hard or ()))
    return sum(1 for name in hard or () if is_standard(name) and name not in fitting)


def _scopes(spec: JSON) -> Iterator[Problem]:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in SCOPES:
            yield bad("spec.scopes", scopes, "unsupported scope")
        for _ in range(_misapplied(scope, spec.get("hard"))):
            yield bad("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in _CONFLICTING:
        if pair.issubset(scopes):
            yield bad("spec.scopes", scopes, "conflicting scopes")


def _selector(spec: JSON) -> Iterator[Problem]:
    where = "spec.scopeSelector.matchExpressions"
    requirements = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    for requirement in requirements:
        scope = requirement.get("scopeName", "")
        if scope not in SCOPES:
            yield bad(f"{where}.scopeName", scope, "unsupported scope")
        for _ in range(_misapplied(scope, spec.get("hard"))):
            yield bad(where, requirements, "unsupported scope applied to resource")
        yield from _operator(where, scope, requirement)
    scopes = {requirement.get("scopeName") for requirement in requirements}
    for pair in _CONFLICTING:
        if pair.issubset(scopes):
            yield bad(where, spec.get("scopes") or None, "conflicting scopes")


def _operator(where: str, scope: str, requirement: JSON) -> Iterator[Problem]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if scope in SCOPES - _NAMED and operator != "Exists":
        yield bad(f"{where}.operator", operator, _ONLY_EXISTS)
    if operator in {"In", "NotIn"}:
        if not values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield missing(f"{where}.values", text)
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield bad(f"{where}.values", values, text)
    else:
        yield bad(f"{where}.operator", operator, "not a valid selector operator")


def _data(obj: JSON) -> Iterator[Problem]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, values in (("data", data), ("binaryData", binary)):
        for key in values:
            if not _KEY.fullmatch(key):
                yield bad(f"{field}[{key}]", key, _KEY_TEXT)
    secret = obj.get("kind") == "Secret"
    size = sum(len(text) * 3 // 4 if secret else len(text.encode()) for text in data.values())
    if size + sum(len(text) * 3 // 4 for text in binary.values()) > _LARGEST:
        yield ("FieldValueTooLong", "data" if secret else "[]", f"Too long: may not be more than {_LARGEST} bytes")


def _claim(obj: JSON) -> Iterator[Problem]:
    spec = _spec(obj)
    modes = spec.get("accessModes") or ()
    if not modes:
        yield missing("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _MODES:
            yield unsupported("spec.accessModes", mode, *_MODES)
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is None:
        yield missing("spec.resources[storage]")
    elif amount_of(asked).nano <= 0:
        yield bad("spec.resources[storage]", str(asked), "must be greater than zero")


def _claim_update(before: JSON, obj: JSON) -> Iterator[Problem]:
    """Only a bound claim may change, and only its size and its attributes class."""
    bound = (before.get("status") or {}).get("phase") == "Bound"
    free = {"resources", "volumeAttributesClassName"} if bound else set()
    old, new = _spec(before), _spec(obj)
    if any(old.get(field) != new.get(field) for field in {*old, *new} - free):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield ("FieldValueForbidden", "spec", f"Forbidden: {text}")


def _service(obj: JSON) -> Iterator[Problem]:
    spec = _spec(obj)
    type_, ports = spec.get("type"), spec.get("ports") or ()
    if type_ not in _SERVICE_TYPES:
        yield unsupported("spec.type", type_, *_SERVICE_TYPES)
    if not ports and type_ != "ExternalName" and spec.get("clusterIP") != "None":
        yield missing("spec.ports")
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            yield missing(f"spec.ports[{index}].name")
        yield from in_range(f"spec.ports[{index}].port", port.get("port") or 0, 1, 65535)
    if type_ == "ExternalName" and not spec.get("externalName"):
        yield missing("spec.externalName")


def _controller(plural: str) -> Rule:
    """Selector, counts and pod template of a kind that creates pods."""

    def problems(obj: JSON) -> Iterator[Problem]:
        spec = _spec(obj)
        template = spec.get("template") or {}
        labels = (template.get("metadata") or {}).get("labels")
        wanted = spec.get("selector") or {}
        if plural != "jobs":
            if not wanted:
                yield missing("spec.selector")
            if not wanted or not (wanted.get("matchLabels") or {}).items() <= (labels or {}).items():
                text = f"Invalid value: {json.dumps(labels)}: `selector` does not match template `labels`"
                yield ("FieldValueInvalid", "spec.template.metadata.labels", text)
        for field in ("parallelism", "completions", "backoffLimit", "replicas"):
            if (spec.get(field) or 0) < 0:
                yield bad(f"spec.{field}", spec[field], "must be greater than or equal to 0")
        pod = template.get("spec") or {}
        if not pod.get("containers"):
            yield missing("spec.template.spec.containers")
        if plural == "jobs" and pod.get("restartPolicy") not in {"OnFailure", "Never"}:
            yield missing("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')

    return problems


_NEW: dict[str, Rule] = {
    "pods": lambda obj: problems_of_pod(_spec(obj)),
    "resourcequotas": _quota,
    "persistentvolumeclaims": _claim,
    "services": _service,
    "customresourcedefinitions": problems_of_definition,
    "configmaps": _data,
    "secrets": _data,
    **{plural: _controller(plural) for plural in _CONTROLLERS},
}
_CHANGED: dict[str, ChangeRule] = {
    "pods": lambda before, obj: problems_of_pod_update(_spec(before), _spec(obj)),
    "resourcequotas": _quota_update,
    "persistentvolumeclaims": _claim_update,
    "services": lambda _, obj: _service(obj),
    "customresourcedefinitions": lambda _, obj: problems_of_definition(obj),
    "configmaps": lambda _, obj: _data(obj),
    "secrets": lambda _, obj: _data(obj),
}

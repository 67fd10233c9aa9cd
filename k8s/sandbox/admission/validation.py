"""What a new or changed object must pass, kind by kind; the answer is 422, before quota admission runs.

Source: ``k8s.io/kubernetes/pkg/apis/*/validation`` (1.36).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from backoff_ctrl.k8s.sandbox.admission.amounts import amount_of
from backoff_ctrl.k8s.sandbox.admission.charges import SCOPES
from backoff_ctrl.k8s.sandbox.admission.limit_ranges import problems_of_limit_range
from backoff_ctrl.k8s.sandbox.admission.pods import problems_of_new_pod, problems_of_pod_update
from backoff_ctrl.k8s.sandbox.admission.resources import COUNTS, is_standard, resource_name_problems
from backoff_ctrl.k8s.sandbox.objects.answers import Problem, bad, fixed, in_range, missing, not_negative, unsupported
from backoff_ctrl.k8s.sandbox.objects.definitions import problems_of_definition, problems_of_definition_update
from backoff_ctrl.k8s.sandbox.objects.kinds import QUOTAS, Kind
from backoff_ctrl.k8s.sandbox.objects.metadata import kept_problems, metadata_problems, name_problems
from backoff_ctrl.k8s.sandbox.objects.schema import problems_of
from backoff_ctrl.k8s.sandbox.objects.texts import JSON

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


def problems_of_quota(quota: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[Problem]:
    """Everything that is wrong with a new quota, or with an update of ``before``. Raises ``AmountError``."""
    spec = quota.get("spec") or {}
    problems = [*_amounts("spec.hard", spec.get("hard") or {}), *_scopes(spec), *_selector(spec)]
    if before is not None:
        scopes, old = spec.get("scopes") or [], (before.get("spec") or {}).get("scopes") or []
        if set(scopes) != set(old):
            problems.append(_invalid("spec.scopes", scopes or None, "field is immutable"))
    return problems


def problems_of_quota_status(quota: Mapping[str, Any]) -> list[Problem]:
    """Everything that is wrong with the status of a quota. Raises ``AmountError``."""
    status = quota.get("status") or {}
    return [each for side in ("hard", "used") for each in _amounts(f"status.{side}", status.get(side) or {})]


def _amounts(field: str, amounts: JSON) -> Iterator[Problem]:
    for name, text in amounts.items():
        where = f"{field}[{name}]"
        for problem in _name_problems(name):
            yield _invalid(where, name, problem)
        amount = amount_of(text)
        if amount.nano < 0:
            yield _invalid(where, str(amount), "must be greater than or equal to 0")
        whole = name in COUNTS or ("/" in name and "kubernetes.io/" not in name and not name.startswith("requests."))
        if whole and amount.nano % 10**9:
            yield _invalid(where, str(amount), "must be an integer")


def _name_problems(name: str) -> Iterator[str]:
    yield from resource_name_problems(name)
    if "/" not in name and not is_standard(name):
        yield "must be a standard resource for quota"


def _misapplied(scope: str, hard: JSON) -> int:
    """How many standard names in a quota do not go with this scope."""
    fitting = _NAMES_OF_SCOPE.get(scope, frozenset(hard))
    return sum(1 for name in hard if is_standard(name) and name not in fitting)


def _scopes(spec: JSON) -> Iterator[Problem]:
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in SCOPES:
            yield _invalid("spec.scopes", scopes, "unsupported scope")
        for _ in range(_misapplied(scope, spec.get("hard") or {})):
            yield _invalid("spec.scopes", scopes, "unsupported scope applied to resource")
    for pair in _CONFLICTING:
        if pair.issubset(scopes):
            yield _invalid("spec.scopes", scopes, "conflicting scopes")


def _selector(spec: JSON) -> Iterator[Problem]:
    where = "spec.scopeSelector.matchExpressions"
    requirements = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    for requirement in requirements:
        scope = requirement.get("scopeName", "")
        if scope not in SCOPES:
            yield _invalid(f"{where}.scopeName", scope, "unsupported scope")
        for _ in range(_misapplied(scope, spec.get("hard") or {})):
            yield _invalid(where, _as_go_holds_it(requirements), "unsupported scope applied to resource")
        yield from _operator(where, scope, requirement)
    scopes = {requirement.get("scopeName") for requirement in requirements}
    for pair in _CONFLICTING:
        if pair.issubset(scopes):
            yield _invalid(where, spec.get("scopes") or None, "conflicting scopes")


def _operator(where: str, scope: str, requirement: JSON) -> Iterator[Problem]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if scope in SCOPES - _NAMED and operator != "Exists":
        yield _invalid(f"{where}.operator", operator, _ONLY_EXISTS)
    if operator in {"In", "NotIn"}:
        if not values:
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield ("FieldValueRequired", f"{where}.values", f"Required value: {text}")
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield _invalid(f"{where}.values", values, text)
    else:
        yield _invalid(f"{where}.operator", operator, "not a valid selector operator")


def _as_go_holds_it(requirements: list[JSON]) -> JSON:
    """A selector as Go prints the server's internal types."""
    return {
        "MatchExpressions": [
            {"ScopeName": each.get("scopeName"), "Operator": each.get("operator"), "Values": each.get("values")}
            for each in requirements
        ]
    }


def _invalid(field: str, value: Any, text: str) -> Problem:
    return ("FieldValueInvalid", field, f"Invalid value: {json.dumps(value, separators=(',', ':'))}: {text}")


_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_LARGEST = 1024 * 1024  # bytes of data
_IMMUTABLE = "Forbidden: field is immutable when `immutable` is set"
_KEYS_OF_TYPES = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_BASIC = ("username", "password")
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_POLICY_TEXT = 'valid values: "OnFailure", "Never"'


def problems_of_data(plural: str, obj: JSON, before: JSON | None) -> Iterator[Problem]:
    """Keys and size of a ConfigMap or a Secret, and on an update what must not change."""
    if before is not None:
        yield from _kept_data_problems(plural, obj, before)
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, values in (("data", data), ("binaryData", binary)):
        for key in values:
            if not _KEY.fullmatch(key):
                yield bad(f"{field}[{key}]", key, _KEY_TEXT)
    for key in sorted(data.keys() & binary.keys()):
        yield bad(f"data[{key}]", key, "duplicate of key present in binaryData")
    secret = plural == "secrets"
    size = sum(len(text) * 3 // 4 if secret else len(text.encode()) for text in data.values())
    if size + sum(len(text) * 3 // 4 for text in binary.values()) > _LARGEST:
        yield ("FieldValueTooLong", "data" if secret else "[]", f"Too long: may not be more than {_LARGEST} bytes")
    if secret:
        yield from _type_problems(obj.get("type") or "", data)


def _kept_data_problems(plural: str, obj: JSON, before: JSON) -> Iterator[Problem]:
    if before.get("immutable") and obj.get("immutable") is not True:
        yield ("FieldValueForbidden", "immutable", _IMMUTABLE)
    for field in ("data", "binaryData") if before.get("immutable") else ():
        if before.get(field) != obj.get(field):
            yield ("FieldValueForbidden", field, _IMMUTABLE)
    if plural == "secrets" and before.get("type") != obj.get("type"):
        yield fixed("type", obj.get("type"))


def _type_problems(type_: str, data: JSON) -> Iterator[Problem]:
    """Secrets of some types need certain keys; basic-auth needs one of its two."""
    basic = type_ == "kubernetes.io/basic-auth" and not any(key in data for key in _BASIC)
    for key in _BASIC if basic else _KEYS_OF_TYPES.get(type_, ()):
        if key not in data:
            yield missing(f"data[{key}]")


def problems_of_claim(spec: JSON) -> Iterator[Problem]:
    """Access modes and size of a claim. Raises ``AmountError``."""
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


def problems_of_claim_update(before: JSON, obj: JSON) -> Iterator[Problem]:
    """Only a bound claim may change, and only its size and its attributes class."""
    bound = (before.get("status") or {}).get("phase") == "Bound"
    free = {"resources", "volumeAttributesClassName"} if bound else set()
    old, new = before.get("spec") or {}, obj.get("spec") or {}
    if any(old.get(field) != new.get(field) for field in {*old, *new} - free):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield ("FieldValueForbidden", "spec", f"Forbidden: {text}")


def problems_of_service(spec: JSON, before: JSON | None) -> Iterator[Problem]:
    """Type, ports and address of a Service."""
    type_, ports = spec.get("type"), spec.get("ports") or ()
    old = (before or {}).get("clusterIPs") or []
    if old and type_ != "ExternalName" and (spec.get("clusterIPs") or [])[:1] != old[:1]:
        yield bad("spec.clusterIPs[0]", spec.get("clusterIPs"), "may not change once set")
    if not ports and type_ != "ExternalName" and spec.get("clusterIP") != "None":
        yield missing("spec.ports")
    for index, port in enumerate(ports):
        yield from _port_problems(f"spec.ports[{index}]", port, alone=len(ports) == 1)
        if type_ == "ClusterIP" and port.get("nodePort"):
            text = "Forbidden: may not be used when `type` is 'ClusterIP'"
            yield ("FieldValueForbidden", f"spec.ports[{index}].nodePort", text)
    if type_ not in _SERVICE_TYPES:
        yield unsupported("spec.type", type_, *_SERVICE_TYPES)
    if type_ in {"NodePort", "LoadBalancer"} and spec.get("clusterIP") == "None":
        yield bad("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {type_} services")
    if type_ == "ExternalName" and (spec.get("clusterIP") or spec.get("clusterIPs")):
        yield ("FieldValueForbidden", "spec.clusterIPs", "Forbidden: may not be set for ExternalName services")
    if type_ == "ExternalName" and not spec.get("externalName"):
        yield missing("spec.externalName")


def _port_problems(path: str, port: JSON, *, alone: bool) -> Iterator[Problem]:
    if not alone and not port.get("name"):
        yield missing(f"{path}.name")
    yield from in_range(f"{path}.port", port.get("port") or 0, 1, 65535)
    if port.get("protocol") not in _PROTOCOLS:
        yield unsupported(f"{path}.protocol", port.get("protocol"), *_PROTOCOLS)
    target = port.get("targetPort")
    if isinstance(target, int):
        yield from in_range(f"{path}.targetPort", target, 1, 65535)


def problems_of_controller(plural: str, spec: JSON) -> Iterator[Problem]:
    """Selector, counts and pod template of a kind that creates pods."""
    template = spec.get("template")
    if plural == "replicationcontrollers":
        given = (template or {}).get("metadata", {}).get("labels")
        if not (spec.get("selector") or given):
            yield missing("spec.selector")
        if not template:
            yield missing("spec.template")
        return
    if plural != "jobs":
        yield from _selector_problems(spec, template or {})
    for field in ("parallelism", "completions", "backoffLimit", "replicas") if plural != "cronjobs" else ():
        yield from not_negative(f"spec.{field}", spec.get(field))
    pod = (template or {}).get("spec") or {}
    if not pod.get("containers"):
        yield missing("spec.template.spec.containers")
    if plural == "jobs" and pod.get("restartPolicy") not in {"OnFailure", "Never"}:
        yield missing("spec.template.spec.restartPolicy", _POLICY_TEXT)


def _selector_problems(spec: JSON, template: JSON) -> Iterator[Problem]:
    if not spec.get("selector"):
        yield missing("spec.selector")
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if not spec.get("selector") or not wanted.items() <= (labels or {}).items():
        where, text = "spec.template.metadata.labels", "`selector` does not match template `labels`"
        yield ("FieldValueInvalid", where, f"Invalid value: {json.dumps(labels)}: {text}")


def problems_of_job_update(before: JSON, spec: JSON) -> Iterator[Problem]:
    """A Job's completions, selector and pod template must not change."""
    indexed = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if before.get("completions") != spec.get("completions") and not indexed:
        yield fixed("spec.completions", spec.get("completions"))
    if before.get("selector") != spec.get("selector"):
        yield fixed("spec.selector", spec.get("selector"))
    old, new = before.get("template") or {}, spec.get("template") or {}
    if old.get("spec") != new.get("spec") and not (before.get("suspend") and _same_but_directives(old, new)):
        yield fixed("spec.template.spec", new.get("spec"))


def _same_but_directives(old: JSON, new: JSON) -> bool:
    """Whether two templates differ only in scheduling directives, which may change while a Job is suspended."""
    free = {"nodeSelector", "affinity", "tolerations", "schedulingGates"}
    one, other = ({f: v for f, v in (each.get("spec") or {}).items() if f not in free} for each in (old, new))
    return one == other


_CONTROLLERS = ("deployments", "daemonsets", "replicasets", "statefulsets", "jobs", "replicationcontrollers")
_DATA = ("configmaps", "secrets")


def problems_of_new(kind: Kind, obj: JSON) -> list[Problem]:
    """Everything that is wrong with a new object. Raises ``AmountError``."""
    metadata, rule = obj["metadata"], _NEW.get(kind.plural)
    problems = [*name_problems(kind, metadata), *metadata_problems(metadata)]
    if kind.schema:
        return [*problems, *problems_of(kind.schema, obj)]
    return [*problems, *rule(obj)] if rule is not None and kind.strategic else problems


def problems_of_update(kind: Kind, before: JSON, obj: JSON, subresource: str) -> list[Problem]:
    """Everything that is wrong with an update. Raises ``AmountError``."""
    metadata, rule = obj["metadata"], _CHANGED.get(kind.plural)
    problems = [*metadata_problems(metadata), *kept_problems(before["metadata"], metadata)]
    if kind.schema:
        return [*problems, *problems_of(kind.schema, obj)]
    if kind is QUOTAS and subresource:
        return [*problems, *problems_of_quota_status(obj)]
    return [*problems, *rule(before, obj)] if rule is not None and kind.strategic and not subresource else problems


def _job_update(before: JSON, obj: JSON) -> Iterable[Problem]:
    spec = _spec(obj)
    return [*problems_of_controller("jobs", spec), *problems_of_job_update(_spec(before), spec)]


def _spec(obj: JSON) -> JSON:
    return obj.get("spec") or {}


def _data(plural: str) -> Rule:
    return lambda obj: problems_of_data(plural, obj, None)


def _controller(plural: str) -> Rule:
    return lambda obj: problems_of_controller(plural, _spec(obj))


def _changed_data(plural: str) -> ChangeRule:
    return lambda before, obj: problems_of_data(plural, obj, before)


_NEW: dict[str, Rule] = {
    "pods": lambda obj: problems_of_new_pod(_spec(obj)),
    "resourcequotas": problems_of_quota,
    "limitranges": problems_of_limit_range,
    "persistentvolumeclaims": lambda obj: problems_of_claim(_spec(obj)),
    "services": lambda obj: problems_of_service(_spec(obj), None),
    "customresourcedefinitions": problems_of_definition,
    **{plural: _data(plural) for plural in _DATA},
    **{plural: _controller(plural) for plural in _CONTROLLERS},
}
_CHANGED: dict[str, ChangeRule] = {
    "pods": lambda before, obj: problems_of_pod_update(_spec(before), _spec(obj)),
    "resourcequotas": lambda before, obj: problems_of_quota(obj, before),
    "limitranges": lambda _, obj: problems_of_limit_range(obj),
    "persistentvolumeclaims": problems_of_claim_update,
    "services": lambda before, obj: problems_of_service(_spec(obj), _spec(before)),
    "customresourcedefinitions": problems_of_definition_update,
    "jobs": _job_update,
    **{plural: _changed_data(plural) for plural in _DATA},
}

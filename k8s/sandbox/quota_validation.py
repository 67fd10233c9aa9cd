"""What is wrong with a ResourceQuota, in the words of the API server.

Source: ``k8s.io/kubernetes/pkg/apis/core/validation/validation.go`` (1.36), ``ValidateResourceQuota`` and the two
that check its updates.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from .amounts import amount_of
from .scopes import SCOPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .encoding import JSON

    Problem = tuple[str, str, str]

_COUNTS = frozenset({"pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas",
                     "replicationcontrollers", "services.nodeports", "services.loadbalancers"})  # fmt: skip
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_NAMES = frozenset({*_COUNTS, *_COMPUTE, *(f"requests.{n}" for n in (*_COMPUTE, "storage")),
                    *(f"limits.{n}" for n in _COMPUTE)})  # fmt: skip
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
_LONGEST = 63
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PART = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def problems_of_quota(quota: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[Problem]:
    """Everything that is wrong with a quota, or with its new spec. Raises ``AmountError``."""
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
        for told in _name_problems(name):
            yield _invalid(where, name, told)
        amount = amount_of(text)
        if amount.nano < 0:
            yield _invalid(where, str(amount), "must be greater than or equal to 0")
        whole = name in _COUNTS or ("/" in name and "kubernetes.io/" not in name and not name.startswith("requests."))
        if whole and amount.nano % 10**9:
            yield _invalid(where, str(amount), "must be an integer")


def _name_problems(name: str) -> Iterator[str]:
    yield from resource_name_problems(name)
    if "/" not in name and not _is_standard(name):
        yield "must be a standard resource for quota"


def resource_name_problems(name: str) -> list[str]:
    """What is wrong with the name of a resource, anywhere (``validateResourceName``)."""
    prefix, slash, last = name.rpartition("/")
    if "/" in prefix:
        return [f"a valid label key {_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    if not last:
        problems.append("name part must be non-empty")
    elif len(last) > _LONGEST:
        problems.append("name part must be no more than 63 bytes")
    if not _QUALIFIED.fullmatch(last):
        problems.append(f"name part {_PART}")
    if not problems and not slash and name != "storage" and not _is_standard(name):
        problems.append("must be a standard resource type or fully qualified")
    return problems


def _is_standard(name: str) -> bool:
    return name in _NAMES or name.startswith(("hugepages-", "requests.hugepages-"))


def _misapplied(scope: str, hard: JSON) -> int:
    """How many names of a quota are known, and not for this scope."""
    fitting = _NAMES_OF_SCOPE.get(scope, frozenset(hard))
    return sum(1 for name in hard if _is_standard(name) and name not in fitting)


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
            told = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield ("FieldValueRequired", f"{where}.values", f"Required value: {told}")
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            told = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield _invalid(f"{where}.values", values, told)
    else:
        yield _invalid(f"{where}.operator", operator, "not a valid selector operator")


def _as_go_holds_it(requirements: list[JSON]) -> JSON:
    """A selector as the server's inner types print it."""
    return {
        "MatchExpressions": [
            {"ScopeName": each.get("scopeName"), "Operator": each.get("operator"), "Values": each.get("values")}
            for each in requirements
        ]
    }


def _invalid(field: str, value: Any, text: str) -> Problem:
    return ("FieldValueInvalid", field, f"Invalid value: {json.dumps(value, separators=(',', ':'))}: {text}")

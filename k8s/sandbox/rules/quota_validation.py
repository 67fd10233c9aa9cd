"""Validation of ResourceQuotas, with the API server's messages.

Source: ``k8s.io/kubernetes/pkg/apis/core/validation/validation.go`` (1.36), ``ValidateResourceQuota`` and the two
functions that validate updates.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.amounts.amounts import amount_of
from backoff_ctrl.k8s.sandbox.amounts.resource_name_rules import COUNTS, is_standard, resource_name_problems
from backoff_ctrl.k8s.sandbox.quotas.scopes import SCOPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    Problem = tuple[str, str, str]

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

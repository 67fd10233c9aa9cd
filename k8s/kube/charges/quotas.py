"""Read a ResourceQuota or an OpenShift ClusterResourceQuota as a fact for the engine. Pure; accepts any object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.demand import Selector
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.fields import (
    FieldError,
    items,
    list_at,
    mapping,
    mapping_at,
    mapping_in,
    mappings,
    mappings_at,
    metadata_of,
    text,
    text_at,
)

Clause = tuple[bool, frozenset[str]]

_PLAIN: Final[dict[str, Clause]] = {
    "Terminating": (True, frozenset({"Terminating"})),
    "NotTerminating": (False, frozenset({"Terminating"})),
    "BestEffort": (True, frozenset({"BestEffort"})),
    "NotBestEffort": (False, frozenset({"BestEffort"})),
    "CrossNamespacePodAffinity": (True, frozenset({"CrossNamespacePodAffinity"})),
}
_NAMED: Final = frozenset({"PriorityClass", "VolumeAttributesClass"})


RECOUNTS: Final = "kube-controller-manager"
"""The manager name in managedFields under which the quota controller writes its recounts."""


class UnknownScopeError(FieldError):
    """The quota has an unknown scope or operator, so its amounts can only be learned from rejections."""


@dataclass(frozen=True, slots=True)
class ClusterQuota:
    """A ClusterResourceQuota and the namespaces that it covers.

    All its namespaces share its amounts: a create in one of them takes room from the others.
    """

    seen: ObservedQuota
    namespaces: tuple[str, ...]


def read_quota(quota: object) -> ObservedQuota:
    """Return the engine's view of a ResourceQuota.

    ``spec`` is the desired limits. ``hard`` and ``used`` are what admission enforces, and empty until the quota
    controller has filled in the status. An amount that is malformed or negative is left out: the server's rejections
    will show it. Raises ``UnknownScopeError``, and ``FieldError`` if a field has the wrong type.
    """
    whole = _whole(quota)
    spec, status = mapping_at(whole, "spec", ""), mapping_at(whole, "status", "")
    return replace(_observed(spec, "spec", status, "status"), recounted=_recounted(whole))


def read_cluster_quota(quota: object) -> ClusterQuota:
    """Return the engine's view of an OpenShift ClusterResourceQuota, and the namespaces that it selects.

    Its ``spec.quota`` is a ResourceQuota's spec, ``status.total`` a ResourceQuota's status, and each entry of
    ``status.namespaces`` names one (openshift/api quota/v1). Raises as ``read_quota`` does.
    """
    whole = _whole(quota)
    spec, status = mapping_at(whole, "spec", ""), mapping_at(whole, "status", "")
    names = [text_at(each, "namespace", "status.namespaces") for each in mappings_at(status, "namespaces", "status")]
    if not all(names):
        raise FieldError("status.namespaces: an entry has no namespace name")
    seen = _observed(
        mapping_at(spec, "quota", "spec"), "spec.quota", mapping_at(status, "total", "status"), "status.total"
    )
    return ClusterQuota(seen, tuple(dict.fromkeys(names)))


def _whole(quota: object) -> Mapping[str, Any]:
    if not isinstance(quota, dict):
        raise FieldError("the quota: must be an object")
    return quota


def _recounted(whole: Mapping[str, Any]) -> frozenset[str]:
    """Return the resources whose ``used`` the quota controller changed last, according to managedFields.

    Admission writes its charges under the API server's name. Empty if both are one program or the fields are missing.
    """
    for entry in reversed(mappings(metadata_of(whole).get("managedFields"))):
        if entry.get("manager") == RECOUNTS and entry.get("subresource") == "status":
            used = mapping_in(mapping_in(entry.get("fieldsV1"), "f:status"), "f:used")
            return frozenset(name[2:] for name in used if name.startswith("f:"))
    return frozenset()


def _observed(spec: Mapping[str, Any], at: str, status: Mapping[str, Any], status_at: str) -> ObservedQuota:
    return ObservedQuota(
        spec=_amounts(spec, "hard", at),
        hard=_amounts(status, "hard", status_at),
        used=_amounts(status, "used", status_at),
        selector=Selector(_clauses(spec, at)),
    )


def _clauses(spec: Mapping[str, Any], at: str) -> Iterator[Clause]:
    """Yield the conditions of all scopes, all of which must hold.

    Source: ``podMatchesScopeFunc``, ``pvcMatchesScopeFunc`` and ``generic.Matches`` of pkg/quota/v1.
    """
    for scope in list_at(spec, "scopes", at):
        yield _clause(scope, "Exists", ())
    place = f"{at}.scopeSelector"
    for expression in mappings_at(mapping_at(spec, "scopeSelector", at), "matchExpressions", place):
        values = list_at(expression, "values", f"{place}.matchExpressions")
        yield _clause(expression.get("scopeName"), expression.get("operator"), values)


def _clause(scope: object, operator: object, values: Sequence[object]) -> Clause:
    if isinstance(scope, str) and scope in _PLAIN and operator == "Exists":
        return _PLAIN[scope]  # validation allows only Exists for these
    if isinstance(scope, str) and scope in _NAMED:
        if not all(isinstance(value, str) for value in values):
            raise FieldError("the values of a scope must be strings")
        named = frozenset(f"{scope}={value}" for value in values)
        match operator:
            case "Exists":
                return True, frozenset({scope})
            case "DoesNotExist":
                return False, frozenset({scope})
            case "In":
                return True, named
            case "NotIn":  # as in label selectors, an object without the name matches too
                return False, named
    if isinstance(scope, str) and isinstance(operator, str):
        raise UnknownScopeError(f"scope {scope[:80]!r} with operator {operator[:80]!r}")
    raise FieldError("scopes and operators must be strings")


def _amounts(parent: Mapping[str, Any], key: str, at: str) -> dict[str, int]:
    amounts = {}
    for name, quantity in mapping_at(parent, key, at).items():
        try:
            amount = parse_quantity(quantity)
        except QuantityError:
            continue  # an amount that can't be read counts as unknown
        if amount >= 0:
            amounts[name] = amount
    return amounts


def quotas_of(answer: Answer) -> Iterator[tuple[str, ObservedQuota]]:
    """Yield the quotas of a list by name; an answer that is no list of quotas counts as empty.

    Malformed quotas are skipped.
    """
    for item in items(mapping(answer.json() if answer.ok else None).get("items")):
        name = text(metadata_of(item).get("name"))
        try:
            seen = read_quota(item)
        except FieldError:
            continue  # an unreadable quota must not hide the others: its ceilings are learned from refusals
        if name:
            yield name, seen

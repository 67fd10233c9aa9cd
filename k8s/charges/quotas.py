"""Read a ResourceQuota or an OpenShift ClusterResourceQuota as a fact for the engine. Pure; accepts any object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.engine.demand import Selector
from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import parse_quantity
from backoff_ctrl.engine.quotas import ObservedQuota
from backoff_ctrl.k8s.answers.answer import Answer

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


class UnreadableQuotaError(ValueError):
    """The quota object is malformed, so its amounts can only be learned from rejections."""


class UnknownScopeError(UnreadableQuotaError):
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
    will show it. Raises ``UnknownScopeError``, and ``UnreadableQuotaError`` if a field has the wrong type.
    """
    whole = _mapping(quota, "the quota")
    spec, status = _mapping(whole.get("spec"), "spec"), _mapping(whole.get("status"), "status")
    return replace(_observed(spec, status), recounted=_recounted(whole))


def read_cluster_quota(quota: object) -> ClusterQuota:
    """Return the engine's view of an OpenShift ClusterResourceQuota, and the namespaces that it selects.

    Its ``spec.quota`` is a ResourceQuota's spec, ``status.total`` a ResourceQuota's status, and each entry of
    ``status.namespaces`` names one (openshift/api quota/v1). Raises as ``read_quota`` does.
    """
    whole = _mapping(quota, "the quota")
    spec, status = _mapping(whole.get("spec"), "spec"), _mapping(whole.get("status"), "status")
    names: dict[str, None] = {}
    for entry in _list(status.get("namespaces"), "status.namespaces"):
        name = _mapping(entry, "an entry of status.namespaces").get("namespace")
        if not isinstance(name, str) or not name:
            raise UnreadableQuotaError("an entry of status.namespaces has no namespace name")
        names[name] = None
    seen = _observed(_mapping(spec.get("quota"), "spec.quota"), _mapping(status.get("total"), "status.total"))
    return ClusterQuota(seen, tuple(names))


def _recounted(whole: Mapping[str, Any]) -> frozenset[str]:
    """Return the resources whose ``used`` the quota controller changed last, according to managedFields.

    Admission writes its charges under the API server's name. Empty if both are one program or the fields are missing.
    """
    metadata = whole.get("metadata")
    fields = metadata.get("managedFields") if isinstance(metadata, dict) else None
    found: Any = ()
    for entry in fields if isinstance(fields, list) else ():
        if isinstance(entry, dict) and entry.get("manager") == RECOUNTS and entry.get("subresource") == "status":
            found = entry
            for name in ("fieldsV1", "f:status", "f:used"):
                found = found.get(name) if isinstance(found, dict) else None
    return frozenset(name[2:] for name in found if name.startswith("f:")) if isinstance(found, dict) else frozenset()


def _observed(spec: Mapping[str, Any], status: Mapping[str, Any]) -> ObservedQuota:
    return ObservedQuota(
        spec=_amounts(spec.get("hard"), "spec.hard"),
        hard=_amounts(status.get("hard"), "status.hard"),
        used=_amounts(status.get("used"), "status.used"),
        selector=Selector(_clauses(spec)),
    )


def _clauses(spec: Mapping[str, Any]) -> Iterator[Clause]:
    """Yield the conditions of all scopes, all of which must hold.

    Source: ``podMatchesScopeFunc``, ``pvcMatchesScopeFunc`` and ``generic.Matches`` of pkg/quota/v1.
    """
    for scope in _list(spec.get("scopes"), "spec.scopes"):
        yield _clause(scope, "Exists", ())
    selector = _mapping(spec.get("scopeSelector"), "spec.scopeSelector")
    for entry in _list(selector.get("matchExpressions"), "matchExpressions"):
        expression = _mapping(entry, "an entry of matchExpressions")
        values = _list(expression.get("values"), "values")
        yield _clause(expression.get("scopeName"), expression.get("operator"), values)


def _clause(scope: object, operator: object, values: Sequence[object]) -> Clause:
    if isinstance(scope, str) and scope in _PLAIN and operator == "Exists":
        return _PLAIN[scope]  # validation allows only Exists for these
    if isinstance(scope, str) and scope in _NAMED:
        if not all(isinstance(value, str) for value in values):
            raise UnreadableQuotaError("the values of a scope must be strings")
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
    raise UnreadableQuotaError("scopes and operators must be strings")


def _amounts(value: object, field: str) -> dict[str, int]:
    amounts = {}
    for name, quantity in _mapping(value, field).items():
        try:
            amount = parse_quantity(quantity)
        except QuantityError:
            continue
        if amount >= 0:
            amounts[name] = amount
    return amounts


def _mapping(value: object, field: str) -> Mapping[str, Any]:
    """Return an object; empty if the value is None."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableQuotaError(f"{field} is not an object")
    return value


def _list(value: object, field: str) -> Sequence[Any]:
    """Return a list; empty if the value is None."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise UnreadableQuotaError(f"{field} is not a list")
    return value


def quotas_of(answer: Answer) -> Iterator[tuple[str, ObservedQuota]]:
    """Yield the quotas of a list by name; none if the answer is no list of quotas. Malformed quotas are skipped."""
    listed = answer.json() if answer.ok else None
    items = None if listed is None else listed.get("items")
    for item in items if isinstance(items, list) else ():
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        try:
            seen = read_quota(item)
        except UnreadableQuotaError:
            continue
        if isinstance(name, str) and name:
            yield name, seen

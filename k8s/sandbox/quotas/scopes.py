"""Which quotas apply to a charge: scopes and scopeSelector (``podMatchesScopeFunc``, ``pvcMatchesScopeFunc``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.kinds.kinds import CLAIMS, PODS
from backoff_ctrl.k8s.sandbox.storage.selectors import requirement_matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind

    from .charges import Charge

    Requirement = Mapping[str, Any]

SCOPES = frozenset(
    {
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    }
)


def requirements_of(spec: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """Scopes and scopeSelector of a quota as one list of requirements, all of which must hold."""
    plain = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    return (*plain, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ()))


def applies(requirements: tuple[Requirement, ...], kind: Kind, charge: Charge) -> bool:
    """Whether a quota with these requirements is charged for the object."""
    return all(_holds(requirement, kind, charge) for requirement in requirements)


def _holds(requirement: Requirement, kind: Kind, charge: Charge) -> bool:
    scope = requirement.get("scopeName", "")
    if kind is CLAIMS:
        return scope == "VolumeAttributesClass" and _names_hold(requirement, charge.attribute_classes)
    if kind is not PODS:
        return False
    if scope == "PriorityClass":
        return _names_hold(requirement, frozenset({charge.priority_class} - {""}))
    facts = {
        "Terminating": charge.terminating,
        "NotTerminating": not charge.terminating,
        "BestEffort": charge.best_effort,
        "NotBestEffort": not charge.best_effort,
        "CrossNamespacePodAffinity": charge.crosses_namespaces,
    }
    return facts.get(scope, False)


def _names_hold(requirement: Requirement, names: frozenset[str]) -> bool:
    """Evaluate a selector over names; where there are several (a claim that changes its class), one match is enough."""
    scope = str(requirement["scopeName"])
    if not names:
        return requirement_matches(requirement, {})
    return any(requirement_matches(requirement, {scope: name}) for name in names)

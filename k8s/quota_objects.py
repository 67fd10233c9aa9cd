"""A ResourceQuota object as the engine's fact. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.ceilings import ObservedQuota
from backoff_ctrl.demand import Selector
from backoff_ctrl.errors import QuantityError
from backoff_ctrl.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Clause = tuple[bool, frozenset[str]]

_PLAIN: Final[dict[str, Clause]] = {
    "Terminating": (True, frozenset({"Terminating"})),
    "NotTerminating": (False, frozenset({"Terminating"})),
    "BestEffort": (True, frozenset({"BestEffort"})),
    "NotBestEffort": (False, frozenset({"BestEffort"})),
    "CrossNamespacePodAffinity": (True, frozenset({"CrossNamespacePodAffinity"})),
}
_NAMED: Final = frozenset({"PriorityClass", "VolumeAttributesClass"})


class UnknownScopeError(ValueError):
    """The quota has a scope, or an operator, that this project does not know: only its refusals can teach."""


def read_quota(quota: Mapping[str, Any]) -> ObservedQuota:
    """Turn the object into what the engine observes.

    ``spec`` is what was asked for; ``hard`` and ``used`` are what admission goes by, and are empty until the quota
    controller has filled the status. An amount that is no Quantity is left out: the server will say. Raises
    ``UnknownScopeError``.
    """
    spec, status = _mapping(quota.get("spec")), _mapping(quota.get("status"))
    return ObservedQuota(
        spec=_amounts(spec.get("hard")),
        hard=_amounts(status.get("hard")),
        used=_amounts(status.get("used")),
        selector=Selector(_clauses(spec)),
    )


def _clauses(spec: Mapping[str, Any]) -> Iterator[Clause]:
    """All must hold (``podMatchesScopeFunc``, ``pvcMatchesScopeFunc`` and ``generic.Matches`` of pkg/quota/v1)."""
    for scope in spec.get("scopes") or ():
        yield _clause(scope, "Exists", ())
    for expression in _mapping(spec.get("scopeSelector")).get("matchExpressions") or ():
        values = tuple(expression.get("values") or ())
        yield _clause(expression.get("scopeName", ""), expression.get("operator", ""), values)


def _clause(scope: str, operator: str, values: tuple[str, ...]) -> Clause:
    if scope in _PLAIN and operator == "Exists":  # validation allows these no other operator
        return _PLAIN[scope]
    if scope in _NAMED:
        named = frozenset(f"{scope}={value}" for value in values)
        match operator:
            case "Exists":
                return True, frozenset({scope})
            case "DoesNotExist":
                return False, frozenset({scope})
            case "In":
                return True, named
            case "NotIn":  # as a label selector: an object without the name matches too
                return False, named
    raise UnknownScopeError(f"scope {scope!r} with operator {operator!r}")


def _amounts(value: object) -> dict[str, int]:
    amounts = {}
    for name, quantity in _mapping(value).items():
        try:
            amounts[str(name)] = parse_quantity(quantity)
        except QuantityError:
            continue
    return amounts


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

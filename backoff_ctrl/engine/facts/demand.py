"""What one create is charged: exact amounts by quota resource name, and the scope facts that quotas select by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from types import MappingProxyType


class Demand:
    """Amounts that one create will be charged, with the scope facts that decide which quotas apply.

    ``amounts`` maps a quota resource name (``pods``, ``requests.cpu``) to nano-units, without zeros. ``scopes`` are
    opaque facts (``BestEffort``, ``PriorityClass=high``). Demands with equal content have equal ``key``s: they are of
    one *shape*.
    Raises ``ValueError`` for a negative amount.
    """

    __slots__ = ("amounts", "key", "scopes")

    amounts: Mapping[str, int]
    scopes: frozenset[str]
    key: str  # interned: a decision compares keys by identity, and their hash is known before it begins

    def __init__(self, amounts: Mapping[str, int], scopes: Iterable[str] = ()) -> None:
        """Copy the amounts, sorted by name."""
        for name, amount in amounts.items():
            if amount < 0:
                raise ValueError(f"{name}: a demand cannot be negative, got {amount} nano-units")
        self.amounts = MappingProxyType({name: amounts[name] for name in sorted(amounts) if amounts[name]})
        self.scopes = frozenset(scopes)
        self.key = intern(repr((tuple(self.amounts.items()), tuple(sorted(self.scopes)))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Demand) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Demand({dict(self.amounts)}, scopes={sorted(self.scopes)})"


class Selector:
    """Which scope classes a quota applies to: every clause must hold.

    A clause ``(wanted, facts)`` holds when the demand has one of ``facts`` (``wanted`` true) or lacks all of
    them (``wanted`` false). No clause: the quota applies to everything.
    """

    __slots__ = ("clauses",)

    def __init__(self, clauses: Iterable[tuple[bool, frozenset[str]]] = ()) -> None:
        """Select the demands for which every clause holds."""
        self.clauses = tuple(clauses)

    def applies(self, scopes: frozenset[str]) -> bool:
        """Say whether a demand with these scope facts is charged to the quota."""
        return all(wanted != scopes.isdisjoint(facts) for wanted, facts in self.clauses)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.clauses == other.clauses

    def __hash__(self) -> int:
        return hash(self.clauses)

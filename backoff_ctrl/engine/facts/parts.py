"""What several creates admitted as one are charged: a gang's parts, each a demand and its number of members."""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import Final

from backoff_ctrl.engine.errors import GangError

from .demand import Demand
from .quantities import format_quantity

PARTS_MAX: Final = 16
MEMBERS_MAX: Final = 100_000  # of one part: more than that is a mistake


def is_count(count: object) -> bool:
    """Say whether this can be a part's number of members."""
    return isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MEMBERS_MAX


class Parts(Demand):
    """The demand of a whole gang. ``parts`` are (demand of one member, number of members); ``amounts`` is their sum.

    Two gangs of equal parts have equal keys, and so wait in one row. The scope facts are those of the parts: each part
    is charged where it alone would be.
    Raises ``GangError``, a ``ValueError``, for no part, too many parts, or a number of members that makes no sense.
    """

    __slots__ = ("parts",)

    parts: tuple[tuple[Demand, int], ...]

    def __init__(self, parts: Iterable[tuple[Demand, int]]) -> None:
        self.parts = tuple(parts)
        if not 1 <= len(self.parts) <= PARTS_MAX:
            surplus = (
                f": part {PARTS_MAX + 1} ({self._shown(self.parts[PARTS_MAX][0])}) is too many" if self.parts else ""
            )
            raise GangError(f"a gang has 1 to {PARTS_MAX} parts, not {len(self.parts)}{surplus}")
        total: dict[str, int] = {}
        for number, (demand, count) in enumerate(self.parts, 1):
            if isinstance(demand, Parts):
                raise GangError(f"part {number} is a gang itself: list its parts instead")
            if not is_count(count):
                raise GangError(
                    f"part {number} ({self._shown(demand)}) has 1 to {MEMBERS_MAX} members, as a whole number, "
                    f"not {count!r}"
                )
            for name, amount in demand.amounts.items():
                total[name] = total.get(name, 0) + count * amount
        super().__init__(total)
        self.key = intern(repr(("gang", *((demand.key, count) for demand, count in self.parts))))

    @staticmethod
    def _shown(demand: Demand) -> str:
        return ", ".join(f"{name}={format_quantity(amount)}" for name, amount in demand.amounts.items()) or "no charge"

"""One ceiling as a gate told it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backoff_ctrl.api.commands.instance.client import read
from backoff_ctrl.engine.quantities import parse_quantity
from backoff_ctrl.k8s.status.shapes.documents import Ceiling

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Told:
    """One ceiling as a gate told it; ``limited`` and ``used`` are in nano-units."""

    ceiling: Ceiling
    limited: int
    used: int

    @property
    def share(self) -> float:
        """What of the limit is used, from 0 to 1 and above."""
        return max(0.0, self.used / self.limited) if self.limited > 0 else 1.0


def told_of(item: Mapping[str, Any]) -> Told:
    """Return what a gate says of a ceiling. Raises ``ValueError`` if it is none."""
    found: Ceiling = read(Ceiling, item)
    return Told(found, parse_quantity(found.limited), parse_quantity(found.used))

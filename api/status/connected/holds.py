"""What gates hold, reserve and keep at a ceiling, added up, and the ceilings that ``serve`` shows with that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from backoff_ctrl.api.commands.instance.client import read
from backoff_ctrl.engine.quantities import parse_quantity
from backoff_ctrl.k8s.status.documents.items import quantity
from backoff_ctrl.k8s.status.shapes.documents import Block, Ceiling

if TYPE_CHECKING:
    from collections.abc import Mapping

Key: TypeAlias = tuple[str, str]
"""A quota and a resource."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What is held and reserved at one ceiling, in nano-units; whether room is kept there, and what waits for it.

    ``waiting`` counts creates.
    """

    held: int = 0
    reserved: int = 0
    kept: bool = False
    block: Block | None = None
    waiting: int = 0

    def __add__(self, other: Hold) -> Hold:
        """Return both together; of two blocks that which is probed next."""
        blocks = [each for each in (self.block, other.block) if each is not None]
        blocks.sort(key=lambda each: each.next_probe_at or "~")
        return Hold(
            self.held + other.held,
            self.reserved + other.reserved,
            self.kept or other.kept,
            blocks[0] if blocks else None,
            self.waiting + other.waiting,
        )

    @property
    def amount(self) -> int:
        """What is not free because of it."""
        return self.held + self.reserved


def hold_of(item: Mapping[str, Any]) -> Hold | None:
    """Return what a gate's ceiling says; None if that is nothing. Raises ``ValueError`` if it is no ceiling."""
    found: Ceiling = read(Ceiling, item)
    held, reserved = (parse_quantity(amount or "0") for amount in (found.held, found.reserved))
    hold = Hold(held, reserved, bool(found.kept), found.block, found.waiting or 0)
    return None if hold == Hold() else hold


def with_holds(ceiling: Ceiling, holds: Mapping[Key, Hold] | None) -> Ceiling:
    """Return a ceiling of the cluster with what the gates hold there; None: none of them tells."""
    if holds is None:
        ceiling.held = ceiling.reserved = ceiling.kept = ceiling.block = ceiling.waiting = None
        return ceiling
    hold = holds.get((ceiling.quota, ceiling.resource), Hold())
    left = parse_quantity(ceiling.limited) - parse_quantity(ceiling.used) - hold.amount
    ceiling.held, ceiling.reserved, ceiling.headroom = (
        quantity(amount, ceiling.resource) for amount in (hold.held, hold.reserved, left)
    )
    ceiling.kept, ceiling.block, ceiling.waiting = hold.kept, hold.block, hold.waiting
    return ceiling

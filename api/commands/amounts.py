"""Format amounts for people and scripts: quantity strings by resource name, and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.engine.quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def quantity_text(name: str, amount: int) -> str:
    """Return an amount (nano-units) as a quantity string; for bytes the shorter of the forms ``Gi`` and ``G``."""
    text = format_quantity(amount)
    if any(word in name for word in ("memory", "storage", "hugepages-")):
        return min(format_quantity(amount, binary=True), text, key=len)
    return text


def quantity_texts(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return all amounts as quantity strings."""
    return {name: quantity_text(name, amount) for name, amount in amounts.items()}


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows in columns: the first left-aligned, the others right-aligned."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *rest in table:
        cells = [first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)

"""Amounts as people and scripts read them: Quantity texts by resource name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.engine.quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def quantity_text(name: str, amount: int) -> str:
    """Write an amount of a resource; bytes take Gi or G, whichever is the shorter."""
    text = format_quantity(amount)
    if any(word in name for word in ("memory", "storage", "hugepages-")):
        return min(format_quantity(amount, binary=True), text, key=len)
    return text


def quantity_texts(amounts: Mapping[str, int]) -> dict[str, str]:
    """Write every amount."""
    return {name: quantity_text(name, amount) for name, amount in amounts.items()}


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """Lay rows out in columns: the first to the left, numbers to the right."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *rest in table:
        cells = [first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)

"""Format amounts for people and scripts: quantity strings by resource name, durations, and columns."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from backoff_ctrl.engine.quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime


def quantity_text(name: str, amount: int) -> str:
    """Return an amount (nano-units) as a quantity string; for bytes the shorter of the forms ``Gi`` and ``G``."""
    text = format_quantity(amount)
    if any(word in name for word in ("memory", "storage", "hugepages-")):
        return min(format_quantity(amount, binary=True), text, key=len)
    return text


def quantity_texts(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return all amounts as quantity strings."""
    return {name: quantity_text(name, amount) for name, amount in amounts.items()}


def ago(seconds: float) -> str:
    """Return a duration in the past, such as ``5m ago``."""
    return f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """Return a duration as kubectl writes ages: two units if one would be too coarse."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    if left < 3 * 3600:
        minutes, rest = divmod(left, 60)
        return f"{minutes}m{rest}s" if minutes < 10 and rest else f"{minutes}m"
    if left < 48 * 3600:
        return f"{left // 3600}h"
    return f"{left // 86400}d"


def clock(at: datetime) -> str:
    """Return the time of day, in UTC as everywhere else: who looks need not know where it was written."""
    return f"{at.astimezone(UTC):%H:%M:%S}Z"


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows in columns: the first left-aligned, the others right-aligned."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *rest in table:
        cells = [first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(rest, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)

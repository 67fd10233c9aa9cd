"""Format amounts for people and scripts: quantity strings by resource name, durations, and columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.quantities import NANO, format_quantity, parse_quantity

EMPTY: Final = frozenset({"", "-"})
"""Cells that say nothing: a column of these alone is left out of a table."""

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from fractions import Fraction

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def quantity_text(name: str, amount: int) -> str:
    """Return an amount (nano-units) as a quantity string; for bytes the shorter of the forms ``Gi`` and ``G``."""
    text = format_quantity(amount)
    if any(word in name for word in ("memory", "storage", "hugepages-")):
        return min(format_quantity(amount, binary=True), text, key=len)
    return text


def quantity_texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity_text(name, amount) for name, amount in amounts.items()}


def rounded(amount: int | str, resource: str, limit: int | str | None = None) -> str:
    """Write an amount (nano-units, or a Quantity) with one decimal, or a few if it is small.

    It is rounded down, so that nothing looks full that is not. It has the unit of its ``limit``, so that both can be
    compared; only the smallest amounts of cores are milli-cores. Text that is not a Quantity stays as it is.
    """
    try:
        given = parse_quantity(amount) if isinstance(amount, str) else amount
        whole_of = parse_quantity(limit) if isinstance(limit, str) else limit or 0
    except QuantityError:
        return str(amount)
    size, unit = _unit(max(abs(given), abs(whole_of)), resource)
    exact = format_quantity(given, binary=_is_bytes(resource))
    thousandths = abs(given) * 1000 // size
    if not thousandths or (size == NANO and abs(given) < NANO and given * 1000 % NANO):
        return exact  # rounding would hide it
    if thousandths >= 100_000:
        digits = 0
    elif thousandths >= 10_000 or (limit is None and thousandths >= 1000):
        digits = 1
    else:
        digits = 2 if unit else 3
    whole, rest = divmod(thousandths // 10 ** (3 - digits), 10**digits)
    behind = f"{rest:0{digits}}".rstrip("0") if digits and rest else ""
    return f"{'-' if given < 0 else ''}{whole:,}{'.' if behind else ''}{behind}{unit}"


def percent(part: int | Fraction, whole: int | Fraction) -> str:
    """Write a share in whole percent, rounded down as amounts are; ``<1%`` if that is 0, ``-`` of nothing."""
    if not whole:
        return "-"
    found = 100 * part // whole
    return "<1%" if part > 0 and not found else f"{found}%"


def _unit(amount: int, resource: str) -> tuple[int, str]:
    """Return the unit that suits an amount, in nano-units, and its name."""
    if not amount or not _is_bytes(resource):
        return NANO, ""
    step = max(0, min((amount // NANO).bit_length() - 1, 10 * len(_BINARY) - 1) // 10)
    return NANO << 10 * step, _BINARY[step]


def _is_bytes(resource: str) -> bool:
    return "memory" in resource or "storage" in resource


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
    """Return the time of day in UTC, as everywhere: the reader need not know where it was written."""
    return f"{at.astimezone(UTC):%H:%M:%S}Z"


def aligned(rows: Iterable[Sequence[str]], right: Collection[int] | None = None) -> str:
    """Lay out rows in columns; those with the numbers ``right`` are right-aligned, by default all but the first."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rights = range(1, len(widths)) if right is None else right
    lines = []
    for row in table:
        cells = enumerate(zip(row, widths, strict=True))
        lines.append("  ".join(cell.rjust(w) if n in rights else cell.ljust(w) for n, (cell, w) in cells).rstrip())
    return "\n".join(lines)

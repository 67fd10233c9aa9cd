"""Amounts and times as the page shows them: short enough to be read at a glance. The API has the exact ones."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from backoff_ctrl.api.commands.amounts import span
from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import NANO, parse_quantity
from backoff_ctrl.k8s.status.documents.items import quantity

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def rounded(amount: int | str, resource: str, limit: int | str | None = None) -> str:
    """Write an amount (nano-units, or a Quantity) with a digit behind the point, or a few where it is small.

    It is rounded down: what is not full never looks full. It has the unit of its ``limit``, so that both can be
    compared; cores are never milli-cores, but for the smallest. A text that is no Quantity stays as it is.
    """
    try:
        given = parse_quantity(amount) if isinstance(amount, str) else amount
        whole_of = parse_quantity(limit) if isinstance(limit, str) else limit or 0
    except QuantityError:
        return str(amount)
    size, unit = _unit(max(abs(given), abs(whole_of)), resource)
    exact = quantity(given, resource)
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


def _unit(amount: int, resource: str) -> tuple[int, str]:
    """Return the unit that suits an amount, in nano-units, and its name."""
    if not amount or not ("memory" in resource or "storage" in resource):
        return NANO, ""
    step = max(0, min((amount // NANO).bit_length() - 1, 10 * len(_BINARY) - 1) // 10)
    return NANO << 10 * step, _BINARY[step]


def percent(share: float) -> str:
    """Write a share of 1."""
    return f"{share * 100:.0f}%"


def ago(text: str | None, now: datetime) -> str:
    """Return how long ago a time of the API was; a time to come counts from now."""
    if not text:
        return ""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return ""
    return span(abs((now - at).total_seconds()))


def until(text: str | None, now: datetime, word: str = "in") -> str:
    """Return when something is likely, from now on: ``in`` a time, or ``within`` one."""
    if not text:
        return ""
    try:
        left = (datetime.fromisoformat(text) - now).total_seconds()
    except ValueError:
        return ""
    return "likely any moment" if left < 1 else f"likely {word} {span(left)}"

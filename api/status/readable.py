"""Amounts and times as the page shows them: short enough to be read at a glance. The API has the exact ones."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from backoff_ctrl.api.commands.amounts import span
from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import NANO, parse_quantity
from backoff_ctrl.k8s.status.documents.items import quantity

SHORT: Final = 5
"""Characters of an exact amount that needs no rounding."""
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def rounded(amount: int | str, resource: str) -> str:
    """Write an amount (nano-units, or a Quantity) with a digit behind the point at most.

    It is rounded down: what is not full never looks full. A text that is no Quantity stays as it is.
    """
    if isinstance(amount, str):
        try:
            return rounded(parse_quantity(amount), resource)
        except QuantityError:
            return amount
    exact = quantity(amount, resource)
    if len(exact) <= SHORT or abs(amount) < NANO:
        return exact
    size, unit = NANO, ""
    if "memory" in resource or "storage" in resource:
        step = min((abs(amount) // NANO).bit_length() - 1, 10 * len(_BINARY) - 1) // 10
        size, unit = NANO << 10 * step, _BINARY[step]
    tenths = abs(amount) * 10 // size
    whole, tenth = divmod(tenths, 10)
    digits = f"{whole:,}" if whole >= 100 or not tenth else f"{whole}.{tenth}"
    return f"{'-' if amount < 0 else ''}{digits}{unit}"


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


def until(text: str | None, now: datetime) -> str:
    """Return when something is likely, from now on."""
    if not text:
        return ""
    try:
        left = (datetime.fromisoformat(text) - now).total_seconds()
    except ValueError:
        return ""
    return "likely any moment" if left < 1 else f"likely in {span(left)}"

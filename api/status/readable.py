"""Shares and times as the page shows them: short enough to be read at a glance. The API has the exact ones."""

from __future__ import annotations

from datetime import datetime

from backoff_ctrl.api.commands.amounts import span


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

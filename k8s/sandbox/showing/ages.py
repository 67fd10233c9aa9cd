"""Ages as kubectl prints them: Kubernetes' ``duration.HumanDuration``."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def _two(seconds: int, large: int, one: str, small: int, other: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{one}{rest}{other}" if rest else f"{seconds // large}{one}"


_SPANS: tuple[tuple[int, Callable[[int], str]], ...] = (
    (2 * _MINUTE, lambda s: f"{s}s"),
    (10 * _MINUTE, lambda s: _two(s, _MINUTE, "m", 1, "s")),
    (3 * _HOUR, lambda s: f"{s // _MINUTE}m"),
    (8 * _HOUR, lambda s: _two(s, _HOUR, "h", _MINUTE, "m")),
    (2 * _DAY, lambda s: f"{s // _HOUR}h"),
    (8 * _DAY, lambda s: _two(s, _DAY, "d", _HOUR, "h")),
    (2 * _YEAR, lambda s: f"{s // _DAY}d"),
    (8 * _YEAR, lambda s: _two(s, _YEAR, "y", _DAY, "d")),
)


def duration(seconds: float) -> str:
    """A duration in seconds as text; a negative one counts as zero, because clocks differ."""
    whole = max(0, int(seconds))
    for bound, tell in _SPANS:
        if whole < bound:
            return tell(whole)
    return f"{whole // _YEAR}y"


def age(since: str | None, now: float) -> str:
    """The time between a timestamp and ``now`` (Unix seconds); ``<unknown>`` without a timestamp."""
    return duration(now - datetime.fromisoformat(since).timestamp()) if since else "<unknown>"


def age_now(since: str | None) -> str:
    """The time since a timestamp."""
    return age(since, time.time())


def between(since: str, until: str) -> str:
    """The time between two timestamps."""
    return duration(datetime.fromisoformat(until).timestamp() - datetime.fromisoformat(since).timestamp())

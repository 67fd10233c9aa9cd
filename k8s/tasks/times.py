"""Times as tasks keep them: RFC 3339 in UTC, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime


def shown(unix: float) -> str:
    """Write a Unix time."""
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix(text: str) -> float:
    """Read a time; 0 for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0

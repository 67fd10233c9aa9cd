"""Plain scalars of YAML, and what Kubernetes reads of each: go-yaml v2 follows YAML 1.1, but not as PyYAML does."""

from __future__ import annotations

from typing import Any, Final

SCALARS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
    **{word: word for word in ("yEs", "oN", "ny", "yy", "t", "f", "'y'", '"n"', "!!str y", "web-y", "y z")},
    "~": None,
    "1E3": 1000,
    "089": 89,
    "0o17": 15,
    "5.": 5,
    "+.5": 0.5,
    "._5": "._5",
    "2026-13-45": "2026-13-45",
    "2026-02-30 10:00:00": "2026-02-30 10:00:00",
    "1e3": 1000,
    "1.5e2": 150,
    "08": 8,
    "017": 15,
    "0x1F": 31,
    "1_000": 1000,
    "1.5": 1.5,
    "1:30": "1:30",
    "1:30:00.5": "1:30:00.5",
    "2026-01-01": "2026-01-01",
    "2026-01-01T00:00:00Z": "2026-01-01T00:00:00Z",
    "=": "=",
    "1Gi": "1Gi",
}
KEYS: Final = {"y": "true", "N": "false", "on": "true", "'y'": "y", "1": "1", "yy": "yy", "2026-01-01": "2026-01-01"}


def text_of(scalar: str) -> Any:
    """Return what a scalar is, where its quotes and tag are no part of it."""
    value = SCALARS[scalar]
    return value.removeprefix("!!str ").strip("'\"") if isinstance(value, str) else value

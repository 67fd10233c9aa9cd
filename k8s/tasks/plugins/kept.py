"""Which JSON is kept of a task: its outputs, the facts of its plugin, and its signal. Pure.

The status of a Task has to pass through every reader and writer of JSON: Go's 64-bit numbers, Python's recursion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

OUTPUTS_MAX: Final = 16 * 1024
"""Bytes of outputs as JSON."""
LEVELS_MAX: Final = 50
"""Levels of objects and lists in one another, in what is kept and in the spec of a task."""
_INT64: Final = range(-(2**63), 2**63)


def flaw_of_kept(value: Any, most: int | None = OUTPUTS_MAX) -> str:
    """Return why a value can't be kept; empty: it can. ``most``: bytes that it may have as JSON; None: any number."""
    left = [(value, 0)]
    while left:
        each, level = left.pop()
        inner = each.values() if isinstance(each, Mapping) else each if isinstance(each, list | tuple) else None
        if inner is not None:
            if level == LEVELS_MAX:
                return f"more than {LEVELS_MAX} levels in one another"
            left += [(one, level + 1) for one in inner]
        elif isinstance(each, int) and not isinstance(each, bool) and each not in _INT64:
            return "a whole number of more than 64 bits"
        elif isinstance(each, float) and not isfinite(each):
            return f"the number {each}, which can't be stored as JSON"
    try:
        size = len(json.dumps(_plain(value), allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError) as wrong:
        return f"can't be stored as JSON: {wrong}"
    return f"{size} bytes as JSON, more than {most}" if most is not None and size > most else ""


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value

"""What something costs: how many lines of Python run for it, and how many objects something keeps alive."""

from __future__ import annotations

import gc
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def lines_of(act: Callable[[], object]) -> int:
    """Count the lines that something takes, in all that it calls."""
    lines = 0

    def count(_: FrameType, event: str, __: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(before)
    return lines


def kept_by(thing: object) -> int:
    """Count the objects that are alive because of this one, but for code."""
    found: dict[int, object] = {}
    left = [thing]
    while left:
        each = left.pop()
        if id(each) not in found and not isinstance(each, type | ModuleType | FunctionType):
            found[id(each)] = each
            # The collector does not look into dictionaries and tuples of strings and numbers alone.
            inside = (*each, *each.values()) if isinstance(each, dict) else each if isinstance(each, tuple) else ()
            left += inside or gc.get_referents(each)
    return len(found)

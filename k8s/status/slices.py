"""Long work in slices: whoever decides gets the interpreter in between.

A thread of Python keeps the interpreter for 5 ms when another wants it. So a thread that only looks gives it away by
itself after every half a millisecond: it sleeps, for as short as possible.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SLICE: Final = 0.0004
"""Seconds of work at a time."""
REST: Final = 0.00005
"""Seconds of sleep. A sleep of 0 gives the interpreter away too, but often gets it back before anybody else wakes."""

T = TypeVar("T")


def sliced(items: Iterable[T], *, clock: Callable[[], float] = time.perf_counter) -> Iterator[T]:
    """Yield the items, and rest whenever a slice of time is over."""
    end = clock() + SLICE
    for item in items:
        yield item
        if clock() >= end:
            time.sleep(REST)
            end = clock() + SLICE

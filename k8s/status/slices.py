"""Long work in slices, so that the threads that decide get the interpreter in between.

A Python thread keeps the interpreter for up to 5 ms when another one wants it. So a thread that only reads yields it
after every half a millisecond: it sleeps as briefly as possible.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SLICE: Final = 0.0004
"""Seconds of work at a time."""
REST: Final = 0.00005
"""Seconds of sleep. A sleep of 0 yields the interpreter too, but often gets it back before another thread wakes."""

T = TypeVar("T")


def sliced(items: Iterable[T], *, clock: Callable[[], float] = time.perf_counter) -> Iterator[T]:
    """Yield the items, and rest whenever a slice of time is over."""
    end = clock() + SLICE
    for item in items:
        yield item
        if clock() >= end:
            time.sleep(REST)
            end = clock() + SLICE

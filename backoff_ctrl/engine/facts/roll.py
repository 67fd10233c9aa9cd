"""A roll: things sorted by a key, for those who look. How many are before one, and which follow it.

It is a list of sorted parts, so that an entry is found by bisection and a change moves a few hundred entries at most.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

from .requests import Request

Place: TypeAlias = tuple[float, int]
"""Orders the line: a request's rank, and its number among equal ranks. No two requests of a line have the same."""

PART: Final = 512  # entries: a part with twice as many is split
SMALL: Final = PART // 8  # two neighbours that are smaller become one

place_of: Final[Callable[[Request], Place]] = attrgetter("rank", "seq")
"""Returns the place of a request that waits or has waited."""


def is_behind(request: Request, other: Request) -> bool:
    """Say whether a request comes after another in line."""
    return request.rank > other.rank or (request.rank == other.rank and request.seq > other.seq)


Thing = TypeVar("Thing")


class Roll(Generic[Thing]):
    """Things sorted by a key that no two share and that does not change. Each call takes O(log n + n / PART) steps."""

    __slots__ = ("_ends", "_key", "_parts")

    def __init__(self, key: Callable[[Thing], Any]) -> None:
        """``key`` returns what a thing is sorted by."""
        self._key = key
        self._parts: list[list[Thing]] = []
        self._ends: list[Any] = []  # of each part: keys of it are not greater, those of the next part not less

    def extend(self, things: list[Thing]) -> None:
        """Add at most ``PART`` things in order, which as a rule come last. May keep the list."""
        if not self._ends or self._ends[-1] < self._key(things[0]):
            last = self._key(things[-1])
            if self._parts and len(self._parts[-1]) + len(things) <= PART:
                self._parts[-1] += things
                self._ends[-1] = last
            else:
                self._parts.append(things)
                self._ends.append(last)
        else:
            for thing in things:
                self.add(thing)

    def add(self, thing: Thing) -> None:
        key = self._key(thing)
        at = min(bisect_left(self._ends, key), len(self._ends) - 1)
        if at < 0:
            self._parts.append([thing])
            self._ends.append(key)
            return
        part = self._parts[at]
        insort(part, thing, key=self._key)
        self._ends[at] = max(self._ends[at], key)
        if len(part) > 2 * PART:
            self._parts.insert(at + 1, part[PART:])
            self._ends.insert(at, self._key(part[PART - 1]))
            del part[PART:]

    def remove(self, thing: Thing) -> None:
        key = self._key(thing)
        at = bisect_left(self._ends, key)
        part = self._parts[at]
        if part[0] is thing:
            del part[0]
        else:
            del part[bisect_left(part, key, key=self._key)]
        if not part:
            del self._parts[at], self._ends[at]
        elif len(part) < SMALL:
            if at and len(self._parts[at - 1]) < SMALL:
                self._join(at - 1)
            elif at + 1 < len(self._parts) and len(self._parts[at + 1]) < SMALL:
                self._join(at)

    def _join(self, at: int) -> None:
        self._parts[at] += self._parts.pop(at + 1)
        del self._ends[at]

    def before(self, key: Any) -> int:
        """Count the things with a smaller key."""
        at = bisect_left(self._ends, key)
        count = sum(map(len, islice(self._parts, at)))
        return count + bisect_left(self._parts[at], key, key=self._key) if at < len(self._parts) else count

    def after(self, key: Any, limit: int) -> list[Thing]:
        """Return up to ``limit`` things with greater keys, in order; None: from the first on."""
        found: list[Thing] = []
        at = 0 if key is None else bisect_right(self._ends, key)
        for part in islice(self._parts, at, None):
            start = 0 if key is None or found else bisect_right(part, key, key=self._key)
            found += part[start : start + limit - len(found)]
            if len(found) >= limit:
                break
        return found

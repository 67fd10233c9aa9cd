"""How long one request may be held: what its caller's time-out leaves, and what earlier requests of its call used."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

CALLS_MAX: Final = 10_000
"""Calls whose holds are remembered; beyond, those answered first are forgotten."""
MARGIN: Final = 2.0
"""Seconds of the caller's own time-out that are left for the create itself, at most half of it."""
_TIMEOUT: Final = re.compile(rb"[?&]timeout=([^&]*)")
_DURATION: Final = re.compile(rb"(?:\d+(?:\.\d*)?|\.\d+)(?:h|ms|m|s|us|ns)")
_UNITS: Final = {b"h": 3600.0, b"m": 60.0, b"s": 1.0, b"ms": 1e-3, b"us": 1e-6, b"ns": 1e-9}


def patience_of(target: bytes, hold: float) -> float:
    """Return the seconds that a request may be held: ``hold``, or less where its ``timeout`` says so."""
    found = _TIMEOUT.search(target)
    timeout = None if found is None else _seconds(found[1])
    return hold if timeout is None else min(hold, timeout - min(MARGIN, timeout / 2))


def _seconds(duration: bytes) -> float | None:
    """Read a duration as Go writes it (``1m30s``); None: it is none, or it means that there is no limit."""
    parts = _DURATION.findall(duration)
    if not parts or b"".join(parts) != duration:
        return None
    total = 0.0
    for part in parts:
        number = part.rstrip(b"hmsun")
        total += float(number) * _UNITS[part[len(number) :]]
    return total or None


class HeldBefore:
    """How long requests were held that belong to one call: a client repeats what is answered with ``Retry-After``.

    The same keeps, in another one, when a call was first noticed.
    """

    def __init__(self, ttl: float) -> None:
        """``ttl``: seconds within which a caller comes again."""
        self._ttl = ttl
        self._calls: dict[Hashable, deque[tuple[float, float]]] = {}
        self._size = 0
        self._ends: deque[tuple[float, Hashable]] = deque()

    def put_off(self, call: Hashable, held: float, now: float) -> None:
        """Note that a request was told to come again after its call was held so long in all."""
        self._expire(now)
        self._calls.setdefault(call, deque()).append((now + self._ttl, held))
        self._ends.append((now + self._ttl, call))
        self._size += 1
        while self._size > CALLS_MAX:
            self._drop(self._ends.popleft()[1])

    def take(self, call: Hashable, now: float) -> float:
        """Return how long the call was held before; 0: it is a new one. Of equal calls, that put off first comes."""
        self._expire(now)
        return self._drop(call)

    def _drop(self, call: Hashable) -> float:
        held = self._calls.get(call)
        if not held:
            return 0.0
        found = held.popleft()[1]
        self._size -= 1
        if not held:
            del self._calls[call]
        return found

    def _expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, call = self._ends.popleft()
            held = self._calls.get(call)
            if held and held[0][0] <= now:
                self._drop(call)

"""How long one request may be held, by what its caller's ``timeout`` says; and which calls were noticed before."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.creates.calls import read_query

if TYPE_CHECKING:
    from collections.abc import Hashable

CALLS_MAX: Final = 10_000
"""Calls that are remembered as noticed; beyond, those answered first are forgotten."""
MARGIN: Final = 2.0
"""Seconds of the caller's own time-out that are left for the create itself, at most half of it."""
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:h|ms|m|s|us|ns)")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def patience_of(target: bytes, hold: float) -> float:
    """Return the seconds that a request may be held: ``hold``, or less where its ``timeout`` says so."""
    query = target.partition(b"?")[2].decode("latin-1")
    found = next((value for name, value in read_query(query) if name == "timeout"), "")
    timeout = _seconds(found)
    return hold if timeout is None else min(hold, timeout - min(MARGIN, timeout / 2))


def _seconds(duration: str) -> float | None:
    """Read a duration as Go writes it (``1m30s``); None: it is none, or it means that there is no limit."""
    parts = _DURATION.findall(duration)
    if not parts or "".join(parts) != duration:
        return None
    total = 0.0
    for part in parts:
        number = part.rstrip("hmsun")
        total += float(number) * _UNITS[part[len(number) :]]
    return total or None


class Noticed:
    """When calls were first noticed whose callers may come again: one log line says that they wait, not one a request.

    ``ttl``: seconds within which a caller comes again.
    """

    def __init__(self, ttl: float) -> None:
        """Know of none yet."""
        self._ttl = ttl
        self._calls: dict[Hashable, deque[tuple[float, float]]] = {}
        self._size = 0
        self._ends: deque[tuple[float, Hashable]] = deque()

    def keep(self, call: Hashable, since: float, now: float) -> None:
        """Note when a call was noticed whose request has ended."""
        self._expire(now)
        self._calls.setdefault(call, deque()).append((now + self._ttl, since))
        self._ends.append((now + self._ttl, call))
        self._size += 1
        while self._size > CALLS_MAX:
            self._drop(self._ends.popleft()[1])

    def take(self, call: Hashable, now: float) -> float | None:
        """Return when the call was noticed; None: it is a new one. Of equal calls, that kept first comes."""
        self._expire(now)
        return self._drop(call)

    def _drop(self, call: Hashable) -> float | None:
        noticed = self._calls.get(call)
        if not noticed:
            return None
        found = noticed.popleft()[1]
        self._size -= 1
        if not noticed:
            del self._calls[call]
        return found

    def _expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, call = self._ends.popleft()
            noticed = self._calls.get(call)
            if noticed and noticed[0][0] <= now:
                self._drop(call)

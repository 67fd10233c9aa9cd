"""Empty seats: the places of callers that went away without being admitted, kept for a while in case they come again.

A caller with a time-out shorter than the wait would else start at the end of the line each time, and never get in. A
seat is no waiting request: it is never admitted, takes no room, is overtaken by nobody, and ends by itself.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from .requests import Request


class Identity(NamedTuple):
    """By what a caller is recognised when it comes again: who asks, and for what. Both are opaque."""

    who: Hashable
    what: Hashable


@dataclass(slots=True, eq=False)
class Seat:
    """A place in line whose request was withdrawn: since when, how often overtaken, until when it is kept."""

    identity: Identity
    shape: str  # the key of its demand
    joined: float
    seq: int
    overtaken: int
    overtaken_since: float
    until: float
    empty: bool = True

    @classmethod
    def of(cls, request: Request, identity: Identity, until: float) -> Seat:
        since = request.overtaken_since if request.overtaken else request.joined
        shape, joined, seq = request.demand.key, request.joined, request.seq
        return cls(identity, shape, joined, seq, request.overtaken, since, until)

    def give(self, request: Request, age_step: float) -> None:
        request.joined = self.joined
        request.rank = self.joined - request.priority * age_step
        request.seq = self.seq
        request.overtaken = self.overtaken
        request.overtaken_since = self.overtaken_since


_AGE: Final = attrgetter("joined", "seq")


class Seats:
    """The empty seats of one namespace: at most ``most``; of more, those that end first are given up."""

    __slots__ = ("_by_identity", "_by_shape", "_count", "_ends", "_most", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._by_identity: dict[Hashable, list[Seat]] = {}  # the oldest first
        self._by_shape: dict[Hashable, list[Seat]] = {}  # by who asks and the demand's key
        self._ends: list[tuple[float, int, Seat]] = []  # a heap; seats that were taken are dropped later
        self._count = 0

    def __len__(self) -> int:
        return self._size

    def keep(self, seat: Seat, now: float) -> None:
        self.expire(now)
        insort(self._by_identity.setdefault(seat.identity, []), seat, key=_AGE)
        insort(self._by_shape.setdefault((seat.identity.who, seat.shape), []), seat, key=_AGE)
        self._size += 1
        self._count += 1
        heapq.heappush(self._ends, (seat.until, self._count, seat))
        while self._size > self._most:
            self._drop_first()
        if len(self._ends) > 64 + 2 * self._size:
            self._ends = [end for end in self._ends if end[2].empty]
            heapq.heapify(self._ends)

    def take(self, identity: Identity, shape: str, now: float) -> Seat | None:
        """Take the oldest seat of this identity, else the oldest that the same caller left for an equal demand."""
        self.expire(now)
        seats = self._by_identity.get(identity) or self._by_shape.get((identity.who, shape))
        if not seats:
            return None
        seat = seats[0]
        self._remove(seat)
        return seat

    def expire(self, now: float) -> None:
        """Give up the seats whose time is over."""
        while self._ends and self._ends[0][0] <= now:
            self._drop_first()

    def _drop_first(self) -> None:
        seat = heapq.heappop(self._ends)[2]
        if seat.empty:
            self._remove(seat)

    def _remove(self, seat: Seat) -> None:
        seat.empty = False
        self._size -= 1
        _remove_from(self._by_identity, seat.identity, seat)
        _remove_from(self._by_shape, (seat.identity.who, seat.shape), seat)


def _remove_from(lists: dict[Hashable, list[Seat]], key: Hashable, seat: Seat) -> None:
    """Remove a seat from the list at this key, and the list with its last one."""
    seats = lists[key]
    del seats[bisect_left(seats, _AGE(seat), key=_AGE)]
    if not seats:
        del lists[key]

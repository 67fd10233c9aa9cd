"""Places of callers that went away without being admitted, kept for a while in case they come again.

A caller with a time-out shorter than the wait would else start at the end of the line each time, and never get in.
There are two kinds. A caller that hung up leaves an *empty seat*: no waiting request, but the right to a place. It is
never admitted, takes no room, is overtaken by no request, and ends by itself. A caller that was asked to come again
after some seconds leaves its request in line, *away*: it counts as waiting and is not sent. Until its caller is due
back, and for as long as callers usually take, it holds the room that it would be given, once; then others go first.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Final

from backoff_ctrl.engine.facts.ceilings import Ceiling, Charges
from backoff_ctrl.engine.facts.requests import Identity, Request
from backoff_ctrl.engine.facts.roll import Place, place_of
from backoff_ctrl.engine.policy import Policy

from .order import Line

LATE_MAX: Final = 1.0
"""Seconds after a caller is due back for which room is held for it at the most; so, too, while little is learned."""
LATENESSES: Final = 100
"""Callers that came back lately: the slowest of these is their 99th percentile."""
LOOKED_AT: Final = 64
"""Seats of a caller that are looked at for one create."""
_FEW: Final = 8


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
    request: Request | None = None  # that still stands in line there: its caller is away
    due_until: float = 0.0  # until then its caller is due back, and no other of its creates takes it

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
        """Take the oldest seat of this identity, else the oldest that the same caller left for an equal demand.

        Not one whose own create is due back: the caller has several, and each has its place.
        """
        self.expire(now)
        seats = self._by_identity.get(identity)
        if seats is None:
            equal = islice(self._by_shape.get((identity.who, shape), ()), LOOKED_AT)
            seat = next((each for each in equal if each.due_until <= now), None)
        else:
            seat = seats[0]
        if seat is not None:
            self._remove(seat)
        return seat

    def give_up(self, seat: Seat) -> None:
        """Keep a seat no longer; no effect if it was taken, or has ended."""
        if seat.empty:
            self._remove(seat)

    def expire(self, now: float) -> None:
        """Give up the seats whose time is over."""
        while self._ends and self._ends[0][0] <= now:
            self._drop_first()

    def _drop_first(self) -> None:
        self.give_up(heapq.heappop(self._ends)[2])

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


@dataclass(slots=True, eq=False)
class Leave:
    """How one request is away: its seat, when its caller is due back, and what it holds now."""

    seat: Seat
    due: float
    held: Charges = ()

    def give_back(self) -> None:
        """Hold no room for the moment."""
        for ceiling, amount in self.held:
            ceiling.set_apart(-amount)
        self.held = ()


class Away:
    """The callers of one namespace that went away: the seats they left, and their requests that stand in line yet.

    What a request holds is worked out again in each scan of the line, when its turn comes there: all that fits, or
    nothing.
    """

    __slots__ = ("_holding", "_late", "_leaves", "_line", "_policy", "seats")

    def __init__(self, line: Line, policy: Policy) -> None:
        self._line = line
        self._policy = policy
        self.seats = Seats(policy.seats_max)
        self._leaves: dict[Request, Leave] = {}
        self._holding: dict[Leave, None] = {}  # those that hold something since the last scan, or have held it
        self._late: deque[float] = deque(maxlen=LATENESSES)  # how long after they were due callers came back

    def __contains__(self, request: Request) -> bool:
        return request in self._leaves

    def keep_seat(self, request: Request, identity: Identity, retry_after: float, now: float) -> Seat:
        """Keep the place of a request for the caller who may come again."""
        policy = self._policy
        seat = Seat.of(request, identity, now + min(policy.wait_max, max(policy.seat_ttl, 2 * retry_after)))
        self.seats.keep(seat, now)
        return seat

    def leave(self, request: Request, identity: Identity, retry_after: float, now: float) -> None:
        """Keep a waiting request in line, away: its caller was asked to come again after ``retry_after`` seconds."""
        late = LATE_MAX if len(self._late) < _FEW else min(LATE_MAX, max(self._late))
        seat = self.keep_seat(request, identity, retry_after, now)
        seat.request, seat.due_until = request, now + retry_after + late
        self._leaves[request] = Leave(seat, now + retry_after)
        self._line.requeue(request, self.row_of(request))

    def come_back(self, request: Request, now: float) -> bool:
        """Let a request wait like any other again, and learn how long callers take; False: it was not away."""
        if request not in self._leaves:
            return False
        self._late.append(max(0.0, now - self._leaves[request].due))
        self.end(request)
        self._line.requeue(request)
        return True

    def end(self, request: Request, *, refused: bool = False) -> None:
        """Note that a request is away no longer, or is over: one that is ``refused`` leaves an empty seat.

        No effect on others.
        """
        leave = self._leaves.pop(request, None)
        if leave is not None:
            leave.give_back()
            if not refused:
                self.seats.give_up(leave.seat)

    def row_of(self, request: Request) -> str:
        """Name the row of its own in which a request that is away stands: only heads of rows are looked at."""
        return f"away {request.seq}" if request in self._leaves else ""

    def empty_seats(self, now: float) -> int:
        """Count the places that are kept for callers that went away."""
        self.seats.expire(now)
        return len(self.seats)

    def begin_scan(self) -> None:
        """Release all held room: each request is asked again when its turn comes."""
        for leave in self._holding:
            leave.give_back()
        self._holding.clear()

    def recount(self) -> None:
        """Note that what is set apart is counted afresh; no room is held before the next scan."""
        for leave in self._holding:
            leave.held = ()
        self._holding.clear()

    def take_turn(
        self, request: Request, meets: Charges, kept: dict[Ceiling, Place], now: float, *, probes: bool
    ) -> float | None:
        """Hold the room that this request would be given now; return until when, or None if it holds room no more.

        ``probes``: where it lacks room, those behind could test for it. ``kept`` then keeps them from it.
        """
        leave = self._leaves[request]
        leave.give_back()  # a window's turn may have begun this scan in the midst of the line
        if now >= leave.seat.due_until:
            return None
        lacking = [ceiling for ceiling, amount in meets if amount > ceiling.room]
        if not lacking:
            leave.held = meets
            self._holding[leave] = None
            for ceiling, amount in meets:
                ceiling.set_apart(amount)
        elif probes:
            for ceiling in lacking:
                kept.setdefault(ceiling, place_of(request))
        return leave.seat.due_until

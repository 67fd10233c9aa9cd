"""Keeping room for requests that were overtaken long enough: only in the ceilings that block them, and not for ever.

Long enough is both ``overtakes_max`` times and ``overtaken_for_max``, and at the latest ``overtaken_at_most`` after the
first that passed.

Keeping pauses while the kept room has not grown for ``keep_stalled``, or for five mean times between releases if that
is longer: then others take the room, or ``used`` sticks, and idle room helps no one. For a waiter that is owed room by
``overtaken_at_most`` it pauses only if ``used`` sticks: one of our creates that is charged there has ended, and it has
not fallen for as long before and after.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.facts.ceilings import Ceiling
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.roll import Place, place_of
from backoff_ctrl.engine.facts.shapes import Row, Shape
from backoff_ctrl.engine.gangs.gang import Gang
from backoff_ctrl.engine.policy import Policy

from .order import Line

_GAP_WEIGHT: Final = 0.2  # of the newest time between two releases, in their mean
_GAPS: Final = 5
_PAUSED_FOR: Final = 10  # after so many stalled spans without growth, keeping is tried again


class Kept:
    """How far the room of one ceiling has grown since it was first kept for a place in line, with any request in it.

    ``fell`` is when its ``used`` last fell, ``ended`` when first afterwards something ended that is charged there.
    """

    __slots__ = ("best", "ended", "fell", "grown", "place")

    def __init__(self, place: Place, room: int, now: float) -> None:
        self.place = place
        self.best = room
        self.grown = self.fell = now
        self.ended = FOREVER


class Keeping:
    """Who is next for each ceiling of one namespace, how often it was overtaken, and what is kept for it.

    A waiting request is *next* for a ceiling if it is the first in line that is blocked there. It is *overtaken* when
    a request behind it takes room there. ``kept`` maps a ceiling to a place in line: those behind it get no room.
    """

    __slots__ = (
        "_growth", "_line", "_policy", "kept", "last_release", "next_change", "next_for", "overtakings", "release_gap",
    )  # fmt: skip

    def __init__(self, policy: Policy, line: Line) -> None:
        self._policy = policy
        self._line = line
        self.next_for: dict[Ceiling, Request] = {}
        self.kept: dict[Ceiling, tuple[float, int]] = {}
        self._growth: dict[Ceiling, Kept] = {}
        self.next_change = FOREVER  # when time alone makes a request overdue, or pauses or resumes keeping
        self.release_gap = 0.0
        self.overtakings = 0
        self.last_release: float | None = None

    def closes(self, shape: Shape, request: Request) -> bool:
        """Say whether room that this request would take is kept for one ahead of it."""
        place = (request.rank, request.seq)
        return any(ceiling in self.kept and self.kept[ceiling] < place for ceiling, _ in shape.meets)

    def overtook(self, shape: Shape, request: Request, now: float) -> bool:
        """Count an admission against the requests it overtook; say whether room must now be kept for one of them."""
        place = (request.rank, request.seq)
        due = False
        passed = {self.next_for[ceiling] for ceiling, _ in shape.meets if ceiling in self.next_for}
        for waiter in passed:
            if (waiter.rank, waiter.seq) < place:
                if not waiter.overtaken:
                    waiter.overtaken_since = now
                    self._line.ask_for(waiter)
                waiter.overtaken += 1
                self.overtakings += 1
                due = due or waiter.overtaken == self._policy.overtakes_max
        return due

    def begin(self) -> None:
        self.next_change = FOREVER
        self.next_for = {}
        self.kept = {}

    def retain(self, ceilings: Container[Ceiling]) -> None:
        """Forget all ceilings but these: the others no longer exist."""
        self._growth = {ceiling: kept for ceiling, kept in self._growth.items() if ceiling in ceilings}

    def note_blocked(self, row: Row, now: float) -> None:
        """Note where the blocked head of a row is next; if it was overtaken too much, keep room where it is blocked."""
        head = row.waiting[0]
        policy = self._policy
        if row.shape.never is not None or head.has_own_room:
            return
        next_for = self.next_for
        for ceiling, amount in row.shape.meets:
            if amount > ceiling.room and ceiling not in next_for:
                next_for[ceiling] = head
        if not head.overtaken and policy.overtakes_max:
            return
        since, owed_at = head.joined, FOREVER
        if head.overtaken:
            since = head.overtaken_since
            owed_at = since + policy.overtaken_at_most
        overdue_at = owed_at
        if head.overtaken >= policy.overtakes_max:
            overdue_at = min(owed_at, since + policy.overtaken_for_max)
        if now < owed_at:
            self.next_change = min(self.next_change, overdue_at if now < overdue_at else owed_at)
            if now < overdue_at:
                return
        place, owed = place_of(head), now >= owed_at
        for ceiling, amount in row.shape.meets:
            lacks = amount > ceiling.room and ceiling not in self.kept
            if lacks and self._is_on(place, ceiling, ceiling.room, now, owed=owed):
                self.kept[ceiling] = (head.rank, head.seq)

    def keeps_for_gang(self, gang: Gang, ceiling: Ceiling, now: float) -> bool:
        """Keep what an admitted gang lacks here, at its place; say whether it may take the room there is.

        A gang that is partly drawn holds quota without computing: for it, keeping never pauses. Nor for one
        that keeps its room.
        """
        kept = self.kept.get(ceiling)
        if kept is not None and kept < gang.place:
            return False
        if gang.drawn or gang.keeps or self._is_on(gang.place, ceiling, ceiling.room + gang.covered[ceiling], now):
            self.kept[ceiling] = gang.place
            return True
        return False

    def note_release(self, now: float, ceilings: Iterable[Ceiling] = ()) -> None:
        """Learn the mean time between releases; ``used`` of these ceilings fell."""
        for ceiling in ceilings:
            kept = self._growth.get(ceiling)
            if kept is not None:
                kept.fell, kept.ended = now, FOREVER
        if self.last_release is not None:
            gap = now - self.last_release
            self.release_gap += (gap - self.release_gap) * (_GAP_WEIGHT if self.release_gap else 1.0)
        self.last_release = now

    def note_end(self, charged: Iterable[tuple[Ceiling, int]], now: float) -> bool:
        """Note the end of a create that is charged this: ``used`` has to fall; say whether room is kept there."""
        noted = False
        for ceiling, _ in charged:
            kept = self._growth.get(ceiling)
            if kept is not None and kept.ended == FOREVER and now >= kept.fell + self._stalled():
                kept.ended = now
                noted = True
        return noted

    def _stalled(self) -> float:
        return max(self._policy.keep_stalled, _GAPS * self.release_gap)

    def _is_on(self, place: Place, ceiling: Ceiling, room: int, now: float, *, owed: bool = False) -> bool:
        """Say whether keeping is on here.

        It pauses while the kept room does not grow; for a waiter that is ``owed`` room, while ``used`` sticks.
        """
        stalled = self._stalled()
        again = _PAUSED_FOR * stalled
        kept = self._growth.get(ceiling)
        if kept is None or kept.place != place:
            kept = self._growth[ceiling] = Kept(place, room, now)
        elif room > kept.best or now >= kept.grown + again:
            if room > kept.best:
                kept.fell, kept.ended = now, FOREVER
            kept.best = room
            kept.grown = now
        if now >= kept.ended + again:
            kept.fell, kept.ended = now, FOREVER
        since = kept.ended if owed else kept.grown
        paused = now >= since + stalled
        self.next_change = min(self.next_change, since + (again if paused else stalled))
        return not paused

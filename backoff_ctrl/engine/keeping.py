"""Keeping room for those who were overtaken long enough: only in the ceilings that block them, and not for ever.

Keeping pauses while the kept room has not grown for ``keep_stalled``, or five mean times between releases if that
is longer: then others take it, or ``used`` sticks, and idle room helps nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .backoff import FOREVER
from .probing import blocking

if TYPE_CHECKING:
    from .ceilings import Ceiling
    from .line import Row, Shape
    from .policy import Policy
    from .tickets import Request

_GAP_WEIGHT: Final = 0.2  # of the newest gap between releases in their mean
_GAPS: Final = 5
_PAUSED_FOR: Final = 10  # stalled spans from the last growth until keeping is tried again


class Keeping:
    """Who is next for each ceiling of one namespace, how often it was overtaken, and what is kept for it.

    A waiter is *next* for a ceiling when it is the first in line that is blocked there; it is *overtaken* when one
    behind it takes of that ceiling. ``kept`` maps a ceiling to the place behind which it is closed.
    """

    __slots__ = ("_policy", "kept", "last_release", "next_change", "next_for", "release_gap")

    def __init__(self, policy: Policy) -> None:
        """Keep nothing."""
        self._policy = policy
        self.next_for: dict[Ceiling, Request] = {}
        self.kept: dict[Ceiling, tuple[float, int]] = {}
        self.next_change = FOREVER  # when time alone makes somebody overdue, or pauses or resumes keeping
        self.release_gap = 0.0
        self.last_release: float | None = None

    def closes(self, shape: Shape, request: Request) -> bool:
        """Say whether room that this request would take is kept for somebody ahead of it."""
        place = (request.rank, request.seq)
        return any(ceiling in self.kept and self.kept[ceiling] < place for ceiling, _ in shape.meets)

    def overtook(self, shape: Shape, request: Request, now: float) -> bool:
        """Count an admission for those it overtook; say whether room must be kept for one of them from now on."""
        place = (request.rank, request.seq)
        due = False
        passed = {self.next_for[ceiling] for ceiling, _ in shape.meets if ceiling in self.next_for}
        for waiter in passed:
            if (waiter.rank, waiter.seq) < place:
                if not waiter.overtaken:
                    waiter.overtaken_since = now
                waiter.overtaken += 1
                due = due or waiter.overtaken == self._policy.overtakes_max
        return due

    def begin(self) -> None:
        """Start a look over the line from its head."""
        self.next_change = FOREVER
        self.next_for = {}
        self.kept = {}

    def weigh(self, row: Row, now: float) -> None:
        """Take in a blocked head of a row: where it is next, and close what blocks it if it was overtaken too much."""
        head = row.waiting[0]
        policy = self._policy
        if row.shape.never is not None:
            return
        next_for = self.next_for
        for ceiling, amount in row.shape.meets:
            if amount > ceiling.room and ceiling not in next_for:
                next_for[ceiling] = head
        if head.overtaken < policy.overtakes_max:
            return
        overdue_at = (head.overtaken_since if head.overtaken else head.joined) + policy.overtaken_for_max
        if now < overdue_at:
            self.next_change = min(self.next_change, overdue_at)
            return
        for ceiling in blocking(row.shape):
            if ceiling not in self.kept and self._is_on(head, ceiling, now):
                self.kept[ceiling] = (head.rank, head.seq)

    def note_release(self, now: float) -> None:
        """Learn the pace of releases."""
        if self.last_release is not None:
            gap = now - self.last_release
            self.release_gap += (gap - self.release_gap) * (_GAP_WEIGHT if self.release_gap else 1.0)
        self.last_release = now

    def _is_on(self, head: Request, ceiling: Ceiling, now: float) -> bool:
        """Say whether keeping is on here, or pauses because the kept room does not grow."""
        stalled = max(self._policy.keep_stalled, _GAPS * self.release_gap)
        room = ceiling.room
        if ceiling.keeper is not head:
            ceiling.keeper = head
            ceiling.keep_best = room
            ceiling.keep_grown = now
        elif room > ceiling.keep_best or now >= ceiling.keep_grown + _PAUSED_FOR * stalled:
            ceiling.keep_best = room
            ceiling.keep_grown = now
        pauses_at = ceiling.keep_grown + stalled
        paused = now >= pauses_at
        self.next_change = min(self.next_change, ceiling.keep_grown + _PAUSED_FOR * stalled if paused else pauses_at)
        return not paused

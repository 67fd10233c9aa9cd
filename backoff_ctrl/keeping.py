"""Keeping room for those who were overtaken long enough: only in the ceilings that block them, and not for ever.

Keeping pauses while the kept room has not grown for ``keep_stalled``, or five mean times between releases if that
is longer: then others take it, or ``used`` sticks, and idle room helps nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .probing import FOREVER, blocking

if TYPE_CHECKING:
    from .ceilings import Ceiling
    from .line import Line, Row, Shape
    from .policy import Policy
    from .tickets import Request

_GAP_WEIGHT: Final = 0.2  # of the newest gap between releases in their mean
_GAPS: Final = 5


class Keeping:
    """For whom room is kept in one namespace. ``kept`` maps a ceiling to the place behind which it is closed."""

    __slots__ = ("_behind", "_line", "_policy", "kept", "last_release", "next_change", "release_gap")

    def __init__(self, line: Line, policy: Policy) -> None:
        """Keep nothing."""
        self._line = line
        self._policy = policy
        self._behind = 0
        self.kept: dict[Ceiling, tuple[float, int]] = {}
        self.next_change = FOREVER  # when time alone makes somebody overdue, or pauses or resumes keeping
        self.release_gap = 0.0
        self.last_release: float | None = None

    def closes(self, shape: Shape, request: Request, kept: dict[Ceiling, tuple[float, int]]) -> bool:
        """Say whether room that this request would take is kept for somebody ahead of it."""
        place = (request.rank, request.seq)
        return any(ceiling in kept and kept[ceiling] < place for ceiling, _ in shape.meets)

    def overtook(self, request: Request) -> bool:
        """Record an admission; say whether the line must be looked over, since somebody is overdue by it."""
        if not self._line.order or not self._line.overtakes(request):
            return False
        return self.next_change == FOREVER or self.is_behind()

    def is_behind(self) -> bool:
        """Say whether more waiters are overtaken to the full than the last look took in."""
        return self._line.behind(self._policy.overtakes_max) > self._behind

    def begin(self, *, afresh: bool) -> dict[Ceiling, tuple[float, int]]:
        """Start a look over the line, or go on with one that was cut short."""
        self._behind = self._line.behind(self._policy.overtakes_max)
        if not afresh:
            return self.kept
        self.next_change = FOREVER
        return {}

    def weigh(self, row: Row, kept: dict[Ceiling, tuple[float, int]], now: float) -> None:
        """Close what blocks the head of a row to those behind it, if it was overtaken often or long enough."""
        head = row.waiting[0]
        policy = self._policy
        overtaken = self._line.overtaken(head)
        if row.shape.never is not None or (overtaken <= 0 and policy.overtakes_max):
            return
        overdue_at = head.joined + policy.overtaken_for_max
        if overtaken < policy.overtakes_max and now < overdue_at:
            self.next_change = min(self.next_change, overdue_at)
            return
        for ceiling in blocking(row.shape):
            if ceiling not in kept and self._is_on(ceiling, now):
                kept[ceiling] = (head.rank, head.seq)

    def finish(self, kept: dict[Ceiling, tuple[float, int]]) -> None:
        """Make a look's result hold until the next."""
        for ceiling in self.kept:
            if ceiling not in kept:
                ceiling.keep_from = None
        self.kept = kept

    def note_release(self, now: float) -> None:
        """Learn the pace of releases."""
        if self.last_release is not None:
            gap = now - self.last_release
            self.release_gap += (gap - self.release_gap) * (_GAP_WEIGHT if self.release_gap else 1.0)
        self.last_release = now

    def _is_on(self, ceiling: Ceiling, now: float) -> bool:
        """Say whether keeping is on here, or pauses because the kept room does not grow."""
        stalled = max(self._policy.keep_stalled, _GAPS * self.release_gap)
        if now < ceiling.keep_off:
            self.next_change = min(self.next_change, ceiling.keep_off)
            return False
        room = ceiling.cap - ceiling.held
        if ceiling.keep_from is None:
            ceiling.keep_from = ceiling.keep_grown = now
            ceiling.keep_best = room
        elif room > ceiling.keep_best:
            ceiling.keep_best = room
            ceiling.keep_grown = now
        elif now >= ceiling.keep_grown + stalled:
            ceiling.keep_from = None
            ceiling.keep_off = now + stalled
            self.next_change = min(self.next_change, ceiling.keep_off)
            return False
        self.next_change = min(self.next_change, ceiling.keep_grown + stalled)
        return True

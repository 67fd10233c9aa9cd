"""Room that was reported, but that the server may not see yet: its admission cache trails its own watch."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from .backoff import FOREVER
from .ceilings import Ceiling
from .outcomes import Rejected
from .quotas import Quota


class Settling:
    """The unsettled room of one namespace, ordered by the time it counts from."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        """Start without unsettled room."""
        self._heap: list[tuple[float, int, Ceiling, int, int]] = []
        self._count = 0

    def add(self, at: float, ceiling: Ceiling, room: int) -> None:
        """Let this much of a ceiling's unsettled room count from ``at`` on, unless a newer fact replaces it first."""
        self._count += 1
        heappush(self._heap, (at, self._count, ceiling, room, ceiling.epoch))

    def add_recounted(
        self, at: float, ceiling: Ceiling, room: int, young: Iterable[tuple[float, int]], lag: float
    ) -> None:
        """Do as ``add`` with room that may be there only because a recount missed creates of ours.

        ``young`` says of each such create when it was answered and what it was charged. As much of the room as that
        charge counts only ``lag`` seconds after the answer.
        """
        for answered, amount in young:
            doubted = min(room, amount)
            self.add(max(at, answered + lag), ceiling, doubted)
            room -= doubted
            if not room:
                return
        self.add(at, ceiling, room)

    def set_aside(self, quota: Quota, rejected: Rejected, at: float) -> None:
        """Count no room before ``at`` where a stale refusal shows that the server does not see it yet."""
        for name in rejected.limited:
            ceiling = quota.ceilings.get(name)
            if ceiling is not None and (room := ceiling.unsettle()):
                self.add(at, ceiling, room)

    def next_at(self) -> float:
        """Return when the next room settles; infinity if none is unsettled."""
        return self._heap[0][0] if self._heap else FOREVER

    def release(self, now: float) -> bool:
        """Let the room that is due count; say whether there was any."""
        any_room = False
        while self._heap and self._heap[0][0] <= now:
            _, _, ceiling, room, epoch = heappop(self._heap)
            if ceiling.epoch == epoch:
                ceiling.settles(room)
                any_room = True
        return any_room

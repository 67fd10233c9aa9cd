"""The waiting line of a namespace: who waits, and in which order.

A request's place is its *rank*: the time it joined less ``age_step`` per step of priority. Priority thus rises by one
for each ``age_step`` waited, and two waiting requests never change places: nothing is ever sorted again.

Waiting requests of one shape, priority and flow form a *row*, first in first out. Only the head of a row is ever
examined, so a row of a thousand equal creates costs no more than one create.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from .backoff import FOREVER

if TYPE_CHECKING:
    from .requests import Request
    from .shapes import Shape

RowKey: TypeAlias = tuple[str, int, str]  # the demand's key, priority, flow


class Row:
    """The waiting requests of one shape, priority and flow. ``place`` is the row's entry in the line's order."""

    __slots__ = ("dead", "demand", "key", "place", "shape", "waiting")

    def __init__(self, shape: Shape, key: RowKey) -> None:
        """Start empty; the line adds the first request at once."""
        self.shape = shape
        self.demand = shape.demand
        self.key = key
        self.waiting: deque[Request] = deque()
        self.dead = 0  # requests in ``waiting``, behind its head, that have left the line
        self.place: tuple[float, int, Row] | None = None


class Line:
    """The rows of a namespace, in ``order`` by the rank of their heads."""

    __slots__ = ("oldest", "order", "rows", "size")

    def __init__(self) -> None:
        """Start with no request waiting."""
        self.order: list[tuple[float, int, Row]] = []
        self.rows: dict[RowKey, Row] = {}
        self.size = 0
        self.oldest = FOREVER  # no waiting request joined before that; infinity: none waits

    def join(self, request: Request, shape: Shape) -> Row:
        """Put a request at its place and return its row: a new request goes last, a returning one where it was."""
        key = (shape.demand.key, request.priority, request.flow)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(shape, key)
        waiting = row.waiting
        request.row = row
        request.demand = row.demand  # an equal one: all waiting requests of a shape share one object
        self.size += 1
        self.oldest = min(self.oldest, request.joined)
        if not waiting or (waiting[-1].rank, waiting[-1].seq) < (request.rank, request.seq):
            waiting.append(request)
        else:
            at = next(i for i, other in enumerate(waiting) if (request.rank, request.seq) < (other.rank, other.seq))
            waiting.insert(at, request)
        if waiting[0] is request:
            self._place(row)
        return row

    def leave(self, request: Request) -> None:
        """Take a waiting request out. Behind the head of its row it is only marked, and dropped later."""
        self.size -= 1
        row = request.row
        assert isinstance(row, Row)
        request.row = None
        waiting = row.waiting
        if waiting[0] is not request:
            row.dead += 1
            if row.dead * 2 > len(waiting):  # amortised: at most half of a row is dead
                row.waiting = deque(other for other in waiting if other.row is row)
                row.dead = 0
            return
        waiting.popleft()
        while waiting and waiting[0].row is not row:
            waiting.popleft()
            row.dead -= 1
        self._place(row)

    def overdue(self, now: float, wait_max: float) -> list[Request]:
        """List the requests that have waited ``wait_max`` seconds by now; O(1) while there can be none."""
        if self.oldest + wait_max > now:
            return []
        late = []
        self.oldest = FOREVER
        for _, _, row in self.order:
            for request in row.waiting:
                if request.row is row and request.joined + wait_max > now:
                    self.oldest = min(self.oldest, request.joined)
                    break
                if request.row is row:
                    late.append(request)
        return late

    def _place(self, row: Row) -> None:
        """Order the row by its present head; drop it if it is empty."""
        if row.place is not None:
            del self.order[bisect_left(self.order, row.place)]
        if row.waiting:
            head = row.waiting[0]
            row.place = (head.rank, head.seq, row)
            insort(self.order, row.place)  # no two have a seq in common: rows are never compared
        else:
            row.place = None
            del self.rows[row.key]

    def ahead(self, request: Request) -> int:
        """Count the waiting requests ahead of this one. O(waiting requests): only for explanations."""
        mine = (request.rank, request.seq)
        return sum(
            1
            for rank, seq, row in self.order
            if (rank, seq) < mine
            for other in row.waiting
            if other.row is row and (other.rank, other.seq) < mine
        )


def rank_of(place: tuple[float, int, Row]) -> tuple[float, int]:
    """Return the part of a place that orders the line."""
    return place[0], place[1]

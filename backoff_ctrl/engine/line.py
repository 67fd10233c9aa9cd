"""The waiting line of a namespace: who waits, and in which order.

Place in line is the *rank*: the time of joining less ``age_step`` per step of priority. Priority thus rises by one
for each ``age_step`` waited, and two waiters never change places: nothing is ever sorted again.

Waiters of one shape, priority and flow form a *row*, first in first out: only the head of a row is ever looked
at. A row of a thousand equal creates costs what one costs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING

from .backoff import FOREVER
from .quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .ceilings import Ceiling, Quota
    from .demand import Demand
    from .policy import Policy
    from .tickets import Rejected, Request


class Shape:
    """Requests of one namespace with equal demand and scopes: one answer serves them all.

    ``meets`` are the ceilings that its creates are charged at, with the amounts; ``unsure`` the quotas of which
    nobody knows whether they apply. Both hold for one ``version`` of the handler's knowledge.
    """

    __slots__ = (
        "amounts", "charged_key", "demand", "meets", "never", "quotas", "rows", "scopes",
        "suspected", "suspected_next", "unsure", "used_at",
        "verdict", "version",
    )  # fmt: skip

    def __init__(self, demand: Demand) -> None:
        """Know the demand only."""
        self.demand = demand
        self.amounts: Mapping[str, int] = demand.amounts  # what the server charges, as far as known
        self.charged_key = demand.key  # the last answer's; equal answers need no second look
        self.scopes = demand.scopes  # as the server sees them: defaults may change them
        self.version = -1
        self.meets: tuple[tuple[Ceiling, int], ...] = ()
        self.quotas: tuple[tuple[Quota, tuple[tuple[Ceiling, int], ...]], ...] = ()
        self.unsure: tuple[Quota, ...] = ()
        self.rows: dict[tuple[int, str], Row] = {}
        self.never: tuple[str, str, int, int] | None = None  # quota, resource, asked, limited
        self.verdict: tuple[str, str] | None = None  # quota and resource that two refusals showed it too big for
        self.suspected: float | None = None
        self.suspected_next = 0.0
        self.used_at = 0.0

    def learn_charged(self, charged: Mapping[str, int]) -> None:
        """Learn what the server charges a create of it, other than was asked; a new structure has to follow."""
        self.amounts = {**self.amounts, **charged}

    def row_of(self, request: Request) -> Row:
        """Return the row that a request of this shape waits in, new where it is the first."""
        key = (request.priority, request.flow)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(self, key)
        return row

    def suspect(self, rejected: Rejected, now: float, policy: Policy) -> None:
        """Collect what two refusals say of never-fits; one may be of a quota in the making."""
        for name, limited in rejected.limited.items():
            if 0 < limited < rejected.requested.get(name, 0):
                if self.suspected is None:
                    self.suspected = now
                    self.suspected_next = now + policy.never_confirm
                elif now - self.suspected >= policy.never_confirm:
                    self.verdict = (rejected.quota, name)
                    self.version = -1
                    self.suspected_next = now + policy.never_probe
                return
        self.suspected = None

    def never_sentence(self) -> str:
        """Say what a shape that never fits runs into."""
        assert self.never is not None
        quota, resource, asked, limited = self.never
        binary = "memory" in resource or "storage" in resource
        amounts = [format_quantity(amount, binary=binary) for amount in (asked, limited)]
        return f"asks {resource}={amounts[0]}, but quota {quota} allows {amounts[1]} in all"


class Row:
    """The waiters of one shape, priority and flow. ``place`` is its entry in the line's order."""

    __slots__ = ("dead", "key", "place", "shape", "waiting")

    def __init__(self, shape: Shape, key: tuple[int, str]) -> None:
        """Start empty."""
        self.shape = shape
        self.key = key
        self.waiting: deque[Request] = deque()
        self.dead = 0  # those in ``waiting`` that have left, behind the head
        self.place: tuple[float, int, Row] | None = None


class Line:
    """The rows of a namespace, ordered by the rank of their heads."""

    __slots__ = ("oldest", "order", "size")

    def __init__(self) -> None:
        """Start empty."""
        self.order: list[tuple[float, int, Row]] = []
        self.size = 0
        self.oldest = FOREVER  # nobody joined before; infinity: nobody waits

    def join(self, request: Request, row: Row) -> None:
        """Put a request at its place: a new one last of its row, a returning one where it was."""
        waiting = row.waiting
        request.row = row
        request.demand = row.shape.demand  # its equal: all waiters of a shape hold one
        self.size += 1
        self.oldest = min(self.oldest, request.joined)
        if not waiting or (waiting[-1].rank, waiting[-1].seq) < (request.rank, request.seq):
            waiting.append(request)
        else:
            at = next(i for i, other in enumerate(waiting) if (request.rank, request.seq) < (other.rank, other.seq))
            waiting.insert(at, request)
        if waiting[0] is request:
            self._place(row)

    def leave(self, request: Request) -> None:
        """Take a request out, wherever it stands; those dead behind the head go when they get there."""
        self.size -= 1
        row = request.row
        assert row is not None
        request.row = None
        waiting = row.waiting
        if waiting[0] is not request:
            row.dead += 1
            if row.dead * 2 > len(waiting):  # amortised: a row never holds more dead than living
                row.waiting = deque(other for other in waiting if other.row is row)
                row.dead = 0
            return
        waiting.popleft()
        while waiting and waiting[0].row is not row:
            waiting.popleft()
            row.dead -= 1
        self._place(row)

    def overdue(self, now: float, wait_max: float) -> list[Request]:
        """List those who have waited ``wait_max`` by now; O(1) while nobody can have."""
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
        """Order the row by its head anew."""
        if row.place is not None:
            del self.order[bisect_left(self.order, row.place)]
        if row.waiting:
            head = row.waiting[0]
            row.place = (head.rank, head.seq, row)
            insort(self.order, row.place)  # no two have a seq in common: rows are never compared
        else:
            row.place = None
            del row.shape.rows[row.key]

    def ahead(self, request: Request) -> int:
        """Count the waiters ahead of this one: O(waiters), for a person who asks."""
        mine = (request.rank, request.seq)
        return sum(
            1
            for rank, seq, row in self.order
            if (rank, seq) < mine
            for other in row.waiting
            if other.row is row and (other.rank, other.seq) < mine
        )


def rank_of(place: tuple[float, int, Row]) -> tuple[float, int]:
    """Return what places are ordered by."""
    return place[0], place[1]

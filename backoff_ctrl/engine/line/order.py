"""The waiting line of a namespace: who waits, and in which order.

A request's place is its *rank*: the time it joined less ``age_step`` per step of priority. Priority thus rises by one
for each ``age_step`` waited, and two waiting requests never change places: the line is never sorted again.

Waiting requests of one shape, priority and flow form a *row*, first in first out. Only the head of a row is ever
examined, so a row of a thousand equal creates costs no more than one create. Those who look at the line use its *roll*,
which is brought up to date when a reader looks, a request leaves, or a few hundred have joined.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from itertools import islice
from operator import attrgetter
from typing import Final, TypeAlias

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.roll import Place, Roll, is_behind, place_of
from backoff_ctrl.engine.facts.shapes import Row, Shape

from .spans import SPAN, Spans

ROWS_MAX: Final = 64  # rows looked at for an estimate: 2 us each
RowKey: TypeAlias = tuple[str, int, str]  # the demand's key, priority, flow (of a gang's member: and gang)
NEWEST_MAX: Final = 256  # put on the roll within 0.2 ms, in any mix of priorities
_RANK: Final = attrgetter("rank")


class Line:
    """The rows of a namespace, in ``order`` by the rank of their heads.

    A new request that is equal to one that waits needs no ``enqueue`` while ``newest`` has fewer than ``open_to``
    entries: append it to both its row's ``waiting`` and ``newest``.
    """

    __slots__ = (
        "_most", "_priorities", "_roll", "_size", "latest", "newest", "oldest", "open_to", "order", "rows", "seq",
        "spans",
    )  # fmt: skip

    def __init__(self, most: int) -> None:
        self._most = most
        self._roll = Roll(place_of)
        self._size = 0  # of the roll
        self._priorities: Counter[int] = Counter()  # of the rows
        self.newest: list[Request] = []  # they joined since the roll was brought up to date, in this order
        self.open_to = min(most, NEWEST_MAX)
        self.order: list[tuple[float, int, Row]] = []
        self.rows: dict[RowKey, Row] = {}
        self.latest: dict[str, Row] = {}  # by the demand's key: where such creates wait; not draws
        self.spans: Spans | None = None  # of ``order``, once it is long
        self.seq = 0  # of the newest request, whether or not it had to wait
        self.oldest = FOREVER  # no waiting request joined before that; infinity: the line is empty

    @property
    def size(self) -> int:
        """The number of waiting requests. Whether there is any, ``rows`` says faster."""
        return self._size + len(self.newest)

    def enqueue(self, request: Request, shape: Shape, apart: str = "") -> Row:
        """Put a request at its place and return its row: a new request goes last, a returning one where it was.

        ``apart`` names a row of its own, beside those of its flow.
        """
        if request.joined < self.oldest:  # noqa: PLR1730 - each refusal comes here
            self.oldest = request.joined
        row = self.latest.get(shape.demand.key)
        apart = apart or request.row_mark
        mark = apart or request.flow
        if row is None or row.flow != mark or row.priority != request.priority:
            row = self._row(shape, request.priority, mark, apart=bool(apart))
            if not apart:
                self.latest[shape.demand.key] = row
        waiting = row.waiting
        if not waiting or waiting[-1].rank < request.rank or is_behind(request, waiting[-1]):
            waiting.append(request)
        elif is_behind(waiting[0], request):  # who returns is the head again, as a rule
            waiting.appendleft(request)
        else:
            at = bisect_left(waiting, place_of(request), key=place_of)
            if waiting[at] is request:  # it was here before, and only marked when it left
                row.dead -= 1
            else:
                waiting.insert(at, request)
        newest = self.newest
        if newest and newest[-1].rank >= request.rank and is_behind(newest[-1], request):
            self.call_roll()  # it returns to its place, or to its gang's
        self.newest.append(request)
        if len(self.newest) >= self.open_to:
            self.call_roll()
        request.row = row
        request.demand = row.demand  # an equal one: all waiting requests of a shape share one object
        if waiting[0] is request:
            self._place(row)
        return row

    def requeue(self, request: Request, apart: str = "") -> None:
        """Put a waiting request at its place once more: it belongs to another row now."""
        row = request.row
        assert isinstance(row, Row)
        self.dequeue(request)
        self.enqueue(request, row.shape, apart)

    def _row(self, shape: Shape, priority: int, mark: str, *, apart: bool) -> Row:
        """Return the row of these equal requests; the first time, make it."""
        key = (shape.demand.key, priority, mark)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = Row(shape, priority, mark, apart=apart)
            self._priorities[priority] += 1
        return row

    def call_roll(self) -> bool:
        """Bring the roll up to date; say whether one more request may wait."""
        newest = self.newest
        if newest:
            self.newest = []
            self._size += len(newest)
            if len(self._priorities) > 1:
                newest.sort(key=_RANK)  # a stable sort: equal ranks stay in the order they came
            self._roll.extend(newest)
        self.open_to = min(NEWEST_MAX, self._most - self._size)
        return self.open_to > 0

    def dequeue(self, request: Request) -> None:
        """Take a waiting request out. In the midst of its row it is only marked, and dropped later."""
        if self.newest:
            self.call_roll()
        self._roll.remove(request)
        self._size -= 1
        self.open_to = min(NEWEST_MAX, self._most - self._size)
        row = request.row
        assert isinstance(row, Row)
        request.row = None
        waiting = row.waiting
        if waiting[0] is request:
            waiting.popleft()
            while waiting and waiting[0].row is not row:
                waiting.popleft()
                row.dead -= 1
            self._place(row)
        elif waiting[-1] is request:
            waiting.pop()
            while waiting[-1].row is not row:
                waiting.pop()
                row.dead -= 1
        else:
            row.dead += 1
            if row.dead * 2 > len(waiting):  # amortised: at most half of a row is dead
                row.waiting = deque(other for other in waiting if other.row is row)
                row.dead = 0

    def overdue(self, now: float, wait_max: float) -> list[Request]:
        """List the requests that have waited ``wait_max`` seconds by now; O(1) while no request can have."""
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
            if self.spans is not None:
                self.spans.at(row.place).loose = True
        if row.waiting:
            head = row.waiting[0]
            row.place = (head.rank, head.seq, row)
            insort(self.order, row.place)  # no two have a seq in common: rows are never compared
            if self.spans is not None:
                self.spans.add(row)
        else:
            row.place = None
            del self.rows[row.demand.key, row.priority, row.flow]
            if self.latest.get(row.demand.key) is row:
                del self.latest[row.demand.key]
            self._priorities[row.priority] -= 1
            if not self._priorities[row.priority]:
                del self._priorities[row.priority]

    def spans_of(self, version: int) -> Spans | None:
        """Return the spans of the line, if it is long, for a scan by this version of the quotas' structure."""
        if len(self.order) <= SPAN:
            return None
        if self.spans is None:
            self.spans = Spans(self.order)
        self.spans.begin(version)
        return self.spans

    def ask_for(self, request: Request) -> None:
        """Let each scan ask for this request: more than room decides about it from now on."""
        if self.spans is not None:
            self.spans.at(place_of(request)).least = None

    def behind(self, place: Place | None, limit: int) -> list[Request]:
        """Return up to ``limit`` waiting requests behind a place, in order; None: from the first on."""
        self.call_roll()
        return self._roll.after(place, limit)

    @property
    def head_joined(self) -> float:
        """When the first in line joined it; infinity: the line is empty."""
        return self.order[0][2].waiting[0].joined if self.order else FOREVER

    def first_joined(self, age_step: float) -> float:
        """When the one joined that waits longest; infinity: the line is empty.

        With one priority that is the first in line.
        """
        first = FOREVER
        least = min(self._priorities, default=0)
        for rank, _, row in self.order:
            if rank + least * age_step >= first:  # no request behind joined earlier
                break
            first = min(first, row.waiting[0].joined)
        return first

    def ahead_at(self, request: Request, ceiling: object, asked: int) -> tuple[int, int]:
        """Sum what waits at a ceiling up to this request, itself included, and count it: what is of its size or less.

        Sizes are grouped by powers of two. Of more than ``ROWS_MAX`` rows the rest counts like the mean of the first
        ones.
        """
        place = (request.rank, request.seq)
        amount = count = seen = 0
        for rank, seq, row in islice(self.order, ROWS_MAX):
            if (rank, seq) > place:
                break
            seen += 1
            each = next((charged for at, charged in row.shape.meets if at is ceiling), 0)
            if each and each.bit_length() <= asked.bit_length():
                before = bisect_right(row.waiting, place, key=place_of)
                count += before
                amount += before * each
        if seen == ROWS_MAX:
            rows = bisect_left(self.order, (request.rank, request.seq + 1))
            amount, count = amount * rows // seen, count * rows // seen
        return amount, count

    def ahead(self, place: Place) -> int:
        """Count the waiting requests ahead of a place."""
        self.call_roll()
        return self._roll.before(place)

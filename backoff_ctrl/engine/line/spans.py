"""Spans: stretches of the line of which it is known what each of their rows is charged at least, and at the most.

A scan passes a span, or a row, without asking if nothing would come of it: all lack room at one ceiling, and none of
them would be the next for a ceiling. A span is measured when a scan has walked through it in vain. What comes to it
later makes it wider, so that it is never passed wrongly; what leaves it does not make it narrower before the next
walk in vain.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, ItemsView
from itertools import islice
from typing import Final, TypeAlias

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.facts.ceilings import Ceiling, Charges
from backoff_ctrl.engine.facts.roll import Place
from backoff_ctrl.engine.facts.shapes import Row

SPAN: Final = 32  # rows: of more than twice as many, parts of so many are made
START: Final[Place] = (-FOREVER, 0)
END: Final[Place] = (FOREVER, 0)

Entry: TypeAlias = tuple[float, int, Row]
_Amounts: TypeAlias = Charges | ItemsView[Ceiling, int]


def in_vain(least: _Amounts, most: _Amounts, next_for: Container[Ceiling]) -> bool:
    """Say whether all creates between these amounts lack room, and none only where no one is the next yet."""
    for ceiling, amount in least:
        if amount > ceiling.room:
            break
    else:
        return False
    for ceiling, amount in most:  # noqa: SIM110 - each waiting row comes here
        if amount > ceiling.room and ceiling not in next_for:
            return False
    return True


def is_plain(row: Row, version: int) -> bool:
    """Say whether only room decides about a row: no gang's, not away, its head not overtaken yet."""
    shape = row.shape
    return shape.version == version and shape.never is None and not row.apart and not row.waiting[0].overtaken


class Span:
    """What the rows of a span are charged. ``least`` has the ceilings that all of them meet; None: not to be passed.

    ``loose``: a row has left it since it was measured, so that it may be narrower by now.
    """

    __slots__ = ("least", "loose", "most")

    def __init__(self) -> None:
        self.least: dict[Ceiling, int] | None = None
        self.most: dict[Ceiling, int] = {}
        self.loose = True

    def measure(self, rows: list[Entry], version: int) -> None:
        """Find out what these rows are charged, which are all of them."""
        self.least, self.most, self.loose = dict(rows[0][2].shape.meets) if rows else None, {}, False
        for _, _, row in rows:
            self.add(row, version)

    def add(self, row: Row, version: int) -> None:
        """Contain one row more."""
        if self.least is None or not is_plain(row, version):
            self.least = None
            return
        charged = dict(row.shape.meets)
        self.least = {c: min(amount, charged[c]) for c, amount in self.least.items() if c in charged}
        most = self.most
        for ceiling, amount in charged.items():
            if amount > most.get(ceiling, 0):
                most[ceiling] = amount


class Spans:
    """The spans of one line, by the place at which each begins; the last one has no end.

    A scan walks through one span up to the place ``until``, then calls ``enter``.
    """

    __slots__ = ("_order", "_spans", "_starts", "_version", "_walked", "until")

    def __init__(self, order: list[Entry]) -> None:
        self._order = order
        self._version = -1
        self._spans: list[Span] = []
        self._starts: list[Place] = []
        self._walked: Span | None = None  # so far in vain
        self.until = START

    def begin(self, version: int) -> None:
        """Begin a scan, or go on with one. What was measured holds for one version of the quotas' structure."""
        self.again(in_vain=False)
        if version != self._version or len(self._spans) > SPAN + len(self._order):
            self._version = version
            self._spans, self._starts = [Span()], [START]

    def at(self, place: Place | Entry) -> Span:
        """Return the span of a place."""
        return self._spans[bisect_right(self._starts, place) - 1]

    def add(self, row: Row) -> None:
        """Note that a row has got a place."""
        assert row.place is not None
        self.at(row.place).add(row, self._version)

    def again(self, *, in_vain: bool) -> None:
        """Perhaps the rest of the span can be passed now; the walk so far was ``in_vain``, or not."""
        self.until = START
        if not in_vain:
            self._walked = None

    def enter(self, at: int, next_for: Container[Ceiling], most: int) -> tuple[int, int]:
        """Pass spans from the row ``at`` on, at most so many; begin to walk through the first that can't be passed.

        Return the row to go on with, and how many spans were passed.
        """
        order, starts, spans = self._order, self._starts, self._spans
        if self.at(order[at]) is not self._walked:
            self.leave()
        first = index = bisect_right(starts, order[at]) - 1
        for span in islice(spans, first, first + most):
            if span.least is None or not in_vain(span.least.items(), span.most.items(), next_for):
                break
            index += 1
        if index == len(spans):
            return len(order), index - first
        if index > first:
            at = bisect_left(order, starts[index], at)
        self._walked = spans[index]
        self.until = starts[index + 1] if index + 1 < len(starts) else END
        return at, index - first

    def leave(self) -> None:
        """End a walk. If it was in vain, measure the span, unless that was done; divide it if it is too long."""
        span, self._walked = self._walked, None
        if span is None:
            return
        order, starts = self._order, self._starts
        index = self._spans.index(span)
        begin = bisect_left(order, starts[index])
        end = bisect_left(order, starts[index + 1]) if index + 1 < len(starts) else len(order)
        if end - begin > 2 * SPAN:
            cuts = range(begin + SPAN, end, SPAN)
            starts[index + 1 : index + 1] = [order[cut][:2] for cut in cuts]
            self._spans[index + 1 : index + 1] = [Span() for _ in cuts]
            end = begin + SPAN
        elif not span.loose:
            return
        span.measure(order[begin:end], self._version)

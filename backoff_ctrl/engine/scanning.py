"""Goes over the waiting line in order, and lets in who may be let in.

Only heads of rows are looked at: single creates and gangs' draws, whole gangs, and creates whose
callers are away. What may end a wait without a send is here, too: a request that never fits, or has waited too long.
"""

from __future__ import annotations

from bisect import bisect_left

from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.shapes import Row, Shape
from backoff_ctrl.engine.line.order import rank_of
from backoff_ctrl.engine.line.seats import Away

from .admission import Admission
from .backoff import FOREVER
from .gang_admission import GangAdmission


class Scanning:
    """The decisions about those who wait in one namespace. ``gangs``: None until the first gang."""

    __slots__ = ("_admission", "gangs")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.gangs: GangAdmission | None = None

    def scan(self, now: float) -> None:
        """Go over the line in order and admit what may be sent; after ``scan_max`` rows stop, to go on next time."""
        admission = self._admission
        knowledge = admission.knowledge
        gangs, away = self.gangs, knowledge.away
        order = admission.line.order
        if admission.scan_due:
            admission.resume = None  # news came since a scan was cut short: start again at the head
        at = 0 if admission.resume is None else bisect_left(order, admission.resume, key=rank_of)
        if admission.resume is None:
            admission.probing.suspect_at = FOREVER
            self._begin()
        admission.resume = None
        budget = admission.policy.scan_max
        while at < len(order):
            if budget == 0:
                admission.resume = order[at][:2]
                break
            budget -= 1
            if gangs is not None:
                gangs.before(order[at][:2], now)
            row = order[at][2]
            shape = row.shape
            if shape.version != knowledge.version:
                knowledge.know(shape)
            if shape.never is not None and self._refuse_row(row, now):
                continue
            if away is not None and row.waiting[0] in away:
                self._hold_for(away, row.waiting[0], shape, now)
                at += 1
            elif not self.try_to_admit(row.waiting[0], shape, now):
                admission.keeping.note_blocked(row, now)
                at += 1
            elif admission.scan_due:  # a request was overtaken once too often: keep room for it first
                self._begin()
                at = 0
        if gangs is not None and admission.resume is None:
            gangs.end_scan(now)

    def _refuse_row(self, row: Row, now: float) -> bool:
        """Refuse creates that never fit; say whether they were."""
        policy, probing = self._admission.policy, self._admission.probing
        if policy.on_never_fits != "fail":
            return False
        confirmed_at = row.shape.never_confirmed_at(now, policy)
        if now < confirmed_at:
            probing.suspect_at = min(probing.suspect_at, confirmed_at)
            return False
        for request in [request for request in row.waiting if request.row is row]:
            self.refuse_never(request, row.shape)
        return True

    def _hold_for(self, away: Away, request: Request, shape: Shape, now: float) -> None:
        keeping = self._admission.keeping
        until = away.take_turn(request, shape.meets, keeping.kept, now, probes=not self._admission.knowledge.observing)
        if until is not None:
            keeping.next_change = min(keeping.next_change, until)

    def _begin(self) -> None:
        """Begin at the head of the line: who is next for which ceiling is found again."""
        admission, away = self._admission, self._admission.knowledge.away
        admission.keeping.begin()
        admission.scan_due = False
        if away is not None:
            away.begin_scan()
        if self.gangs is not None:
            self.gangs.begin_scan()

    def try_to_admit(self, request: Request, shape: Shape, now: float) -> bool:
        """Admit any kind of request if it may be now; say whether it was."""
        if self.gangs is None:
            return self._admission.try_to_admit(request, shape, now)
        return self.gangs.try_to_admit(request, shape, now)

    def refuse_full(self, request: Request) -> None:
        admission = self._admission
        detail = f"{admission.line.size} requests wait in {admission.namespace} already"
        admission.refuse(request, "too-many-waiting", detail)

    def _leaves_for_good(self, request: Request) -> None:
        """Note that a request is about to be refused."""
        away = self._admission.knowledge.away
        if away is not None:
            away.refused(request)
        if self.gangs is not None:
            self.gangs.leaves_line(request)

    def refuse_never(self, request: Request, shape: Shape) -> None:
        self._leaves_for_good(request)
        self._admission.refuse(request, "never-fits", shape.never_sentence(), shape.never_fact())

    def refuse_overdue(self, request: Request) -> None:
        self._leaves_for_good(request)
        self._admission.refuse(
            request, "waited-too-long", f"waited {self._admission.policy.wait_max:g} s in {self._admission.namespace}"
        )

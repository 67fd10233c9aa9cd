"""Goes over the waiting line in order, and lets in who may be let in.

Only heads of rows are looked at: single creates and gangs' draws, whole gangs, and creates whose
callers are away. What may end a wait without a send is here, too: a request that never fits, or has waited too long.
"""

from __future__ import annotations

from bisect import bisect_left

from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.shapes import Row, Shape
from backoff_ctrl.engine.line.seats import Away
from backoff_ctrl.engine.line.spans import Spans, in_vain, is_plain

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
        keeping, version = admission.keeping, admission.knowledge.version
        order = admission.line.order
        at = self._first_row()
        budget = admission.policy.scan_max
        passes = self._may_pass()
        spans = admission.line.spans_of(version) if passes else None
        while at < len(order):
            row = order[at][2]
            if spans is not None and order[at] >= spans.until:
                at, passed = spans.enter(at, keeping.next_for, budget)
                budget -= passed
            elif budget <= 0:
                admission.resume = order[at][:2]
                return
            elif passes and is_plain(row, version) and in_vain(row.shape.meets, row.shape.meets, keeping.next_for):
                budget -= 1
                at += 1
            else:
                budget -= 1
                at = self._ask(row, at, spans, now)
        if spans is not None:
            spans.leave()
        if self.gangs is not None:
            self.gangs.end_scan(now)

    def _first_row(self) -> int:
        """Return where the scan begins: at the head of the line, or where the last one was cut short."""
        admission, resume = self._admission, self._admission.resume
        admission.resume = None
        if resume is None or admission.scan_due:  # news came since: start again at the head
            admission.probing.suspect_at = FOREVER
            self._begin()
            return 0
        return bisect_left(admission.line.order, resume)

    def _ask(self, row: Row, at: int, spans: Spans | None, now: float) -> int:
        """Decide about the row at this place of the line; return the place to go on with."""
        admission = self._admission
        known = len(admission.keeping.next_for)
        waits = self._goes_on_waiting(row, now)
        if spans is not None and not (waits and len(admission.keeping.next_for) == known):
            spans.again(in_vain=waits)  # there is less room, or one more is the next for a ceiling
        if waits:
            return at + 1
        if admission.scan_due:  # a request was overtaken once too often: keep room for it first
            self._begin()
            return 0
        return at

    def _may_pass(self) -> bool:
        """Say whether rows that lack room may be passed without asking: no probes are needed, and no room is kept.

        An admitted gang that lacks room takes it in the midst of a scan, at its place.
        """
        admission, knowledge = self._admission, self._admission.knowledge
        return (
            knowledge.observing
            and not admission.probing.blocks
            and admission.policy.overtakes_max > 0
            and all(quota.spec for quota in knowledge.quotas.values())  # a limit that was learned may need probes
            and not any(gang.whole and gang.deficits for gang in knowledge.gangs)
        )

    def _goes_on_waiting(self, row: Row, now: float) -> bool:
        """Ask for the head of a row; False: it was admitted, or the whole row was refused."""
        admission, knowledge, head = self._admission, self._admission.knowledge, row.waiting[0]
        if self.gangs is not None:
            self.gangs.before((head.rank, head.seq), now)
        shape = row.shape
        if shape.version != knowledge.version:
            knowledge.know(shape)
        if shape.never is not None and self._refuse_row(row, now):
            return False
        if knowledge.away is not None and head in knowledge.away:
            self._hold_for(knowledge.away, head, shape, now)
            return True
        if self.try_to_admit(head, shape, now):
            return False
        admission.keeping.note_blocked(row, now)
        return True

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
            away.end(request, refused=True)
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

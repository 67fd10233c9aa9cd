"""Which waiting requests of one namespace are admitted now, what the others wait for, and until when."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from .backoff import FOREVER
from .keeping import Keeping
from .knowledge import Knowledge
from .line import Line, rank_of
from .pace import Pace
from .probing import Probing
from .settling import Settling
from .tickets import Refusal, Ticket

if TYPE_CHECKING:
    from .blocks import Block
    from .overload import Window
    from .requests import Request
    from .shapes import Shape
    from .shared import Shared
    from .tickets import RefusalReason

_NO_BLOCKS: Final[list[Block]] = []
UNHURRIED: Final = 1.0  # seconds: while no request waits, answered holds are ended in batches


class Admission:
    """The waiting line of one namespace and all that decides about it. The subclass adds what is learned."""

    __slots__ = (
        "_resume", "_scan_due", "_shared", "_waiters_max", "keeping", "knowledge", "line", "namespace", "pace",
        "policy", "probing", "seq", "settling", "wake_at",
    )  # fmt: skip

    def __init__(self, namespace: str, shared: Shared, *, observing: bool, ends_told: bool = False) -> None:
        """Start with nothing known. ``observing``: changes of quotas are reported; ``ends_told``: ends of creates."""
        self.namespace = namespace
        self.policy = shared.policy
        self._shared = shared
        self.knowledge = Knowledge(observing=observing, ends_told=ends_told)
        self.line = Line()
        self.keeping = Keeping(self.policy)
        self.probing = Probing(namespace, self.knowledge, shared)
        self.settling = Settling()
        self.pace = Pace(self.policy, shared.rng)
        self.seq = 0  # of the newest request
        self.wake_at = FOREVER
        self._resume: tuple[float, int] | None = None
        self._scan_due = False
        self._waiters_max = self.policy.waiters_max

    def submit(self, request: Request, now: float) -> None:
        """Admit a new request, let it wait, or refuse it, as the next ``advance`` of the controller then returns."""
        if request.state != "new":
            request.happens("submit")
        line = self.line
        request.joined = now
        request.rank = now - request.priority * self.policy.age_step if request.priority else now
        self.seq = request.seq = self.seq + 1
        if line.size:
            row = line.rows.get((request.demand.key, request.priority, request.flow))
            if row is not None and line.size < self._waiters_max:
                # Equal requests wait already: it waits behind them, and nothing needs to be weighed.
                request.state = "waiting"
                request.demand = row.demand
                request.row = row
                row.waiting.append(request)
                line.size += 1
                return
        knowledge = self.knowledge
        shape = knowledge.shapes.get(request.demand.key) or knowledge.shape_of(request.demand)
        if (
            line.size
            or shape.version != knowledge.version
            or shape.never is not None
            or not self._try_to_admit(request, shape, now)
        ):
            self._arrive(request, shape, now)

    def withdraw(self, request: Request, now: float) -> None:
        """Take a waiting request out of the line."""
        request.happens("withdraw")
        self.line.leave(request)
        self._rescan(now)  # room may have been kept for it

    def advance(self, now: float) -> None:
        """Do all that is due by ``now``: room settles, holds end, blocks open, waiting requests are admitted."""
        if self.settling.release(now):
            self._scan_due = True
        if self.knowledge.end_holds(now, self.policy):
            self._scan_due = True
        living = self.knowledge.living
        if (living.doubtful or now >= living.look_at) and living.look([*self.knowledge.ceilings()], now):
            self._scan_due = True
        for request in self.line.overdue(now, self.policy.wait_max):
            self._refuse(request, "waited-too-long", f"waited {self.policy.wait_max:g} s in {self.namespace}")
            self._scan_due = True
        if self.line.order and (self._scan_due or self._resume is not None or self._is_time(now)):
            self.scan(now)
        elif not self.line.order:
            self.probing.drop_idle()
        self._set_alarm(now)

    def _arrive(self, request: Request, shape: Shape, now: float) -> None:
        """Decide on a request with no equal one waiting: it is admitted or refused at once, or opens a row."""
        knowledge = self.knowledge
        shape.used_at = now
        if shape.version != knowledge.version:
            knowledge.know(shape)
        if self.line.size >= self.policy.waiters_max:
            self._refuse(request, "too-many-waiting", f"{self.line.size} requests wait in {self.namespace} already")
        elif shape.never is not None and self.policy.on_never_fits == "fail":
            self._refuse(request, "never-fits", shape.never_sentence())
        elif not (
            self._try_to_admit(request, shape, now)
            or (knowledge.end_holds(now, self.policy) and self._try_to_admit(request, shape, now))
        ):
            request.happens("submit")
            row = self.line.join(request, shape)
            self.keeping.note_blocked(row, now)  # it counts as overtaken from now on, not only from the next scan on
            self._set_alarm(now)

    def _try_to_admit(self, request: Request, shape: Shape, now: float) -> bool:
        """Admit the request if it may be sent now, as a probe if need be; say whether it was admitted."""
        if self.keeping.kept and self.keeping.closes(shape, request):
            return False
        blocks = _NO_BLOCKS
        for ceiling, amount in shape.meets:
            if amount > ceiling.room:
                found = self.probing.ready_blocks(shape, now)
                if found is None:
                    return False
                blocks = found
                break
        pace = self.pace
        unproven = not shape.meets and not self.knowledge.observing
        if unproven and pace.unproven >= pace.window:
            return False
        shared = self._shared
        window = shared.flows.get(request.flow) or shared.flow(request.flow)
        if pace.brake is not None or window.turns or window.in_flight + 1 > window.size or now < window.not_before:
            place = (request.rank, request.seq)
            if not pace.allows(self, window, shared.contended, len(self.knowledge.outstanding), place, now):
                return False
        ticket = Ticket(request, shape, window, now, blocks is not _NO_BLOCKS, unproven)
        for block in blocks:
            block.sends(ticket)
        outstanding = self.knowledge.outstanding
        if not outstanding and self.wake_at > now + self.policy.ticket_max:
            shared.wake(self, now + self.policy.ticket_max)
        outstanding[ticket] = None
        if unproven:
            pace.unproven += 1
        shared.effects.append(ticket)
        if self.line.size:
            self._overtake(ticket, now)
        return True

    def _overtake(self, ticket: Ticket, now: float) -> None:
        """Take an admitted request out of the line, and count whom it overtook.

        A probe overtakes no one: no room was known that it could have taken.
        """
        request = ticket.request
        if request.row is not None:
            self.line.leave(request)
        if self.keeping.next_for and not ticket.probe and self.keeping.overtook(ticket.shape, request, now):
            self._rescan(now)

    def _refuse(self, request: Request, reason: RefusalReason, detail: str) -> None:
        request.happens("refuse")
        if request.row is not None:
            self.line.leave(request)
        self._shared.effects.append(Refusal(request, reason, detail))

    def _rescan(self, now: float) -> None:
        """Scan the line from its head at the next ``advance``."""
        self._scan_due = True
        self._shared.wake(self, now)

    def _retain_ceilings(self) -> None:
        """Drop what is stored by ceiling for ceilings that no longer exist."""
        present = set(self.knowledge.ceilings())
        self.probing.retain(present)
        self.keeping.retain(present)

    def _is_time(self, now: float) -> bool:
        """Say whether the passing of time may have made an admission possible."""
        return self.probing.open_due(now) or now >= self.keeping.next_change or self.pace.is_over(now)

    def _set_alarm(self, now: float) -> None:
        """Ask to be woken when the passing of time next changes something."""
        patience = self.policy.answered_hold if self.line.size else UNHURRIED
        knowledge = self.knowledge
        held_until = knowledge.next_end(patience, self.policy.ticket_max)
        at = min(self.settling.next_at(), held_until, knowledge.living.look_at)
        if self.line.order:
            too_long = self.line.oldest + self.policy.wait_max
            at = min(at, too_long, self.keeping.next_change, self.probing.next_due(), self.pace.next_open(now))
            if self._resume is not None or self._scan_due:
                at = now
        if at < FOREVER:
            self._shared.wake(self, max(now, at))

    def take_turn(self, window: Window, place: tuple[float, int], now: float) -> None:
        """Send one create through a contended window, starting at the place that asked for the turn.

        A scan from the head of the line might be cut short before it gets there.
        """
        cut, self._resume = self._resume, place
        self.pace.turn = window
        self.scan(now)
        self.pace.turn = None
        self._resume = min((place for place in (cut, self._resume) if place is not None), default=None)
        self._set_alarm(now)

    def scan(self, now: float) -> None:
        """Go over the line in order and admit what may be sent; after ``scan_max`` rows stop, to go on next time."""
        order = self.line.order
        if self._scan_due:
            self._resume = None  # news came since a scan was cut short: start again at the head
        at = 0 if self._resume is None else bisect_left(order, self._resume, key=rank_of)
        if self._resume is None:
            self.keeping.begin()
            self._scan_due = False
            self.probing.suspect_at = FOREVER
        self._resume = None
        budget = self.policy.scan_max
        while at < len(order):
            if budget == 0:
                self._resume = order[at][:2]
                break
            budget -= 1
            row = order[at][2]
            shape = row.shape
            if shape.version != self.knowledge.version:
                self.knowledge.know(shape)
            if shape.never is not None and self.policy.on_never_fits == "fail":
                for request in [request for request in row.waiting if request.row is row]:
                    self._refuse(request, "never-fits", shape.never_sentence())
            elif not self._try_to_admit(row.waiting[0], shape, now):
                self.keeping.note_blocked(row, now)
                at += 1
            elif self._scan_due:  # a request was overtaken once too often: keep room for it first
                self.keeping.begin()
                self._scan_due = False
                at = 0

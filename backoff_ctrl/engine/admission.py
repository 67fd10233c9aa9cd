"""Which waiting requests of one namespace are admitted now, what the others wait for, and until when."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from typing import Final

from .backoff import FOREVER
from .blocks import Block
from .keeping import Keeping
from .knowledge import Knowledge
from .line import Line, Row, rank_of
from .overload import Window
from .pace import Pace
from .probing import Probing
from .requests import Request
from .seats import Identity, Seat, Seats
from .settling import Settling
from .shapes import NeverFits, Shape
from .shared import Shared
from .tickets import Refusal, RefusalReason, Ticket

NO_BLOCKS: Final[list[Block]] = []
UNHURRIED: Final = 1.0  # seconds: while no request waits, answered holds are ended in batches


class Admission:
    """The waiting line of one namespace and all that decides about it. The subclass adds what is learned."""

    __slots__ = (
        "_resume",
        "_scan_due",
        "_shared",
        "changed",
        "keeping",
        "knowledge",
        "line",
        "namespace",
        "pace",
        "policy",
        "probing",
        "seats",
        "seen",
        "seq",
        "settling",
        "wake_at",
        "with_gangs",
    )  # fmt: skip

    def __init__(self, namespace: str, shared: Shared, *, observing: bool, ends_told: bool = False) -> None:
        """Start with nothing known. ``observing``: changes of quotas are reported; ``ends_told``: ends of creates."""
        self.namespace = namespace
        self.policy = shared.policy
        self._shared = shared
        self.knowledge = Knowledge(observing=observing, ends_told=ends_told)
        self.line = Line(shared.policy.waiters_max)
        self.keeping = Keeping(self.policy)
        self.probing = Probing(namespace, self.knowledge, shared)
        self.settling = Settling()
        self.pace = Pace(self.policy, shared.rng)
        self.seats: Seats | None = None  # made with the first seat
        self.seq = 0  # of the newest request
        self.wake_at = FOREVER
        self.changed = 0  # the number of its last change that somebody may have missed
        self.seen = False  # somebody has looked at it since
        self.with_gangs = False  # there was a gang here: only then the hooks for gangs are called
        self._resume: tuple[float, int] | None = None
        self._scan_due = False

    def submit(self, request: Request, now: float) -> None:
        """Admit a new request, let it wait, or refuse it, as the next ``advance`` of the controller then returns."""
        if request.state != "new":
            request.happens("submit")
        line = self.line
        request.joined = now
        request.rank = now - request.priority * self.policy.age_step if request.priority else now
        self.seq = request.seq = self.seq + 1
        if line.rows:
            row = line.rows.get((request.demand.key, request.priority, request.flow))
            if row is not None and (len(line.newest) < line.open_to or line.call_roll()):
                # Equal requests wait already: it waits behind them, and nothing needs to be weighed.
                request.state = "waiting"
                request.demand = row.demand
                request.row = row
                row.waiting.append(request)
                line.newest.append(request)
                return
        knowledge = self.knowledge
        shape = knowledge.shapes.get(request.demand.key) or knowledge.shape_of(request.demand)
        if (
            line.rows
            or shape.version != knowledge.version
            or shape.never is not None
            or not self._try_to_admit(request, shape, now)
        ):
            self._arrive(request, shape, now)

    def withdraw(self, request: Request, now: float, seat: Identity | None = None, retry_after: float = 0.0) -> None:
        """Take a waiting request out of the line; keep its place if it leaves a seat."""
        request.happens("withdraw")
        self.line.leave(request)
        if seat is not None:
            self.keep_seat(request, seat, retry_after, now)
        self._rescan(now)  # room may have been kept for it

    def prioritize(self, request: Request, priority: int, now: float) -> None:
        """Move a waiting request to the place that it would have had with this priority from the beginning."""
        row = request.row
        assert isinstance(row, Row)
        self.line.leave(request)
        request.priority = priority
        request.rank = request.joined - priority * self.policy.age_step
        self.line.join(request, row.shape)
        self._rescan(now)

    def halt(self, now: float, *, halted: bool) -> None:
        """Send nothing from now on, or go on; what was sent is still learned from."""
        self.pace.halted = halted
        self._rescan(now)

    def keep_seat(self, request: Request, identity: Identity, retry_after: float, now: float) -> None:
        """Keep the place of a request that is over for the caller who may come again."""
        if self.seats is None:
            self.seats = Seats(self.policy.seats_max)
        until = now + min(self.policy.wait_max, max(self.policy.seat_ttl, 2 * retry_after))
        self.seats.keep(Seat.of(request, identity, until), now)

    def empty_seats(self, now: float) -> int:
        """Count the places that are kept for callers that went away."""
        if self.seats is None:
            return 0
        self.seats.expire(now)
        return len(self.seats)

    def sit_down(self, request: Request, identity: Identity, now: float) -> bool:
        """Submit a new request at the place that its caller left; False: it left none, or the line is full."""
        if self.seats is None or request.state != "new" or self.line.size >= self.policy.waiters_max:
            return False
        seat = self.seats.take(identity, request.demand.key, now)
        if seat is None:
            return False
        seat.give(request, self.policy.age_step)
        row = self.line.rows.get((request.demand.key, request.priority, request.flow))
        if row is None:
            self._arrive(request, self.knowledge.shape_of(request.demand), now)
        else:
            request.happens("submit")
            self.line.join(request, row.shape)
        self._rescan(now)  # it may be the next for a ceiling, or overdue
        return True

    def advance(self, now: float) -> None:
        """Do all that is due by ``now``: room settles, holds end, blocks open, waiting requests are admitted."""
        if self.seen:
            self._shared.touch(self)
        if self.with_gangs:
            self._begin_advance(now)
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
        if (self.line.order or self.knowledge.gangs) and (
            self._scan_due or self._resume is not None or self._is_time(now)
        ):
            self.scan(now)
        if self.with_gangs:
            self._end_advance(now)
        self._set_alarm(now)

    def _arrive(self, request: Request, shape: Shape, now: float) -> None:
        """Decide on a request with no equal one waiting: it is admitted or refused at once, or opens a row."""
        knowledge = self.knowledge
        shape.used_at = now
        if shape.version != knowledge.version:
            knowledge.know(shape)
        if self.line.rows and self.line.size >= self.policy.waiters_max:
            self._refuse(request, "too-many-waiting", f"{self.line.size} requests wait in {self.namespace} already")
        elif shape.never is not None and self.policy.on_never_fits == "fail":
            self._refuse(request, "never-fits", shape.never_sentence(), shape.never_fact())
        elif not (
            self._try(request, shape, now) or (knowledge.end_holds(now, self.policy) and self._try(request, shape, now))
        ):
            request.happens("submit")
            row = self.line.join(request, shape)
            self.keeping.note_blocked(row, now)  # it counts as overtaken from now on, not only from the next scan on
            self._set_alarm(now)

    def _try(self, request: Request, shape: Shape, now: float) -> bool:
        """Admit any kind of request if it may be now; say whether it was."""
        if self.with_gangs:
            return self._try_any(request, shape, now)
        return self._try_to_admit(request, shape, now)

    def _try_to_admit(self, request: Request, shape: Shape, now: float, blocks: list[Block] | None = None) -> bool:
        """Admit the request if it may be sent now, as a probe if need be; say whether it was admitted.

        ``blocks``: those that it is to probe, or ``NO_BLOCKS``, where its room was weighed before.
        """
        if blocks is None:
            if self.keeping.kept and self.keeping.closes(shape, request):
                return False
            blocks = NO_BLOCKS
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
        outstanding = self.knowledge.outstanding
        if (
            pace.brake is not None
            or pace.halted
            or window.turns
            or window.in_flight + 1 > window.size
            or now < window.not_before
        ) and not pace.allows(self, window, shared.contended, len(outstanding), (request.rank, request.seq), now):
            return False
        ticket = Ticket(request, shape, window, now, blocks is not NO_BLOCKS, unproven)
        for block in blocks:
            block.sends(ticket)
        if not outstanding and self.wake_at > now + self.policy.ticket_max:
            shared.wake(self, now + self.policy.ticket_max)
        outstanding[ticket] = None
        if unproven:
            pace.unproven += 1
        shared.effects.append(ticket)
        if self.line.rows:
            self._overtake(ticket, now)
        return True

    def _overtake(self, ticket: Ticket, now: float) -> None:
        """Take an admitted request out of the line, and count whom it overtook.

        A probe overtakes no one: no room was known that it could have taken.
        """
        request = ticket.request
        if request.row is not None:
            self.line.leave(request)
        if (
            self.keeping.next_for
            and not ticket.probe
            and not request.passes_line
            and self.keeping.overtook(ticket.shape, request, now)
        ):
            self._rescan(now)

    def _refuse(self, request: Request, reason: RefusalReason, detail: str, never: NeverFits | None = None) -> None:
        request.happens("refuse")
        if request.row is not None:
            self.line.leave(request)
        self._shared.effects.append(Refusal(request, reason, detail, never))

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
        knowledge = self.knowledge
        held_until = knowledge.next_end(self.policy, 0.0 if self.line.rows else UNHURRIED)
        at = min(self.settling.next_at(), held_until, knowledge.living.look_at)
        if self.line.order:
            too_long = self.line.oldest + self.policy.wait_max
            at = min(at, too_long, self.keeping.next_change, self.probing.next_due(), self.pace.next_open(now))
            if self._resume is not None or self._scan_due:
                at = now
        if self.with_gangs:
            at = min(at, self._next_of_gangs(now))
        if at < FOREVER:
            self._shared.wake(self, max(now, at))

    def take_turn(self, window: Window, place: tuple[float, int], now: float) -> None:
        """Send one create through a contended window, starting at the place that asked for the turn.

        A scan from the head of the line might be cut short before it gets there.
        """
        if self.seen:
            self._shared.touch(self)
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
            self.probing.suspect_at = FOREVER
            self._begin_scan()
        self._resume = None
        budget = self.policy.scan_max
        while at < len(order):
            if budget == 0:
                self._resume = order[at][:2]
                break
            budget -= 1
            if self.with_gangs:
                self._before(order[at][:2], now)
            row = order[at][2]
            shape = row.shape
            if shape.version != self.knowledge.version:
                self.knowledge.know(shape)
            if shape.never is not None and self.policy.on_never_fits == "fail":
                for request in [request for request in row.waiting if request.row is row]:
                    self._refuse(request, "never-fits", shape.never_sentence(), shape.never_fact())
            elif not self._try(row.waiting[0], shape, now):
                self.keeping.note_blocked(row, now)
                at += 1
            elif self._scan_due:  # a request was overtaken once too often: keep room for it first
                self._begin_scan()
                at = 0
        if self.with_gangs and self._resume is None:
            self._end_scan(now)

    @abstractmethod
    def _try_any(self, request: Request, shape: Shape, now: float) -> bool:
        """Admit a create, a gang or a member of one if it may be now; say whether it was."""

    def _begin_advance(self, now: float) -> None:
        """Do what is due of gangs."""

    def _end_advance(self, now: float) -> None:
        """Do what comes after an advance."""

    @abstractmethod
    def _next_of_gangs(self, now: float) -> float:
        """Return when something is due of gangs; infinity if nothing is."""

    def _begin_scan(self) -> None:
        """Prepare a scan from the head of the line."""
        self.keeping.begin()
        self._scan_due = False

    def _before(self, place: tuple[float, int], now: float) -> None:
        """Do what comes before this place in line."""

    def _end_scan(self, now: float) -> None:
        """Do what comes behind the whole line."""

"""``ComputeResourceAwareBackOffHandler``: one namespace. Its backlog, and all that its creates and quotas teach.

Two tables drive it: ``blocks.BLOCKS`` and ``requests.REQUESTS``. ``admission`` decides about a single create,
``gang_admission`` about several as one, ``scanning`` about all who wait, in their order. ``knowledge`` holds what is
known, ``line`` who waits, ``keeping`` for whom room is kept, ``probing`` when to test for room.

A call that may make room for a request does not admit it. It asks for a scan, and the ``advance`` that follows goes
over the line once, however much has happened.
"""

from __future__ import annotations

from typing import Final

from backoff_ctrl.engine.facts.outcomes import Abandoned, Created, Expired, Outcome, Overloaded, Rejected, Uncounted
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.facts.requests import REQUESTS, Identity, Request
from backoff_ctrl.engine.facts.roll import Place
from backoff_ctrl.engine.facts.shapes import Row, Shape
from backoff_ctrl.engine.gangs.gang import Draw, Reservation
from backoff_ctrl.engine.line.seats import Away

from .admission import Admission
from .backoff import FOREVER
from .gang_admission import GangAdmission, expect_new
from .overload import Window
from .scanning import Scanning
from .shared import Shared
from .tickets import Ticket

_ENDS: Final = REQUESTS["sent"]
_CREATED: Final = _ENDS["created"]
_UNHURRIED: Final = 1.0  # seconds: while no request waits, answered holds are ended in batches


class ComputeResourceAwareBackOffHandler(Admission):
    """One namespace: learns its ceilings from rejections and observations and gates its creates.

    ``gangs`` and ``away`` are made with the first of them: a namespace without pays for neither. ``changed`` is the
    number of its last change that a reader may have missed; ``seen``: it was read since.
    """

    __slots__ = ("_scanning", "changed", "seen")

    def __init__(self, namespace: str, shared: Shared, *, observing: bool, ends_told: bool = False) -> None:
        """``observing``: changes of quotas are reported; ``ends_told``: ends of creates."""
        super().__init__(namespace, shared, observing=observing, ends_told=ends_told)
        self._scanning = Scanning(self)
        self.changed = 0
        self.seen = False

    @property
    def gangs(self) -> GangAdmission | None:
        return self._scanning.gangs

    # -- the backlog ---------

    def submit(self, request: Request, now: float) -> None:
        """Admit a new request, let it wait, or refuse it, as the next ``advance`` of the controller then returns."""
        if request.state != "new":
            request.happens("submit")
        line = self.line
        request.joined = now
        request.rank = now - request.priority * self.policy.age_step if request.priority else now
        line.seq = request.seq = line.seq + 1
        key = request.demand.key
        latest = line.latest
        row = latest.get(key) if latest else None
        if row is None or row.priority != request.priority or row.flow != request.flow:
            row = line.rows.get((key, request.priority, request.flow)) if line.rows else None
        if row is not None and (len(line.newest) < line.open_to or line.call_roll()):
            # Equal requests wait already: it waits behind them, without being weighed.
            request.state = "waiting"
            request.demand = row.demand
            request.row = row
            row.waiting.append(request)
            line.newest.append(request)
            return
        knowledge = self.knowledge
        shape = knowledge.shapes.get(key) or knowledge.shape_of(request.demand)
        if (
            line.rows
            or shape.version != knowledge.version
            or shape.never is not None
            or not self.try_to_admit(request, shape, now)
        ):
            self._arrive(request, shape, now)

    def reclaim_seat(self, request: Request, identity: Identity, now: float) -> bool:
        """Submit a new request at the place that its caller left; False: it left no seat, or the line is full."""
        away = self.knowledge.away
        if away is None or request.state != "new" or self.line.size >= self.policy.waiters_max:
            return False
        seat = away.seats.take(identity, request.demand.key, now)
        if seat is None:
            return False
        if seat.request is not None and seat.request.state == "waiting":
            away.end(seat.request)
            self.refuse(seat.request, "place-taken", "its caller came again with another create")
        seat.give(request, self.policy.age_step)
        self._join_row(request, self.knowledge.shape_of(request.demand), now)
        self.rescan(now)  # it may be the next for a ceiling, or overdue
        return True

    def ensure_gangs(self) -> GangAdmission:
        """Return the namespace's gangs; make them with the first."""
        if self._scanning.gangs is None:
            self._scanning.gangs = GangAdmission(self)
        return self._scanning.gangs

    def reserve(self, request: Reservation, now: float, *, standing: bool = False) -> None:
        """Add a new gang; ``advance`` returns its ``Grant`` or refusal in time. ``TicketError`` if it is not new.

        The whole waits in line as one request: ``withdraw`` takes it out. ``standing``: the gang was admitted before a
        restart, and this is what it still lacks; it is granted without waiting.
        """
        now = self.shared.clock(now)
        expect_new(request)
        gangs = self.ensure_gangs()
        self.number(request, now)
        shape = self.knowledge.shape_of(request.demand)
        self.knowledge.know(shape)
        if standing:
            gangs.take_over(request, shape, now)
            return
        self._join_row(request, shape, now)
        if request.state == "waiting":
            gangs.joined(now)
        self._set_alarm(now)

    def draw(self, draw: Draw, now: float) -> None:
        """Send one member of an admitted gang, let it wait at the gang's place, or refuse it once the gang is over.

        ``GangError`` if all members of its part are drawn.
        """
        now = self.shared.clock(now)
        gangs = self.ensure_gangs()
        gangs.draw(draw, now)
        self._set_alarm(now)

    def withdraw(self, request: Request, now: float, seat: Identity | None = None, retry_after: float = 0.0) -> None:
        """Take a request out of the line; no effect if it does not wait.

        ``seat`` keeps its place for that caller, for ``Policy.seat_ttl`` or twice the ``retry_after`` (in seconds) that
        the caller was given, whichever is longer: submit a new request with that identity when it comes again.
        Gangs and draws leave no seat: a gang keeps its own room.
        """
        now = self.shared.clock(now)
        if request.state != "waiting":
            return
        of_gang = self._scanning.gangs is not None and self._scanning.gangs.leaves_line(request)
        if self.knowledge.away is not None:
            self.knowledge.away.end(request)
        request.happens("withdraw")
        self.line.dequeue(request)
        if seat is not None and not of_gang:
            self._ensure_away().keep_seat(request, seat, retry_after, now)
        self.rescan(now)  # room may have been kept for it

    def _ensure_away(self) -> Away:
        """Return the namespace's callers that went away; make them with the first."""
        if self.knowledge.away is None:
            self.knowledge.away = Away(self.line, self.policy)
        return self.knowledge.away

    def leave(self, request: Request, now: float, identity: Identity, retry_after: float) -> bool:
        """Keep a waiting request in line unsent: its caller was told to come again after ``retry_after`` seconds.

        It holds the room that it would be given until its caller is due, and for as long after that as callers take:
        at most a second. ``come_back`` has it sent again. A new request of that ``identity`` takes its place, as it
        takes a seat (an equal one of that caller only once it is overdue), and this one is refused ("place-taken").
        The caller withdraws it if nobody comes back. False: it does not wait, or belongs to a gang.
        """
        now = self.shared.clock(now)
        if request.state != "waiting" or type(request) is not Request or self.is_away(request):
            return False
        self._ensure_away().leave(request, identity, retry_after, now)
        self.rescan(now)
        return True

    def come_back(self, request: Request, now: float) -> bool:
        """Let a request wait like any other again: its caller is there; False: it was not away."""
        now = self.shared.clock(now)
        if request.state != "waiting" or self.knowledge.away is None or not self.knowledge.away.come_back(request, now):
            return False
        self.rescan(now)
        return True

    def is_away(self, request: Request) -> bool:
        """Say whether a request waits whose caller is away."""
        return self.knowledge.away is not None and request in self.knowledge.away

    def prioritize(self, request: Request, priority: int, now: float) -> bool:
        """Give a waiting request another priority, as if it had joined with it; False: it does not wait."""
        now = self.shared.clock(now)
        if request.state != "waiting":
            return False
        row = request.row
        assert isinstance(row, Row)
        self.line.dequeue(request)
        request.priority = priority
        request.rank = request.joined - priority * self.policy.age_step
        self.line.enqueue(
            request, row.shape, "" if self.knowledge.away is None else self.knowledge.away.row_of(request)
        )
        self.rescan(now)
        return True

    def halt(self, now: float, *, halted: bool) -> None:
        """Stop sending in this namespace (``halted``), or go on; answers to earlier creates still teach."""
        if self._scanning.gangs is not None:
            self._scanning.gangs.halt(now, halted=halted)
        self.pace.halted = halted
        self.rescan(now)

    def force(self, request: Request, now: float) -> Ticket:
        """Admit at once, ungated (shadow mode, or a gate that fails open); the outcome still teaches."""
        now = self.shared.clock(now)
        knowledge = self.knowledge
        shape = knowledge.shape_of(request.demand)
        knowledge.know(shape)
        self.line.seq = request.seq = self.line.seq + 1
        request.joined = request.rank = now
        ticket = Ticket(request, shape, self.shared.flow(request.flow), now, False, False)
        knowledge.outstanding[ticket] = None
        self._set_alarm(now)
        return ticket

    def _join_row(self, request: Request, shape: Shape, now: float) -> None:
        """Let a request wait behind those that are equal to it, or decide on it if it is the first of its kind."""
        row = self.line.rows.get((request.demand.key, request.priority, request.row_mark or request.flow))
        if row is None or self.line.size >= self.policy.waiters_max:
            self._arrive(request, shape, now)
        else:
            request.happens("submit")
            self.line.enqueue(request, row.shape)

    def _arrive(self, request: Request, shape: Shape, now: float) -> None:
        """Decide on a request with no equal one waiting: it is admitted or refused at once, or opens a row."""
        knowledge = self.knowledge
        shape.used_at = now
        if shape.version != knowledge.version:
            knowledge.know(shape)
        if self.line.rows and self.line.size >= self.policy.waiters_max:
            self._scanning.refuse_full(request)
            return
        if shape.never is not None and self.policy.on_never_fits == "fail":
            self._scanning.refuse_never(request, shape)
            return
        admit = self._scanning.try_to_admit
        # Holds are ended in batches while no request waits: one whose time is over may be all that lacks.
        if not (admit(request, shape, now) or (knowledge.end_holds(now, self.policy) and admit(request, shape, now))):
            request.happens("submit")
            row = self.line.enqueue(request, shape)
            self.keeping.note_blocked(row, now)  # it counts as overtaken from now on, not only from the next scan on
            self._set_alarm(now)

    # -- time ---------

    def advance(self, now: float) -> None:
        """Do all that is due by ``now``: tickets lapse, room settles, holds end, waiting requests are admitted."""
        knowledge = self.knowledge
        while knowledge.outstanding:
            # A dict keeps the order of sending: if the first has not lapsed, no other has.
            oldest = next(iter(knowledge.outstanding))
            if oldest.sent + self.policy.ticket_max > now:
                break
            self.settle(oldest, Expired(), now)
            oldest.ended = "lapsed"  # its sender may still report the end: that is no second one
        if self.seen:
            self.shared.touch(self)
        gangs = self._scanning.gangs
        if gangs is not None:
            gangs.begin_advance(now)
        if self.settling.release(now):
            self.scan_due = True
        if knowledge.end_holds(now, self.policy):
            self.scan_due = True
        living = knowledge.living
        if (living.doubtful or now >= living.look_at) and living.look([*knowledge.ceilings()], now):
            self.scan_due = True
        for request in self.line.overdue(now, self.policy.wait_max):
            self._scanning.refuse_overdue(request)
            self.scan_due = True
        if (self.line.order or knowledge.gangs) and (self.scan_due or self.resume is not None or self._is_time(now)):
            self._scanning.scan(now)
        if gangs is not None:
            gangs.end_advance(now)
        self._set_alarm(now)

    def _is_time(self, now: float) -> bool:
        """Say whether the passing of time may have made an admission possible."""
        return (
            self.probing.open_due(now)
            or now >= self.keeping.next_change
            or self.pace.is_over(now)
            or (self._scanning.gangs is not None and self._scanning.gangs.is_due(now))
        )

    def _set_alarm(self, now: float) -> None:
        """Ask to be woken when the passing of time next changes something."""
        knowledge = self.knowledge
        held_until = knowledge.next_end(self.policy, 0.0 if self.line.rows else _UNHURRIED)
        at = min(self.settling.next_at(), held_until, knowledge.living.look_at)
        if self.line.order:
            if self.resume is not None or self.scan_due:
                at = now
            else:
                too_long = self.line.oldest + self.policy.wait_max
                at = min(at, too_long, self.keeping.next_change, self.probing.next_due(), self.pace.next_open(now))
        if self._scanning.gangs is not None:
            at = min(at, self._scanning.gangs.next_due(now))
        if at < FOREVER:
            self.shared.wake(self, max(now, at))

    def take_turn(self, window: Window, place: Place, now: float) -> None:
        """Send one create through a contended window, starting at the place that asked for the turn.

        A scan from the head of the line might be cut short before it gets there.
        """
        if self.seen:
            self.shared.touch(self)
        cut, self.resume = self.resume, place
        self.pace.turn = window  # the window admits one create in this scan, and counts it as the namespace's turn
        self._scanning.scan(now)
        self.pace.turn = None
        self.resume = min((place for place in (cut, self.resume) if place is not None), default=None)
        self._set_alarm(now)

    # -- what creates teach ---------

    def settle(  # noqa: C901, PLR0912 - written out: every create passes here
        self, ticket: Ticket, outcome: Outcome, now: float
    ) -> None:
        """End a ticket that has not ended before, and learn from how its create ended."""
        knowledge = self.knowledge
        ticket.ended = "settled"
        del knowledge.outstanding[ticket]
        window = ticket.window
        window.in_flight -= 1
        window.used_at = now
        if not isinstance(outcome, Created):
            ticket.request.state = _ENDS[outcome.event]
            self._not_created(ticket, outcome, now)
            return
        ticket.request.state = _CREATED
        window.failures = 0
        if window.in_flight * 2 + 2 >= window.size:
            window.good()
        shape = ticket.shape
        if ticket.unproven or self.pace.brake is not None:
            self._note_pace(ticket, outcome, now)
        if shape.resend_at:
            shape.note_counted()
            self.rescan(now)
        knowledge.undated_at = now
        charged = outcome.charged
        if charged is not None and charged.key != shape.charged_key:
            knowledge.correct_from(shape, charged, ticket)
        if ticket.probe:
            knowledge.disprove(ticket)
            self.probing.ended(ticket, now, passed=True)
            self.rescan(now)
        if shape.unsure and knowledge.admitted_against(ticket):
            self.rescan(now)
        if self._scanning.gangs is not None and isinstance(ticket.request, Draw):
            self._scanning.gangs.draw_ended(ticket, now, stored=True, uid=outcome.stored)
        if shape.meets:
            handed = knowledge.answered(shape, outcome.stored, now)
            if not self.line.rows:
                if self.wake_at > now + _UNHURRIED:
                    self.shared.wake(self, now + _UNHURRIED)
                return
            shape.note_drain(self.line.head_joined, now)
            if knowledge.observing:
                self.shared.settle_shorter(now - ticket.sent, now)
            else:
                self.keeping.note_release(now)  # created while others wait: room was released
            if handed:
                self.rescan(now)
            else:
                self.shared.wake(self, now + self.policy.answered_hold)

    def _note_pace(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        """Let more or fewer creates be in flight after this outcome."""
        self.pace.ended(ticket, outcome, len(self.knowledge.outstanding), now)
        if self.line.rows:
            self.rescan(now)

    def _not_created(  # noqa: C901, PLR0912 - written out: every refusal passes here
        self, ticket: Ticket, outcome: Outcome, now: float
    ) -> None:
        shape = ticket.shape
        never = False
        if isinstance(outcome, Rejected):
            shown = outcome.shows()
            if shown == "room":  # by its figures the create fits: it would be sent again at once
                outcome = Overloaded(scope="namespace")
            never = shown == "never"
        if ticket.unproven or self.pace.brake is not None:
            self._note_pace(ticket, outcome, now)
        if isinstance(outcome, Uncounted):
            shape.note_uncounted(ticket.sent, now, self.policy, self.shared.rng)
        elif shape.resend_at:
            shape.note_counted()
        for ceiling, amount in shape.meets:
            ceiling.held -= amount
            ceiling.room += amount
            if ceiling.credit:  # which never exceeds what is held
                ceiling.credit = min(ceiling.credit, ceiling.held)
        request = ticket.request
        gangs = self._scanning.gangs
        if gangs is not None and isinstance(request, Draw):
            gangs.draw_ended(ticket, now, stored=isinstance(outcome, Expired))
        if isinstance(outcome, Rejected):
            ticket.window.good()
            self._rejected(ticket, outcome, never, now)
        else:
            self.probing.ended(ticket, now, passed=False)
            if isinstance(outcome, Abandoned) and outcome.seat is not None and not isinstance(request, Draw):
                self._ensure_away().keep_seat(request, outcome.seat, outcome.retry_after, now)
            if isinstance(outcome, Overloaded) and outcome.scope == "flow":
                ticket.window.bad(ticket.sent, now, outcome.retry_after, self.policy.base, cut=self.policy.overload_cut)
            elif isinstance(outcome, Overloaded):
                self.pace.slow(outcome, ticket.sent, len(self.knowledge.outstanding) + 1, now)
        if request.state == "waiting" and (gangs is None or not gangs.refuses_return(request)):
            self.line.enqueue(request, shape)
        self.rescan(now)

    def _rejected(self, ticket: Ticket, rejected: Rejected, never: bool, now: float) -> None:
        """``never``: by the figures of the refusal the create does not even fit into the empty quota."""
        knowledge = self.knowledge
        shape = ticket.shape
        sent = ticket.sent if rejected.sent is None else rejected.sent
        if knowledge.observing and self._is_stale(ticket, rejected, sent, now):
            return
        if not rejected.requested.items() <= shape.amounts.items():
            knowledge.correct(shape, rejected.requested)
        fresh = knowledge.accept(rejected, shape.scopes, sent, now)
        living = knowledge.living
        living.doubtful = living.followed  # perhaps
        if fresh and (never or shape.suspected is not None):
            shape.suspect(rejected, now, self.policy)
        if shape.version != knowledge.version:
            knowledge.know(shape)
        self.probing.refused(rejected, fresh, ticket, now)

    def _is_stale(self, ticket: Ticket, rejected: Rejected, sent: float, now: float) -> bool:
        """Say whether a refusal speaks of a state older than ours; if so, let the create be sent again soon."""
        quota = self.knowledge.quotas.get(rejected.quota)
        replaced = None if quota is None or not quota.observed else quota.stale_since(rejected, sent)
        if quota is None or replaced is None:
            return False
        quota.stale += 1
        self.probing.ended(ticket, now, passed=False)
        if replaced <= sent:  # we acted on a change that the server had not seen yet: wait longer from now on
            self.shared.settle_longer(sent, now)
        until = now + self.shared.resend_after()
        self.settling.set_aside(quota, rejected, until)
        if isinstance(ticket.request, Draw):  # what is reserved for it is not set aside: it waits itself
            ticket.request.gang.not_before = until
        return True

    def learn(self, rejected: Rejected, scopes: frozenset[str], sent: float, now: float) -> None:
        fresh = self.knowledge.accept(rejected, scopes, sent, now)
        self.knowledge.living.doubtful = self.knowledge.living.followed  # perhaps
        self.probing.refused(rejected, fresh, None, now)
        self.rescan(now)

    # -- what quotas and ends of pods teach ---------

    def observe(self, name: str, seen: ObservedQuota, now: float, sent: float | None = None) -> bool:
        """Note a quota object as watched, or (``sent``) as listed without a watch; say whether it was believed."""
        knowledge = self.knowledge
        if sent is not None and not knowledge.believes_list(name, sent):
            return False
        version = knowledge.version
        rooms = knowledge.observe(name, seen, now, sent)
        quota = knowledge.quotas[name]
        settled_at = now + self.shared.settle_time
        members = knowledge.members
        for ceiling, added in rooms:
            room = added if members is None else members.whose(ceiling, added, settled_at, now)
            lag = self.shared.recount_lag if ceiling.resource in seen.recounted else 0.0
            young = quota.holds.ended_since(ceiling, now - lag)
            self.settling.add_recounted(settled_at, ceiling, room, young, lag)
        if members is not None:
            members.observed(quota.ceilings.values(), now)
        for ceiling, _ in rooms:
            self.probing.end(ceiling)
        if rooms:
            self.keeping.note_release(now, [ceiling for ceiling, _ in rooms])
            self.shared.wake(self, self.settling.next_at())
        if any(ceiling.doubt for ceiling in quota.ceilings.values()):
            knowledge.living.doubtful = True  # a new doubt comes with room, or with another limit: both wake us
        if knowledge.version != version:
            self._retain_ceilings()
            self.rescan(now)
        self.probing.dissolve()
        if quota.holds.confirm() or knowledge.gangs:  # strangers may have taken what is reserved
            self.rescan(now)
        return True

    def forget(self, name: str, now: float) -> None:
        """Note that a quota was deleted."""
        if self.knowledge.forget(name, now):
            self._retain_ceilings()
            self.rescan(now)

    def watch(self, *, healthy: bool, now: float) -> None:
        """Note that all quotas here are known and watched, or no longer are."""
        if self.knowledge.observing != healthy:
            self.knowledge.observing = healthy
            self.knowledge.undated_at = now
            if healthy and self.knowledge.members is not None:
                self.knowledge.members.shown_again(now)
            self.probing.dissolve()
            self.rescan(now)

    def hint(self, now: float) -> None:
        """Note that an own pod ended: where quotas can't be watched, probe after the learned lag."""
        if self._scanning.gangs is not None:
            self._scanning.gangs.hint(now)
        self.probing.hint(now)
        self.shared.wake(self, now + self.probing.lag)

    def follow_ends(self, now: float, *, told: bool) -> None:
        """Note that from now on every end is reported, or that some may be missed."""
        self.knowledge.living.follow(self.knowledge.ceilings(), followed=told)
        self.rescan(now)

    def ended(self, stored: str, now: float) -> None:
        """Note the end of an own object: one less that lives, and a hint of room. A member's room goes to its gang."""
        living = self.knowledge.living
        charged = living.charged(stored)
        has_to_fall = self.keeping.note_end(charged, now)
        if self._scanning.gangs is not None:
            has_to_fall = self.keeping.note_end(self._scanning.gangs.members.charged(stored), now) or has_to_fall
            self._scanning.gangs.ended(stored, charged, now)
        if living.end(stored, now) or has_to_fall:
            self.rescan(now)
        elif living.look_at < FOREVER:
            self.shared.wake(self, living.look_at)
        if not self.knowledge.observing:
            self.hint(now)

    def forget_idle(self, limit: float, now: float) -> bool:
        """Drop shapes and learned ceilings unused since ``limit``; say whether the namespace is empty."""
        self.probing.drop_rested(now)
        seats = 0 if self.knowledge.away is None else self.knowledge.away.empty_seats(now)
        self.knowledge.forget_shapes(limit, {row.shape for row in self.line.rows.values()})
        if self.line.rows or self.knowledge.outstanding or self.knowledge.gangs:
            return False
        if self.knowledge.forget_idle(limit):
            self._retain_ceilings()
        return not (self.knowledge.quotas or self.knowledge.shapes or seats)

    def _retain_ceilings(self) -> None:
        """Drop what is stored by ceiling for ceilings that no longer exist."""
        present = set(self.knowledge.ceilings())
        self.probing.retain(present)
        self.keeping.retain(present)

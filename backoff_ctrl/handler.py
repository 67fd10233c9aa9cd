"""``ComputeResourceAwareBackOffHandler``: one namespace. Who may go now, who waits for what, and until when.

Two tables drive it: ``blocks.BLOCKS`` and ``tickets.REQUESTS``. What is known is in ``knowledge``, who waits in
``line``, for whom room is kept in ``keeping``, when to ask in vain in ``probing``; here a create is offered its
chance, and each outcome is taken in.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from .errors import TicketError
from .keeping import Keeping
from .knowledge import Knowledge
from .line import Line, rank_of
from .pace import Pace
from .probing import FOREVER, Probing
from .settling import Settling
from .tickets import REQUESTS, Created, Expired, Overloaded, Refusal, Rejected, Ticket

if TYPE_CHECKING:
    from .blocks import Block
    from .ceilings import ObservedQuota
    from .line import Shape
    from .overload import Window
    from .shared import Shared
    from .tickets import Outcome, RefusalReason, Request

_NO_BLOCKS: Final[list[Block]] = []
_UNHURRIED: Final = 1.0  # seconds: while nobody waits, answered holds end in bundles


class ComputeResourceAwareBackOffHandler:
    """One namespace: learns its ceilings from rejections and observations and gates its creates."""

    __slots__ = (
        "_resume", "_scan_due", "_shared", "_waiters_max", "keeping", "knowledge", "line", "namespace", "pace",
        "policy", "probing", "seq", "settling", "wake_at",
    )  # fmt: skip

    def __init__(self, namespace: str, shared: Shared, *, observing: bool) -> None:
        """Start with nothing known and nobody waiting."""
        self.namespace = namespace
        self.policy = shared.policy
        self._shared = shared
        self.knowledge = Knowledge(observing=observing)
        self.line = Line()
        self.keeping = Keeping(self.policy)
        self.probing = Probing(namespace, self.knowledge, shared)
        self.settling = Settling()
        self.pace = Pace(self.policy, shared.rng)
        self.seq = 0
        self.wake_at = FOREVER
        self._resume: tuple[float, int] | None = None
        self._scan_due = False
        self._waiters_max = self.policy.waiters_max

    def submit(self, request: Request, now: float) -> None:
        """Take a new request: it goes, waits, or is refused, as ``advance`` then says."""
        if request.state != "new":
            request.happens("submit")
        line = self.line
        knowledge = self.knowledge
        shape = knowledge.shapes.get(request.demand.key) or knowledge.shape_of(request.demand)
        request.joined = now
        request.rank = now - request.priority * self.policy.age_step if request.priority else now
        self.seq = request.seq = self.seq + 1
        if shape.rows:
            row = shape.rows.get((request.priority, request.flow))
            if row is not None and line.size < self._waiters_max:
                # Its equals wait already: it goes after them, and nothing needs to be weighed.
                request.state = "waiting"
                request.demand = shape.demand
                request.row = row
                row.waiting.append(request)
                line.size += 1
                return
        if (
            line.size
            or shape.version != knowledge.version
            or shape.never is not None
            or not self._offer(request, shape, now)
        ):
            self._arrive(request, shape, now)

    def force(self, request: Request, now: float) -> Ticket:
        """Admit at once and ungated; what comes of it teaches all the same."""
        shape = self.knowledge.shape_of(request.demand)
        self.knowledge.know(shape)
        self.seq = request.seq = self.seq + 1
        request.joined = request.rank = now
        ticket = Ticket(request, shape, now, False, False)
        self.knowledge.outstanding[ticket] = None
        self._shared.flow(request.flow).in_flight += 1
        self._set_alarm(now)
        return ticket

    def withdraw(self, request: Request, now: float) -> None:
        """Let a waiting request leave the line."""
        request.happens("withdraw")
        self.line.leave(request)
        self._look(now)  # room that was kept for it is free

    def settle(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        """End a ticket, once."""
        if ticket.ended:
            if ticket.ended == "lapsed":
                return  # the engine gave it up before its sender did
            raise TicketError(f"the ticket of request {ticket.request.id} was ended before")
        request = ticket.request
        if isinstance(outcome, Rejected) and not outcome.shows_full():
            outcome = Overloaded(scope="namespace")  # by its own figures it would get in, again and again
        request.state = REQUESTS[request.state][outcome.event]
        ticket.ended = "settled"
        knowledge = self.knowledge
        del knowledge.outstanding[ticket]
        flow = self._shared.flows[request.flow]
        flow.in_flight -= 1
        flow.used_at = now
        if ticket.unproven or self.pace.brake is not None:
            self.pace.ended(outcome, unproven=ticket.unproven)
            if self.line.size:
                self._look(now)
        if isinstance(outcome, Created):
            if flow.failures or flow.in_flight * 2 >= flow.size:
                flow.good()
            self._created(ticket, outcome, now)
        else:
            self._not_created(ticket, outcome, flow, now)

    def observe(self, name: str, seen: ObservedQuota, now: float) -> None:
        """Take in a quota object as watched or read."""
        knowledge = self.knowledge
        version = knowledge.version
        rooms = knowledge.observe(name, seen, now)
        settled_at = now + self._shared.settle_time
        for ceiling, room in rooms:
            lag = self._shared.recount_lag if ceiling.resource in seen.recounted else 0.0
            self.settling.add_observed(settled_at, ceiling, room, now - lag, lag)
        if rooms:
            self.keeping.note_release(now)
            self._shared.wake(self, self.settling.next_at())
        self.probing.dissolve()
        if knowledge.quotas[name].holds.confirm() or knowledge.version != version:
            self._look(now)

    def forget(self, name: str, now: float) -> None:
        """Take in that a quota is gone."""
        if self.knowledge.forget(name):
            self._look(now)

    def watch(self, *, healthy: bool, now: float) -> None:
        """Take in that all quotas here are known and watched, or no longer are."""
        if self.knowledge.observing != healthy:
            self.knowledge.observing = healthy
            self.probing.dissolve()
            self._look(now)

    def hint(self, now: float) -> None:
        """Hear that an own pod ended: where quotas can't be watched, probe after the learned lag."""
        self.probing.hint(now)
        self._shared.wake(self, now + self.probing.lag)

    def learn(self, rejected: Rejected, scopes: frozenset[str], sent: float, now: float) -> None:
        """Take in a refusal that an ungated request met."""
        fresh = self.knowledge.accept(rejected, scopes, sent, now)
        self.probing.refused(rejected, fresh, None, now)
        self._look(now)

    def _arrive(self, request: Request, shape: Shape, now: float) -> None:
        """Weigh a request whose equals do not wait: it goes at once, or opens a row."""
        knowledge = self.knowledge
        shape.used_at = now
        if shape.version != knowledge.version:
            knowledge.know(shape)
        if self.line.size >= self.policy.waiters_max:
            self._refuse(request, "too-many-waiting", f"{self.line.size} requests wait in {self.namespace} already")
        elif shape.never is not None and self.policy.on_never_fits == "fail":
            self._refuse(request, "never-fits", shape.never_sentence())
        elif not (
            self._offer(request, shape, now)
            or (knowledge.end_holds(now, self.policy) and self._offer(request, shape, now))
        ):
            request.happens("submit")
            row = shape.row_of(request)
            self.line.join(request, row)
            self.keeping.weigh(row, now)  # from now on it is overtaken, not only from the next look on
            self._set_alarm(now)

    def _offer(self, request: Request, shape: Shape, now: float) -> bool:
        """Admit the request if it may go now, as a probe if need be; say whether it went."""
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
        free = window.in_flight + 1 <= window.size and now >= window.not_before and not window.turns
        free = free and pace.brake is None
        if not free:
            place = (request.rank, request.seq)
            if not pace.allows(self, window, shared.contended, len(self.knowledge.outstanding), place, now):
                return False
        ticket = Ticket(request, shape, now, bool(blocks), unproven)
        for block in blocks:
            block.sends(ticket)
        outstanding = self.knowledge.outstanding
        if not outstanding and self.wake_at > now + self.policy.ticket_max:
            shared.wake(self, now + self.policy.ticket_max)
        outstanding[ticket] = None
        window.in_flight += 1
        if unproven:
            pace.unproven += 1
        shared.effects.append(ticket)
        if self.line.size:
            self._overtake(ticket, now)
        return True

    def _overtake(self, ticket: Ticket, now: float) -> None:
        """Let the admitted leave the line, and count whom it overtook; a probe's room was nobody's yet."""
        request = ticket.request
        if request.row is not None:
            self.line.leave(request)
        if self.keeping.next_for and not ticket.probe and self.keeping.overtook(ticket.shape, request, now):
            self._look(now)

    def _created(self, ticket: Ticket, outcome: Created, now: float) -> None:
        shape = ticket.shape
        knowledge = self.knowledge
        charged = outcome.charged
        if charged is not None and charged.key != shape.charged_key:
            knowledge.correct_from(shape, charged, ticket)
        if ticket.probe:
            knowledge.disprove(ticket)
            self.probing.ended(ticket, passed=True)
            self._look(now)
        if shape.unsure and knowledge.admitted_against(ticket):
            self._look(now)
        if shape.meets:
            handed = knowledge.answered(shape, now)
            if not self.line.size:
                if self.wake_at > now + _UNHURRIED:
                    self._shared.wake(self, now + _UNHURRIED)
                return
            if knowledge.observing:
                self._shared.settle_shorter(now - ticket.sent, now)
            else:
                self.keeping.note_release(now)  # somebody got in while others wait: something was released
            if handed:
                self._look(now)
            else:
                self._shared.wake(self, now + self.policy.answered_hold)

    def _not_created(self, ticket: Ticket, outcome: Outcome, flow: Window, now: float) -> None:
        for ceiling, amount in ticket.shape.meets:
            ceiling.release(amount)
        if isinstance(outcome, Rejected):
            flow.good()
            self._rejected(ticket, outcome, now)
        else:
            self.probing.ended(ticket, passed=False)
            if isinstance(outcome, Overloaded) and outcome.scope == "flow":
                flow.bad(ticket.sent, now, outcome.retry_after, self.policy.base)
            elif isinstance(outcome, Overloaded):
                self.pace.conflicted(ticket.sent, now, outcome.retry_after, len(self.knowledge.outstanding) + 1)
        if ticket.request.state == "waiting":
            self.line.join(ticket.request, ticket.shape.row_of(ticket.request))
        self._look(now)

    def _rejected(self, ticket: Ticket, rejected: Rejected, now: float) -> None:
        knowledge = self.knowledge
        shape = ticket.shape
        sent = ticket.sent if rejected.sent is None else rejected.sent
        quota = knowledge.quotas.get(rejected.quota)
        if quota is not None and knowledge.is_watched(quota):
            replaced = quota.stale_since(rejected, sent)
            if replaced is not None:
                self.probing.ended(ticket, passed=False)
                if replaced <= sent:  # we acted on news that the server had not seen yet: from now on it gets longer
                    self._shared.settle_longer(sent, now)
                self.settling.set_aside(quota, rejected, now + self._shared.resend_after())
                return
        knowledge.correct(shape, rejected.requested)
        fresh = knowledge.accept(rejected, shape.scopes, sent, now)
        if fresh:
            shape.suspect(rejected, now, self.policy)
        if shape.version != knowledge.version:
            knowledge.know(shape)
        self.probing.refused(rejected, fresh, ticket, now)

    def _refuse(self, request: Request, reason: RefusalReason, detail: str) -> None:
        request.happens("refuse")
        if request.row is not None:
            self.line.leave(request)
        self._shared.effects.append(Refusal(request, reason, detail))

    def _look(self, now: float) -> None:
        """Have the line looked over at the next advance."""
        self._scan_due = True
        self._shared.wake(self, now)

    def advance(self, now: float) -> None:
        """Do all that is due: room settles, holds end, blocks open, waiters are offered their chance."""
        if self.settling.release(now):
            self._scan_due = True
        if self.knowledge.end_holds(now, self.policy):
            self._scan_due = True
        self._expire_tickets(now)
        for request in self.line.overdue(now, self.policy.wait_max):
            self._refuse(request, "waited-too-long", f"waited {self.policy.wait_max:g} s in {self.namespace}")
            self._scan_due = True
        if self.line.order and (self._scan_due or self._resume is not None or self._is_time(now)):
            self.scan(now)
        elif not self.line.order:
            self.probing.rest()
        self._set_alarm(now)

    def _is_time(self, now: float) -> bool:
        """Say whether time alone may let somebody go."""
        return self.probing.open_due(now) or now >= self.keeping.next_change or self.pace.is_over(now)

    def _set_alarm(self, now: float) -> None:
        """Ask to be woken at the next thing that time alone brings about."""
        patience = self.policy.answered_hold if self.line.size else _UNHURRIED
        at = min(self.settling.next_at(), self.knowledge.next_end(patience, self.policy.ticket_max))
        if self.line.order:
            too_long = self.line.oldest + self.policy.wait_max
            at = min(at, too_long, self.keeping.next_change, self.probing.next_due(), self.pace.next_open(now))
            if self._resume is not None or self._scan_due:
                at = now
        if at < FOREVER:
            self._shared.wake(self, max(now, at))

    def _expire_tickets(self, now: float) -> None:
        while self.knowledge.outstanding:
            oldest = next(iter(self.knowledge.outstanding))
            if oldest.sent + self.policy.ticket_max > now:
                return
            self.settle(oldest, Expired(), now)
            oldest.ended = "lapsed"

    def take_turn(self, window: Window, place: tuple[float, int], now: float) -> None:
        """Take a turn at a contended window, from the place that asked: a look from the head may not get there."""
        cut, self._resume = self._resume, place
        self.pace.turn = window
        self.scan(now)
        self.pace.turn = None
        self._resume = min((place for place in (cut, self._resume) if place is not None), default=None)
        self._set_alarm(now)

    def scan(self, now: float) -> None:
        """Go over the line in order and admit whoever may go; stop after ``scan_max`` rows and go on next time."""
        order = self.line.order
        if self._scan_due:
            self._resume = None  # news since a look was cut short: the first in line come first
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
            elif not self._offer(row.waiting[0], shape, now):
                self.keeping.weigh(row, now)
                at += 1
            elif self._scan_due:  # somebody is overtaken to the full: keep for them before going on
                self.keeping.begin()
                self._scan_due = False
                at = 0

    def forget_idle(self, limit: float) -> bool:
        """Drop shapes and learned ceilings unused since ``limit``; say whether nothing at all is left to keep."""
        self.knowledge.forget_shapes(limit)
        if self.line.size or self.knowledge.outstanding:
            return False
        self.knowledge.forget_idle(limit)
        return not self.knowledge.quotas and not self.knowledge.shapes

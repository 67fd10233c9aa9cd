"""``ComputeResourceAwareBackOffHandler``: one namespace. Every outcome and every change of a quota is taken in here.

Two tables drive it: ``blocks.BLOCKS`` and ``requests.REQUESTS``. ``admission`` decides which requests are sent,
``knowledge`` holds what is known, ``line`` who waits, ``keeping`` for whom room is kept, ``probing`` when to test for
room.
"""

from __future__ import annotations

from typing import Final

from .admission import UNHURRIED
from .backoff import FOREVER
from .drains import Drain
from .gang_admission import GangAdmission
from .gangs import Draw
from .outcomes import Abandoned, Created, Expired, Outcome, Overloaded, Rejected
from .quotas import ObservedQuota
from .requests import REQUESTS, Request
from .shapes import Shape
from .tickets import Ticket

_ENDS: Final = REQUESTS["sent"]


class ComputeResourceAwareBackOffHandler(GangAdmission):
    """One namespace: learns its ceilings from rejections and observations and gates its creates."""

    __slots__ = ()

    def force(self, request: Request, now: float) -> Ticket:
        """Admit at once and ungated; the outcome is learned from like any other."""
        shape = self.knowledge.shape_of(request.demand)
        self.knowledge.know(shape)
        self.seq = request.seq = self.seq + 1
        request.joined = request.rank = now
        ticket = Ticket(request, shape, self._shared.flow(request.flow), now, False, False)
        self.knowledge.outstanding[ticket] = None
        self._set_alarm(now)
        return ticket

    def settle(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        """End a ticket that has not ended before, and learn from how its create ended."""
        request = ticket.request
        if isinstance(outcome, Rejected) and not outcome.shows_full():
            outcome = Overloaded(scope="namespace")  # by its figures the create fits: it would be sent again at once
        request.state = _ENDS[outcome.event]
        ticket.ended = "settled"
        knowledge = self.knowledge
        del knowledge.outstanding[ticket]
        window = ticket.window
        window.in_flight -= 1
        window.used_at = now
        if ticket.unproven or self.pace.brake is not None:
            self.pace.ended(ticket, outcome, len(knowledge.outstanding), now)
            if self.line.rows:
                self._rescan(now)
        if isinstance(outcome, Created):
            window.good()
            self._created(ticket, outcome, now)
        else:
            self._not_created(ticket, outcome, now)

    def observe(self, name: str, seen: ObservedQuota, now: float, sent: float | None = None) -> bool:
        """Note a quota object as watched, or (``sent``) as listed without a watch; say whether it was believed."""
        knowledge = self.knowledge
        if sent is not None and not knowledge.believes_list(name, sent):
            return False
        version = knowledge.version
        rooms = knowledge.observe(name, seen, now, sent)
        quota = knowledge.quotas[name]
        settled_at = now + self._shared.settle_time
        for ceiling, room in rooms:
            lag = self._shared.recount_lag if ceiling.resource in seen.recounted else 0.0
            young = quota.holds.ended_since(ceiling, now - lag)
            self.settling.add_recounted(settled_at, ceiling, room, young, lag)
        for ceiling, _ in rooms:
            self.probing.end(ceiling)
        if rooms:
            self.keeping.note_release(now)
            self._shared.wake(self, self.settling.next_at())
        if any(ceiling.doubt for ceiling in quota.ceilings.values()):
            knowledge.living.doubtful = True  # a new doubt comes with room, or with another limit: both wake us
        if knowledge.version != version:
            self._retain_ceilings()
            self._rescan(now)
        self.probing.dissolve()
        if quota.holds.confirm() or knowledge.gangs:  # strangers may have taken what is reserved
            self._rescan(now)
        return True

    def forget(self, name: str, now: float) -> None:
        """Note that a quota was deleted."""
        if self.knowledge.forget(name, now):
            self._retain_ceilings()
            self._rescan(now)

    def watch(self, *, healthy: bool, now: float) -> None:
        """Note that all quotas here are known and watched, or no longer are."""
        if self.knowledge.observing != healthy:
            self.knowledge.observing = healthy
            self.knowledge.told_at = now
            self.probing.dissolve()
            self._rescan(now)

    def hint(self, now: float) -> None:
        """Note that an own pod ended: where quotas can't be watched, probe after the learned lag."""
        super().hint(now)
        self.probing.hint(now)
        self._shared.wake(self, now + self.probing.lag)

    def follow_ends(self, now: float, *, told: bool) -> None:
        """Note that from now on every end is reported, or that some may be missed."""
        self.knowledge.living.follow(self.knowledge.ceilings(), told=told)
        self._rescan(now)

    def ended(self, stored: str, now: float) -> None:
        """Note the end of an own object: one less that lives, and a hint of room."""
        living = self.knowledge.living
        if living.end(stored, now):
            self._rescan(now)
        elif living.look_at < FOREVER:
            self._shared.wake(self, living.look_at)
        if not self.knowledge.observing:
            self.hint(now)

    def learn(self, rejected: Rejected, scopes: frozenset[str], sent: float, now: float) -> None:
        """Learn from the refusal of an ungated create."""
        fresh = self.knowledge.accept(rejected, scopes, sent, now)
        self.knowledge.living.doubtful = self.knowledge.living.told  # perhaps
        self.probing.refused(rejected, fresh, None, now)
        self._rescan(now)

    def _created(self, ticket: Ticket, outcome: Created, now: float) -> None:
        shape = ticket.shape
        knowledge = self.knowledge
        knowledge.told_at = now
        charged = outcome.charged
        if charged is not None and charged.key != shape.charged_key:
            knowledge.correct_from(shape, charged, ticket)
        if ticket.probe:
            knowledge.disprove(ticket)
            self.probing.ended(ticket, now, passed=True)
            self._rescan(now)
        if shape.unsure and knowledge.admitted_against(ticket):
            self._rescan(now)
        if self.with_gangs and isinstance(ticket.request, Draw):
            self.draw_ended(ticket, now, stored=True)
        if shape.meets:
            handed = knowledge.answered(shape, outcome.stored, now)
            if not self.line.rows:
                if self.wake_at > now + UNHURRIED:
                    self._shared.wake(self, now + UNHURRIED)
                return
            self._drains(shape, now)
            if knowledge.observing:
                self._shared.settle_shorter(now - ticket.sent, now)
            else:
                self.keeping.note_release(now)  # created while others wait: room was released
            if handed:
                self._rescan(now)
            else:
                self._shared.wake(self, now + self.policy.answered_hold)

    def _drains(self, shape: Shape, now: float) -> None:
        """Learn how fast creates get in while others wait."""
        since = self.line.head_joined
        for ceiling, amount in shape.meets:
            if ceiling.drain is None:
                ceiling.drain = Drain()
            ceiling.drain.add(amount, since, now)

    def _not_created(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        for ceiling, amount in ticket.shape.meets:
            ceiling.release(amount)
        request = ticket.request
        if self.with_gangs and isinstance(request, Draw):
            self.draw_ended(ticket, now, stored=isinstance(outcome, Expired))
        if isinstance(outcome, Rejected):
            ticket.window.good()
            self._rejected(ticket, outcome, now)
        else:
            self.probing.ended(ticket, now, passed=False)
            if isinstance(outcome, Abandoned) and outcome.seat is not None and not isinstance(request, Draw):
                self.keep_seat(request, outcome.seat, outcome.retry_after, now)
            if isinstance(outcome, Overloaded) and outcome.scope == "flow":
                ticket.window.bad(ticket.sent, now, outcome.retry_after, self.policy.base, cut=self.policy.overload_cut)
            elif isinstance(outcome, Overloaded):
                self.pace.slow(outcome, ticket.sent, len(self.knowledge.outstanding) + 1, now)
        if request.state == "waiting":
            if self.with_gangs:
                self._return(request, ticket.shape)
            else:
                self.line.join(request, ticket.shape)
        self._rescan(now)

    def _rejected(self, ticket: Ticket, rejected: Rejected, now: float) -> None:
        knowledge = self.knowledge
        shape = ticket.shape
        sent = ticket.sent if rejected.sent is None else rejected.sent
        quota = knowledge.quotas.get(rejected.quota)
        if quota is not None and knowledge.is_watched(quota.name):
            replaced = quota.stale_since(rejected, sent)
            if replaced is not None:
                quota.stale += 1
                self.probing.ended(ticket, now, passed=False)
                if replaced <= sent:  # we acted on a change that the server had not seen yet: wait longer from now on
                    self._shared.settle_longer(sent, now)
                until = now + self._shared.resend_after()
                self.settling.set_aside(quota, rejected, until)
                if isinstance(ticket.request, Draw):  # what is reserved for it is not set aside: it waits itself
                    ticket.request.gang.not_before = until
                return
        knowledge.correct(shape, rejected.requested)
        fresh = knowledge.accept(rejected, shape.scopes, sent, now)
        knowledge.living.doubtful = knowledge.living.told  # perhaps
        if fresh:
            shape.suspect(rejected, now, self.policy)
        if shape.version != knowledge.version:
            knowledge.know(shape)
        self.probing.refused(rejected, fresh, ticket, now)

    def advance(self, now: float) -> None:
        """Do all that is due by ``now``: tickets lapse, room settles, holds end, waiting requests are admitted."""
        while self.knowledge.outstanding:
            oldest = next(iter(self.knowledge.outstanding))
            if oldest.sent + self.policy.ticket_max > now:
                break
            self.settle(oldest, Expired(), now)
            oldest.ended = "lapsed"
        super().advance(now)

    def forget_idle(self, limit: float, now: float) -> bool:
        """Drop shapes and learned ceilings unused since ``limit``; say whether nothing at all is left."""
        self.probing.drop_rested(now)
        if self.seats is not None:
            self.seats.expire(now)
        self.knowledge.forget_shapes(limit, {row.shape for row in self.line.rows.values()})
        if self.line.rows or self.knowledge.outstanding or self.knowledge.gangs:
            return False
        if self.knowledge.forget_idle(limit):
            self._retain_ceilings()
        return not (self.knowledge.quotas or self.knowledge.shapes or self.seats)

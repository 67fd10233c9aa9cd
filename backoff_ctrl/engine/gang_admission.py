"""Gangs in the waiting line of one namespace: the whole is admitted as one, and its members are drawn from that."""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import Final

from .admission import NO_BLOCKS, Admission
from .backoff import FOREVER
from .demand import Demand
from .errors import GangError
from .gangs import Draw, Gang, GangEnd, GivenBack, Grant, Reservation, balance
from .quota_reads import QuotaReads
from .requests import Request
from .seats import Identity
from .shapes import Shape
from .shared import Shared
from .tickets import Ticket

_PLACE: Final = attrgetter("place")


class GangAdmission(Admission):
    """The waiting line of one namespace, with gangs in it."""

    __slots__ = ("_halted_at", "_next_draw", "_short", "reads", "waiting_gangs")

    def __init__(self, namespace: str, shared: Shared, *, observing: bool, ends_told: bool = False) -> None:
        """Start without gangs."""
        super().__init__(namespace, shared, observing=observing, ends_told=ends_told)
        self.reads = QuotaReads(namespace, shared)
        self.waiting_gangs = 0
        self._next_draw = FOREVER
        self._halted_at = -FOREVER  # no later than the gangs of a line that was made while halted
        self._short: list[Gang] = []  # of this scan: admitted gangs that lack room, by their place

    # -- what callers ask ---------

    def reserve(self, request: Reservation, now: float, *, standing: bool) -> None:
        """Admit a whole gang, let it wait, or refuse it. ``standing``: what lives already still lacks it: no wait."""
        _expect_new(request)
        self.with_gangs = True
        request.joined = now
        request.rank = now - request.priority * self.policy.age_step
        self.seq = request.seq = self.seq + 1
        shape = self.knowledge.shape_of(request.demand)
        self.knowledge.know(shape)
        if standing:
            shape.used_at = now
            self._grant(request, shape, now, whole=self.knowledge.observing or not self.reads.unreadable)
            self._rescan(now)
            return
        row = self.line.rows.get((request.demand.key, request.priority, request.flow))
        if row is None:
            self._arrive(request, shape, now)
        elif self.line.size >= self.policy.waiters_max:
            self._refuse(request, "too-many-waiting", f"{self.line.size} requests wait in {self.namespace} already")
        else:
            request.happens("submit")
            self.line.join(request, shape)
        if request.state == "waiting":
            self.waiting_gangs += 1
            if self.reads.wanted:
                self._rescan(now)
        self._set_alarm(now)

    def draw(self, draw: Draw, now: float) -> None:
        """Send one member of an admitted gang, or let it wait at the gang's place. ``GangError``: none is left."""
        _expect_new(draw)
        gang = draw.gang
        draw.joined = now
        draw.rank = gang.place[0]
        self.seq = draw.seq = self.seq + 1
        if gang.end == "complete" or (gang.end is None and not gang.may_draw(draw.part)):
            raise GangError(f"all members of part {draw.part + 1} of the gang {gang.id} are drawn")
        if gang.end is not None:
            self._refuse_draw(draw)
            return
        shape = gang.shapes[draw.part]
        self.knowledge.know(shape)
        gang.waits(draw)
        if not self._try(draw, shape, now):
            draw.happens("submit")
            self.line.join(draw, shape)
            self._rescan(now)
        self._set_alarm(now)

    def give_back(self, gang: Gang, now: float) -> None:
        """End a gang: what is undrawn is no longer reserved, and draws that wait are refused. Twice is no error."""
        if gang.end is None:
            self._end_gang(gang, "given-back")
            self._rescan(now)

    def appeared(self, gang: Gang, uid: str, charged: Demand, now: float) -> bool:
        """Take a member that others created out of what is reserved, and hold its real charge; False: it is none.

        It counts once per ``uid``; one more than the gang has is a stranger.
        """
        part = gang.part_of(charged)
        if gang.end is not None or uid in gang.uids or part is None:
            return False
        gang.uids.add(uid)
        gang.draws(part, now)
        gang.moved = now
        shape = Shape(charged)  # not that of creates which ask for this much: those may be charged more
        self.knowledge.know(shape)
        for ceiling, amount in shape.meets:
            ceiling.reserve(amount)
        self.knowledge.told_at = now  # as a 201 is: a list that was asked for before may lack it
        if shape.meets:
            self.knowledge.answered(shape, "", now)
        self._correct(gang, part, shape)
        self._rescan(now)
        self._look_whether_complete(gang)
        return True

    def looked(self, now: float, *, readable: bool | None) -> None:
        """Note the end of a read of the quotas that a ``Look`` asked for; what it found was reported before.

        ``readable``: None if the read failed, which says nothing about the next.
        """
        if self.reads.ended(now, readable=readable):
            self._rescan(now)

    # -- the line ---------

    def halt(self, now: float, *, halted: bool) -> None:
        """Send nothing from now on, or go on. Limits of gangs stand still meanwhile: they may draw nothing."""
        if halted and not self.pace.halted:
            self._halted_at = now
        elif self.pace.halted and not halted:
            for gang in self.knowledge.gangs:
                gang.stood_still(self._halted_at, now)
        super().halt(now, halted=halted)

    def given_back_at(self, gang: Gang, now: float) -> float:
        """Return when the limit of a gang ends if nothing of it is drawn, and the halt, if any, ends now."""
        return gang.since + gang.limit + (now - max(gang.since, self._halted_at) if self.pace.halted else 0.0)

    def hint(self, now: float) -> None:
        """Note that an own pod ended: read the quotas soon, if a gang waits for that."""
        self.reads.bring_forward(now + self.probing.lag)

    def withdraw(self, request: Request, now: float, seat: Identity | None = None, retry_after: float = 0.0) -> None:
        """Take a waiting request out of the line. Gangs and draws leave no seat: a gang keeps what it has itself."""
        if isinstance(request, Draw):
            request.gang.waits_no_more(request)
        elif isinstance(request, Reservation):
            self.waiting_gangs -= 1
        super().withdraw(request, now, None if isinstance(request, Draw | Reservation) else seat, retry_after)

    def _try_any(self, request: Request, shape: Shape, now: float) -> bool:
        if isinstance(request, Draw):
            return self._try_draw(request, shape, now)
        if isinstance(request, Reservation):
            return not self.pace.halted and self._try_whole(request, shape, now)
        return self._try_to_admit(request, shape, now)

    def _try_whole(self, request: Reservation, shape: Shape, now: float) -> bool:
        """Admit a gang if the whole of it fits by what is watched, or was read this moment."""
        observing = self.knowledge.observing
        reads = self.reads
        if reads.unreadable and not observing and not reads.may_try_again(now):
            return self._without_sight(request, shape, now)
        if not (
            (observing or reads.weighing)
            and all(amount <= ceiling.room for ceiling, amount in shape.meets)
            and not (self.keeping.kept and self.keeping.closes(shape, request))
        ):
            reads.wanted = reads.wanted or not observing
            return False
        self._grant(request, shape, now, whole=True)
        reads.in_vain = False
        return True

    def _without_sight(self, request: Reservation, shape: Shape, now: float) -> bool:
        """Deal with a gang where quotas can't be read, as the policy says."""
        if self.policy.gang_blind == "one_by_one":
            self._grant(request, shape, now, whole=False)
        else:
            self._refuse(
                request,
                "quotas-unreadable",
                f"the quotas of {self.namespace} can't be read, so nothing tells whether the whole gang fits",
            )
        return True

    def _grant(self, request: Reservation, shape: Shape, now: float, *, whole: bool) -> None:
        """Admit a gang: reserve what its members will be charged."""
        if request.row is not None:
            self.line.leave(request)
            self.waiting_gangs -= 1
        request.happens("grant")
        limit = self.policy.gang_limit if request.limit is None else request.limit
        gang = Gang(request, [part for part, _ in shape.parts], limit, now, whole=whole)
        for part in gang.shapes:
            self.knowledge.know(part)
        gang.recount()
        insort(self.knowledge.gangs, gang, key=_PLACE)
        self._shared.effects.append(Grant(request, gang))
        if self.keeping.next_for and self.keeping.overtook(shape, request, now):
            self._rescan(now)

    def _try_draw(self, draw: Draw, shape: Shape, now: float) -> bool:
        """Send a member of a gang if what is reserved for it is backed by room, else perhaps as a probe.

        It passes the line, but not the overload window.
        """
        gang = draw.gang
        if now < gang.not_before:
            self._next_draw = min(self._next_draw, gang.not_before)
            return False
        if gang.whole:
            self._balance()
            backed = self._is_backed(gang, shape)
            blocks = NO_BLOCKS if backed else self.probing.ready_blocks(shape, now, gang.covered)
            sent = blocks is not None and self._try_to_admit(draw, shape, now, blocks)
        else:
            sent = gang.is_next(draw) and self._try_to_admit(draw, shape, now)
        if sent:
            self._drawn(draw, now)
        return sent

    def _is_backed(self, gang: Gang, shape: Shape) -> bool:
        """Say whether a member fits what its gang has reserved; what that lacks is taken of everybody's room.

        Not of room that is kept for one ahead of the gang.
        """
        lacking = [
            (ceiling, amount - covered)
            for ceiling, amount in shape.meets
            if amount > (covered := gang.covered.get(ceiling, 0))
        ]
        kept = self.keeping.kept
        if any(lack > ceiling.room or kept.get(ceiling, gang.place) < gang.place for ceiling, lack in lacking):
            return False
        for ceiling, lack in lacking:
            gang.cover(ceiling, lack)
        return True

    def _balance(self) -> None:
        balance(self.knowledge.gangs, self.knowledge.ceilings())

    def _drawn(self, draw: Draw, now: float) -> None:
        gang = draw.gang
        gang.waits_no_more(draw)
        gang.in_flight += 1
        gang.draws(draw.part, now)

    def _refuse(self, request: Request, *why: object) -> None:
        if isinstance(request, Draw):
            request.gang.waits_no_more(request)
        elif isinstance(request, Reservation) and request.row is not None:
            self.waiting_gangs -= 1
        super()._refuse(request, *why)  # type: ignore[arg-type]

    # -- the end of a draw, and of a gang ---------

    def draw_ended(self, ticket: Ticket, now: float, *, stored: bool) -> None:
        """Note how a draw ended: what was not stored may be drawn again."""
        draw = ticket.request
        assert isinstance(draw, Draw)
        gang = draw.gang
        gang.in_flight -= 1
        if not stored:
            gang.put_back(draw.part)
        if draw.state != "waiting":
            gang.since = gang.moved = now
        else:
            if gang.in_flight == 0:  # sent back: it does not put the limit off
                gang.since = gang.moved
            if gang.end is None:
                gang.waits(draw)
        self._look_whether_complete(gang)
        if not gang.whole:
            self._rescan(now)  # the next one may go

    def _return(self, request: Request, shape: Shape) -> None:
        """Let a request that was sent in vain wait again at its old place; a draw only while its gang lasts."""
        if isinstance(request, Draw) and request.gang.end is not None:
            self._refuse_draw(request)
        else:
            self.line.join(request, shape)

    def _refuse_draw(self, draw: Draw) -> None:
        self._refuse(draw, "given-back", f"the gang {draw.gang.id} is over: what it had not drawn was given back")

    def _look_whether_complete(self, gang: Gang) -> None:
        if gang.end is None and gang.in_flight == 0 and not any(gang.undrawn):
            self._end_gang(gang, "complete")

    def _end_gang(self, gang: Gang, end: GangEnd) -> None:
        gang.end = end
        self.knowledge.gangs.remove(gang)
        gang.release()
        for draw in list(gang.waiting):
            self._refuse_draw(draw)

    def _correct(self, gang: Gang, part: int, seen: Shape) -> None:
        """Expect of the members that are still to come what one of them was really charged."""
        shape = gang.shapes[part]
        if shape.charges(seen.demand):
            return
        shape.learn_from(seen)
        self.knowledge.restructure()

    # -- time and scans ---------

    def _begin_advance(self, now: float) -> None:
        late = [each for each in self.knowledge.gangs if each.since + each.limit <= now]
        for gang in late if not self.pace.halted else ():
            if any(gang.undrawn):
                drawn, left = gang.drawn, gang.left
                self._end_gang(gang, "limit")
                self._shared.effects.append(GivenBack(gang, drawn, left))
                self._scan_due = True
        self.reads.lapse(now)

    def _end_advance(self, now: float) -> None:
        if self.reads.weighing and self._resume is None and self.settling.next_at() == FOREVER:
            self.reads.dropped(now)

    def _is_time(self, now: float) -> bool:
        return self.reads.is_due(now) or super()._is_time(now) or now >= self._next_draw

    def _next_of_gangs(self, now: float) -> float:
        lasting = () if self.pace.halted else self.knowledge.gangs
        at = min((gang.since + gang.limit for gang in lasting if any(gang.undrawn)), default=FOREVER)
        if self.knowledge.gangs:
            at = min(at, self._next_draw, self.keeping.next_change)
            if self._scan_due:
                at = now
        return min(at, self.reads.next_at(awaited=bool(self.line.order)))

    def _begin_scan(self) -> None:
        super()._begin_scan()
        if not self.with_gangs:
            return
        self.reads.wanted = False
        self._next_draw = FOREVER
        self._short = []
        gangs = self.knowledge.gangs
        if gangs:
            self._balance()
            self._short = [gang for gang in gangs if gang.whole and gang.deficits]

    def _before(self, place: tuple[float, int], now: float) -> None:
        while self._short and self._short[0].place < place:
            self._make_up(self._short.pop(0), now)

    def _end_scan(self, now: float) -> None:
        self._before((FOREVER, 0), now)
        if self.reads.weighing and self.settling.next_at() == FOREVER:
            self.reads.weighed(now)
        if self.reads.wanted:
            self.reads.ask(now)

    def _make_up(self, gang: Gang, now: float) -> None:
        """Let a gang take the room that it lacks, at its place in line; what there is not, the youngest give up."""
        kept = self.keeping.kept
        gained = [ceiling for ceiling in gang.deficits if self.keeping.keeps_for_gang(gang, ceiling, now)]
        for ceiling in gained:
            gang.cover(ceiling, gang.lacks(ceiling))
        if gained:
            self._balance()
        for ceiling in gained:
            if not gang.lacks(ceiling):
                del kept[ceiling]  # it has all it needs: the rest is everybody's


def _expect_new(request: Request) -> None:
    """Raise ``TicketError``, before anything was changed, for a request that is not new."""
    if request.state != "new":
        request.happens("submit")

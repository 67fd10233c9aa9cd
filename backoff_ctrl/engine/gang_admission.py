"""Gangs in the waiting line of one namespace: the whole is admitted as one, and its members are drawn from that.

The handler makes this part with the first gang of its namespace, and asks it at each step of an advance and a scan.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from backoff_ctrl.engine.facts.ceilings import Charges
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.quotas import Quota
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.facts.roll import Place
from backoff_ctrl.engine.facts.shapes import Shape
from backoff_ctrl.engine.gangs.gang import Draw, Gang, GangEnd, GivenBack, Grant, Reservation, balance, room_for_gang
from backoff_ctrl.engine.gangs.members import Members
from backoff_ctrl.engine.line.quota_reads import QuotaReads

from .admission import NO_BLOCKS, Admission
from .backoff import FOREVER
from .errors import GangError
from .tickets import Ticket

_PLACE: Final = attrgetter("place")


class GangAdmission:
    """The gangs of one namespace. ``waiting`` counts those in line, ``reads`` are the reads that they wait for."""

    __slots__ = ("_admission", "_halted_at", "_next_draw", "_short", "knowledge", "members", "reads", "waiting")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.knowledge = admission.knowledge
        self.reads = QuotaReads(admission.namespace, admission.shared)
        self.members = admission.knowledge.members = Members(admission.knowledge.quotas, admission.knowledge.context)
        admission.knowledge.context.gangs = True
        self.waiting = 0
        self._next_draw = FOREVER
        self._halted_at = -FOREVER  # no later than the gangs of a line that was made while halted
        self._short: list[Gang] = []  # of this scan: admitted gangs that lack room, by their place

    # -- what callers ask ---------

    def take_over(self, request: Reservation, shape: Shape, now: float) -> None:
        """Admit a gang without waiting: it was admitted before a restart, and this is what it still lacks.

        One that keeps its room asks for all that it wants. Quotas may count members that live, or have just ended.
        """
        shape.used_at = now
        gang = self._grant(request, shape, now, whole=self.knowledge.observing or not self.reads.unreadable)
        if gang.keeps:
            self.members.may_return(gang, now)
        self._admission.rescan(now)

    def joined(self, now: float) -> None:
        self.waiting += 1
        if self.reads.wanted:
            self._admission.rescan(now)

    def draw(self, draw: Draw, now: float) -> None:
        """Send one member of an admitted gang, or let it wait at the gang's place. ``GangError``: all are drawn."""
        expect_new(draw)
        admission = self._admission
        gang = draw.gang
        admission.number(draw, now)
        draw.rank = gang.place[0]
        if gang.end == "complete" or (gang.end is None and not gang.may_draw(draw.part)):
            raise GangError(f"all members of part {draw.part + 1} of the gang {gang.id} are drawn")
        if gang.end is not None:
            self._refuse_draw(draw)
            return
        shape = gang.shapes[draw.part]
        self.knowledge.know(shape)
        gang.waits(draw)
        if not self._try_draw(draw, shape, now):
            draw.happens("submit")
            admission.line.enqueue(draw, shape)
            admission.rescan(now)

    def give_back(self, gang: Gang, now: float) -> None:
        """End a gang: what is undrawn is no longer reserved, and draws that wait are refused. Twice is no error."""
        now = self._admission.shared.clock(now)
        if gang.end is None:
            self._end(gang, "given-back")
            self._admission.rescan(now)

    def appeared(self, gang: Gang, uid: str, charged: Demand, now: float, among: Sequence[int] | None = None) -> bool:
        """Take a member that others created out of what is reserved, and hold its real charge; False: it is a stranger.

        It counts once per ``uid``; one more than the gang has is a stranger. Where the gang keeps its room, report the
        member's end with ``Controller.ended``. ``among`` are the numbers of the parts that it may be of, from 0; None:
        all.
        """
        now = self._admission.shared.clock(now)
        if gang.end is not None:
            if gang.keeps and not self._is_known(gang, uid):
                gang.uids.add(uid)
                self.knowledge.appeared(charged, now, member=False)  # or another gang's member would claim its rise
            return False
        part = gang.part_of(charged, among)
        if self._is_known(gang, uid) or (part is None and not gang.keeps):
            return False
        shape = self.knowledge.appeared(charged, now)
        if part is not None:
            gang.draws(part, now)
            gang.moved = now
        if gang.keeps:
            self._join(gang, uid, part, shape, among)
        else:
            gang.uids.add(uid)
        if part is not None:
            self._correct(gang, part, shape)
        self._admission.rescan(now)
        self._end_if_complete(gang)
        return part is not None

    def _is_known(self, gang: Gang, uid: str) -> bool:
        """Say whether a member was reported before, or its end was."""
        return self._has_appeared(gang, uid) or (gang.keeps and self.knowledge.living.has_ended(uid))

    def _has_appeared(self, gang: Gang, uid: str) -> bool:
        """Say whether a member was reported before: of one that was drawn, its watch may be quicker than its answer."""
        return uid in gang.uids or (gang.keeps and self._is_member(uid))

    def _is_member(self, uid: str) -> bool:
        """Say whether it is a member of a gang that lasts: what a gang left that is over may join another one."""
        return uid in self.members and not self.members.is_left(uid)

    # -- gangs that keep their room ---------

    def adopt(self, gang: Gang, uid: str, charged: Demand, now: float, among: Sequence[int] | None = None) -> bool:
        """Let a member that quotas have counted take the place of one that may still be drawn: after a restart.

        The gang keeps its room. False: the member is known already, or the gang is over. ``among`` as in ``appeared``.
        """
        now = self._admission.shared.clock(now)
        if gang.end is not None:
            return False
        if not gang.keeps:
            raise GangError(f"the gang {gang.id} does not keep its room: a living pod can't be its member")
        if self._is_known(gang, uid):
            return False
        part = gang.part_of(charged, among)
        shape = Shape(charged)
        self.knowledge.know(shape)
        if part is not None:
            self.members.give_up(gang, gang.drop(part, 1), ended=False)
            gang.lives(part)
        self._join(gang, uid, part, shape, among)
        if part is not None:
            self._correct(gang, part, shape)
        self._admission.rescan(now)
        return True

    def _join(self, gang: Gang, uid: str, part: int | None, shape: Shape, among: Sequence[int] | None) -> None:
        """Note a living member; one without a part of its own is one too many, until another ends."""
        if part is None:
            part = gang.part_beyond(shape.demand, among)
            gang.lives(part)
        self.members.join(uid, gang, part, shape)

    def ended(self, uid: str, charged: Sequence[tuple[Quota, Charges]], now: float) -> None:
        """Return the room of a member that has ended to its gang; what others are ``charged`` is anybody's."""
        if not self.members.ended(uid, now):
            for quota, charges in charged:
                quota.has_ended(charges, now, member=False)
            if not charged:
                return
        self._admission.rescan(now)

    def follow_members(self, now: float, *, told: bool) -> None:
        """Note that every end of a member is reported from now on (``told``), or that some may be missed.

        Report those that were missed before. In a namespace for which this was never called, every end is reported.
        """
        now = self._admission.shared.clock(now)
        self.members.follow(now, told=told)
        self._admission.rescan(now)

    def resize(self, gang: Gang, counts: Sequence[int], now: float) -> None:
        """Let each part of a gang that keeps its room have at most so many members at a time from now on.

        What is undrawn beyond is given back in one step; the room of members that live beyond is, when they end. More
        than it has now changes nothing. ``GangError`` for counts that do not fit the gang.
        """
        now = self._admission.shared.clock(now)
        if gang.end is not None:
            return
        if not gang.keeps or len(counts) != len(gang.wanted) or any(count < 0 for count in counts):
            raise GangError(
                f"the gang {gang.id} can't be resized to {list(counts)}: one that keeps its room can, with a number of "
                f"members for each of its {len(gang.wanted)} parts"
            )
        gang.wanted = [min(wanted, count) for wanted, count in zip(gang.wanted, counts, strict=True)]
        self._trim(gang)
        self._admission.rescan(now)

    def _trim(self, gang: Gang) -> None:
        """Give back what is undrawn beyond what a gang wants."""
        for part, wanted in enumerate(gang.wanted):
            spare = min(gang.undrawn[part], gang.alive[part] + gang.undrawn[part] - wanted)
            if spare > 0:
                self.members.give_up(gang, gang.drop(part, spare))
            for draw in [each for each in gang.waiting if each.part == part][gang.undrawn[part] :]:
                self._refuse_draw(draw)

    def absorb(self, gang: Gang, other: Gang, now: float) -> None:
        """Let a gang that keeps its room take over another one, which ends: nobody else gets any of its room.

        ``GangError``, and nothing has changed, if one is over, the gang has no such parts, or draws are under way.
        """
        now = self._admission.shared.clock(now)
        parts = [gang.part_as(shape, number) for number, shape in enumerate(other.shapes)]
        if None in parts or not gang.keeps or gang is other or {gang.end, other.end} != {None} or other.in_flight:
            raise GangError(
                f"the gang {gang.id} can't absorb {other.id}: both are to last, the first is to keep its room and have "
                "the parts of the second, of which no draw may be under way"
            )
        to = [part for part in parts if part is not None]
        lacked, none = other.deficits, [0] * len(to)
        wanted, alive = (other.wanted, other.alive) if other.keeps else (other.undrawn, none)
        self._over(other, "absorbed")
        for number, part in enumerate(to):
            gang.grow(part, wanted[number], alive[number], other.undrawn[number])
        for ceiling, amount in lacked.items() if gang.whole else ():
            gang.uncover(ceiling, amount)
        self.members.move(other, gang, to.__getitem__)
        self._trim(gang)
        self._admission.rescan(now)

    def looked(self, now: float, *, readable: bool | None) -> None:
        """Note the end of a read of the quotas that a ``Look`` asked for; what it found was reported before.

        ``readable``: False if the quotas may not be read at all; None if the read failed; the next one may succeed.
        """
        now = self._admission.shared.clock(now)
        if self.reads.ended(now, readable=readable):
            self._admission.rescan(now)

    # -- the line ---------

    def halt(self, now: float, *, halted: bool) -> None:
        """Stop drawing from gangs (``halted``), or go on. Their limits are paused meanwhile."""
        was = self._admission.pace.halted
        if halted and not was:
            self._halted_at = now
        elif was and not halted:
            for gang in self.knowledge.gangs:
                gang.pause_limit(self._halted_at, now)

    def given_back_at(self, gang: Gang, now: float) -> float:
        """Return when the limit of a gang ends if no member of it is drawn, and the halt, if any, ends now."""
        paused = now - max(gang.since, self._halted_at) if self._admission.pace.halted else 0.0
        return gang.since + gang.limit + paused

    def hint(self, now: float) -> None:
        """Note that an own pod ended: read the quotas soon, if a gang waits for that."""
        self.reads.bring_forward(now + self._admission.probing.lag)

    def leaves_line(self, request: Request) -> bool:
        """Note that a request is withdrawn or refused; say whether it belongs to a gang."""
        if isinstance(request, Draw):
            request.gang.waits_no_more(request)
        elif isinstance(request, Reservation):
            if request.row is not None:
                self.waiting -= 1
        else:
            return False
        return True

    def try_to_admit(self, request: Request, shape: Shape, now: float) -> bool:
        """Admit a create, a gang or a member of one if it may be now; say whether it was."""
        if isinstance(request, Draw):
            return self._try_draw(request, shape, now)
        if isinstance(request, Reservation):
            return not self._admission.pace.halted and self._try_whole(request, shape, now)
        return self._admission.try_to_admit(request, shape, now)

    def _try_whole(self, request: Reservation, shape: Shape, now: float) -> bool:
        """Admit a gang if the whole of it fits by what is watched, or was read this moment."""
        observing = self.knowledge.observing
        keeping = self._admission.keeping
        reads = self.reads
        if reads.unreadable and not observing and not reads.may_try_again(now):
            return self._without_amounts(request, shape, now)
        if not (
            (observing or reads.weighing)
            and all(amount <= ceiling.room for ceiling, amount in shape.meets)
            and not (keeping.kept and keeping.closes(shape, request))
        ):
            reads.wanted = reads.wanted or not observing
            return False
        self._grant(request, shape, now, whole=True)
        reads.in_vain = False
        return True

    def _without_amounts(self, request: Reservation, shape: Shape, now: float) -> bool:
        """Deal with a gang where quotas can't be read, as the policy says."""
        if self._admission.policy.gang_blind == "one_by_one":
            self._grant(request, shape, now, whole=False)
        else:
            self.leaves_line(request)
            self._admission.refuse(
                request,
                "quotas-unreadable",
                f"the quotas of {request.namespace} can't be read, so it is unknown whether the whole gang fits",
            )
        return True

    def _grant(self, request: Reservation, shape: Shape, now: float, *, whole: bool) -> Gang:
        """Admit a gang: reserve what its members will be charged."""
        admission = self._admission
        if request.row is not None:
            admission.line.dequeue(request)
            self.waiting -= 1
        request.happens("grant")
        limit = admission.policy.gang_limit if request.limit is None else request.limit
        limit = FOREVER if request.keeps else limit
        gang = Gang(request, [part for part, _ in shape.parts], limit, now, whole=whole)
        for part in gang.shapes:
            self.knowledge.know(part)
        gang.recount()
        insort(self.knowledge.gangs, gang, key=_PLACE)
        admission.shared.effects.append(Grant(request, gang))
        if admission.keeping.next_for and admission.keeping.overtook(shape, request, now):
            admission.rescan(now)
        return gang

    def _try_draw(self, draw: Draw, shape: Shape, now: float) -> bool:
        """Send a member of a gang if what is reserved for it is backed by room, else perhaps as a probe.

        It passes the line, but not the overload window.
        """
        admission = self._admission
        gang = draw.gang
        if now < gang.not_before:
            self._next_draw = min(self._next_draw, gang.not_before)
            return False
        if gang.whole:
            # Strangers may have taken reserved room since: gangs are covered in the order of their places.
            self._balance()
            backed = self._is_backed(gang, shape)
            blocks = NO_BLOCKS if backed else admission.probing.ready_blocks(shape, now, gang.free)
            sent = blocks is not None and admission.try_to_admit(draw, shape, now, blocks)
        else:
            sent = gang.is_next(draw) and admission.try_to_admit(draw, shape, now)
        if sent:
            gang.waits_no_more(draw)
            gang.in_flight += 1
            gang.draws(draw.part, now)
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
        kept = self._admission.keeping.kept
        if any(lack > ceiling.room or kept.get(ceiling, gang.place) < gang.place for ceiling, lack in lacking):
            return False
        if gang.returning and any(amount > room_for_gang(gang, ceiling) for ceiling, amount in shape.meets):
            return False  # the member before is still charged
        for ceiling, lack in lacking:
            gang.cover(ceiling, lack)
        return True

    def _balance(self) -> None:
        balance(self.knowledge.gangs, self.knowledge.ceilings())

    # -- the end of a draw, and of a gang ---------

    def draw_ended(self, ticket: Ticket, now: float, *, stored: bool, uid: str = "") -> None:
        """Note how a draw ended: what was not stored may be drawn again, and what was counted as it appeared.

        ``uid``: by which its end will be reported.
        """
        draw = ticket.request
        assert isinstance(draw, Draw)
        gang = draw.gang
        gang.in_flight -= 1
        if not stored or self._has_appeared(gang, uid):
            gang.put_back(draw.part)
        if draw.state != "waiting":
            gang.since = gang.moved = now
        else:
            if gang.in_flight == 0:  # sent back: it does not put the limit off
                gang.since = gang.moved
            if gang.end is None:
                gang.waits(draw)
        if gang.keeps and gang.end is None:
            self._trim(gang)
            if uid and uid not in self.members:
                self.members.join(uid, gang, draw.part, ticket.shape)
                if self.knowledge.living.has_ended(uid):
                    self.members.ended(uid, now)
        self._end_if_complete(gang)
        if not (gang.whole and self.knowledge.observing):
            # The next one may go. Where no watch reports room, a probe may, too: less is reserved than when it was
            # asked.
            self._admission.rescan(now)

    def refuses_return(self, request: Request) -> bool:
        """Refuse a draw that was sent in vain and whose gang is over; say whether it was one."""
        if isinstance(request, Draw) and request.gang.end is not None:
            self._refuse_draw(request)
            return True
        return False

    def _refuse_draw(self, draw: Draw) -> None:
        draw.gang.waits_no_more(draw)
        self._admission.refuse(
            draw, "given-back", f"the gang {draw.gang.id} is over: what it had not drawn was given back"
        )

    def _end_if_complete(self, gang: Gang) -> None:
        if gang.end is None and not gang.keeps and gang.in_flight == 0 and not any(gang.undrawn):
            self._end(gang, "complete")

    def _end(self, gang: Gang, end: GangEnd) -> None:
        self._over(gang, end)
        if gang.keeps:
            self.members.let_go(gang)

    def _over(self, gang: Gang, end: GangEnd) -> None:
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

    def begin_advance(self, now: float) -> None:
        """Give back what gangs have reserved beyond their limits."""
        admission = self._admission
        if self.members.lapse(now):
            admission.scan_due = True
        late = [each for each in self.knowledge.gangs if each.since + each.limit <= now]
        for gang in late if not admission.pace.halted else ():
            if any(gang.undrawn):
                drawn, left = gang.drawn, gang.left
                self._end(gang, "limit")
                admission.shared.effects.append(GivenBack(gang, drawn, left))
                admission.scan_due = True
        self.reads.lapse(now)

    def end_advance(self, now: float) -> None:
        """Let go of a read that no gang waits for any more."""
        admission = self._admission
        if self.reads.weighing and admission.resume is None and admission.settling.next_at() == FOREVER:
            self.reads.dropped(now)

    def is_due(self, now: float) -> bool:
        """Say whether the passing of time may let a gang, or a member of one, in."""
        return self.reads.is_due(now) or now >= self._next_draw

    def next_due(self, now: float) -> float:
        """Return when a gang is due next, or infinity."""
        admission = self._admission
        gangs = self.knowledge.gangs
        lasting = () if admission.pace.halted else gangs
        at = min((gang.since + gang.limit for gang in lasting if any(gang.undrawn)), default=FOREVER)
        if gangs:
            at = now if admission.scan_due else min(at, self._next_draw, admission.keeping.next_change)
        return min(at, self.members.next_at(), self.reads.next_at(awaited=bool(admission.line.order)))

    def begin_scan(self) -> None:
        """Find the gangs that lack room: they take it at their place in line."""
        self.reads.wanted = False
        self._next_draw = FOREVER
        self._short = []
        gangs = self.knowledge.gangs
        if gangs:
            self._balance()
            self._short = [gang for gang in gangs if gang.whole and gang.deficits]

    def before(self, place: Place, now: float) -> None:
        """Do what comes before this place in line."""
        while self._short and self._short[0].place < place:
            self._make_up(self._short.pop(0), now)

    def end_scan(self, now: float) -> None:
        """Do what comes behind the whole line."""
        self.before((FOREVER, 0), now)
        if self.reads.weighing and self._admission.settling.next_at() == FOREVER:
            self.reads.weighed(now)
        if self.reads.wanted:
            self.reads.ask(now)

    def _make_up(self, gang: Gang, now: float) -> None:
        """Let a gang take the room that it lacks, at its place in line; what there is not, the youngest give up."""
        keeping = self._admission.keeping
        gained = [ceiling for ceiling in gang.deficits if keeping.keeps_for_gang(gang, ceiling, now)]
        for ceiling in gained:
            gang.cover(ceiling, gang.lacks(ceiling))
        if gained:
            self._balance()
        for ceiling in gained:
            if not gang.lacks(ceiling):
                del keeping.kept[ceiling]  # it has all it needs: the rest is everybody's


def expect_new(request: Request) -> None:
    """Raise ``TicketError``, before anything was changed, for a request that is not new."""
    if request.state != "new":
        request.happens("submit")

"""The living members of gangs that keep their room, and whose room it is that a change of ``used`` shows.

When such a member ends, its gang reserves its room again in the same step. The quota still charges the member then, so
that room counts twice until ``used`` falls: ``Ceiling.returning`` is how far room may be below zero for that reason,
without any gang giving up what it has. The fall that follows is *explained* by the end, of any member: amounts
are all alike.

The two come by different watches. A fall that no end explains may belong to a member whose end is not known yet. So as
much of it as members are charged is *unclear*: it counts as room only ``Policy.ends_lag`` later, and while the watch of
the members is lost, only when it is back. An end that comes meanwhile says whose it is.

A member is charged before it appears. A rise that no hold claims may be such a charge (``Ceiling.early``): room may be
below zero for it, and the member that appears then is not held, since ``used`` has it.

Every expectation ends by time, so that no charge is counted twice for long, even after missed events. Where changes
were missed, expectations are dropped: one would explain the fall of another member, whose room would be given away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.facts.ceilings import NO_FACT, Ceiling, Charges
from backoff_ctrl.engine.facts.quotas import Settling
from backoff_ctrl.engine.facts.shapes import Shape

from .gang import Gang

FALL_MAX: Final = 30.0
"""Seconds from an end to its fall: a quota controller that is held to few requests a second may be that late."""
OTHERS_FALL_MAX: Final = 1.0
"""The same for creates of ours that are no members: a later fall counts ``Policy.ends_lag`` after it is seen."""
APPEARS_IN: Final = 0.5
"""Seconds from a charge to the event of its member. For one that is known later it may be another's, and is held."""
LOST_MAX: Final = 60.0
"""Seconds for which room is doubted at the most because the members' watch is lost."""


@dataclass(slots=True, eq=False)
class Member:
    """A living member. ``gang`` is None once its gang is over: its room is free, but its end explains a fall."""

    gang: Gang | None
    part: int
    shape: Shape


@dataclass(slots=True, eq=False)
class Fall:
    """A fall of ``used`` that is to come, since a member has ended. ``gang``: whose room it is; None: anybody's."""

    gang: Gang | None
    amount: int
    until: float


@dataclass(slots=True, eq=False)
class Doubted:
    """Room that may be that of a member. It was ``seen`` then, and settled at ``settled_at``.

    So much of it, ``early``, may be that of a member which was charged, and has ended, before it was known.
    """

    amount: int
    early: int
    epoch: int
    settled_at: float
    seen: float


@dataclass(slots=True, eq=False)
class Early:
    """A rise that no hold claims: ``since`` when there is one, and when it last ``rose``. ``amount``: at that time."""

    since: float
    amount: int = 0
    rose: float = NO_FACT


class Members:
    """Those of one namespace, by uid. ``settling`` takes the room that is anybody's."""

    __slots__ = ("_by_uid", "_doubted", "_early", "_falls", "_lag", "_settling", "_told_at", "_twice")

    def __init__(self, settling: Settling, lag: float) -> None:
        """``lag``: how much later than a fall the end that explains it is known, in seconds."""
        self._settling = settling
        self._lag = lag
        self._by_uid: dict[str, Member] = {}
        self._falls: dict[Ceiling, list[Fall]] = {}  # each list in the order of the ends
        self._doubted: dict[Ceiling, list[Doubted]] = {}
        self._early: dict[Ceiling, Early] = {}
        self._twice: deque[tuple[float, Charges]] = deque()  # until when
        self._told_at: float | None = NO_FACT  # since when all ends are reported; None: some may be missed

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    # -- members ---------

    def is_left(self, uid: str) -> bool:
        """Say whether this member lives and is charged, but its gang is over: another gang may take it in."""
        member = self._by_uid.get(uid)
        return member is not None and member.gang is None

    def charged(self, uid: str) -> Charges:
        """Return what a living member is charged."""
        member = self._by_uid.get(uid)
        return () if member is None else member.shape.meets

    def join(self, uid: str, gang: Gang, part: int, shape: Shape) -> None:
        """Note a living member and what it is charged; its gang counts it already."""
        self._by_uid[uid] = Member(gang, part, shape)
        for ceiling, amount in shape.meets:
            ceiling.members += amount

    def ended(self, uid: str, now: float) -> bool:
        """Return the room of a member that has ended to its gang, if that wants it; False: it is no member."""
        member = self._by_uid.pop(uid, None)
        if member is None:
            return False
        gang = member.gang
        back: dict[Ceiling, int] = {}
        if gang is not None and gang.returns(member.part):
            back = dict(gang.shapes[member.part].meets)
        for ceiling, amount in member.shape.meets:
            if gang is not None:
                ceiling.members -= amount
            kept = min(amount, back.get(ceiling, 0)) if gang is not None and gang.whole else 0
            seen = self._undoubt(ceiling, amount, kept, known=True)
            self._expect(ceiling, gang, max(0, kept - seen), now)
            self._expect(ceiling, None, amount - max(kept, seen), now)
        return True

    def other_ended(self, charged: Charges, now: float) -> bool:
        """Take the fall of a create of ours that has ended, no member, for anybody's; False: it has no charge here.

        It is not expected for long, since it may have been seen before, when there was no doubt about it.
        """
        for ceiling, amount in charged:
            self._expect(ceiling, None, amount - self._undoubt(ceiling, amount, 0, known=True), now, OTHERS_FALL_MAX)
        return bool(charged)

    def let_go(self, gang: Gang) -> None:
        """Note that a gang is over: what its members leave is anybody's."""
        for member in self._by_uid.values():
            if member.gang is gang:
                member.gang = None
                for ceiling, amount in member.shape.meets:
                    ceiling.members -= amount
        self.give_up(gang, gang.returning.items())

    def may_return(self, gang: Gang, now: float) -> None:
        """Take what a gang lacks that has just been taken over for charges of members that live, or have just ended."""
        for ceiling, covered in gang.covered.items():
            self._expect(ceiling, gang, min(covered, ceiling.lacking), now)

    def give_up(self, gang: Gang, room: Iterable[tuple[Ceiling, int]], *, ended: bool = True) -> None:
        """Note that so much of a gang's room is no longer wanted. Falls that are to come are anybody's.

        Not ``ended``: no member has ended, and no end will follow.
        """
        for ceiling, amount in list(room):
            left = min(amount, gang.returning.get(ceiling, 0))
            for fall in list(self._falls.get(ceiling, ())):
                if fall.gang is gang and left:
                    taken = min(left, fall.amount)
                    left -= taken
                    self._explain(ceiling, fall, taken)
                    if ended:
                        self._falls.setdefault(ceiling, []).insert(0, Fall(None, taken, fall.until))

    def move(self, gang: Gang, to: Gang, parts: Callable[[int], int]) -> None:
        """Note that another gang absorbs this one; ``parts`` says which part of it has become which."""
        for member in self._by_uid.values():
            if member.gang is gang:
                member.gang, member.part = to, parts(member.part)
        for falls in self._falls.values():
            for fall in falls:
                if fall.gang is gang:
                    fall.gang = to
        for ceiling, amount in gang.returning.items():
            to.returning[ceiling] = to.returning.get(ceiling, 0) + amount
        gang.returning = {}

    def recount(self, know: Callable[[Shape], None]) -> None:
        """Count afresh what members are charged, after a change of the structure; all counts are 0 at this moment."""
        for member in self._by_uid.values():
            know(member.shape)
            for ceiling, amount in member.shape.meets if member.gang is not None else ():
                ceiling.members += amount

    # -- changes of ``used`` ---------

    def whose(self, ceiling: Ceiling, room: int, settled_at: float, now: float) -> int:
        """Return how much of this new, unsettled room is anybody's as soon as it has settled.

        What an end explains that returned its room was reserved before. It counts at once, since all other room was
        free before the fall.
        """
        rest = room - self._explained(ceiling, room, kept=True)
        free = self._explained(ceiling, rest, kept=False)
        doubted = self._doubts(ceiling)
        maybe = ceiling.members + ceiling.early + sum(each.early for each in doubted)
        unclear = min(rest - free, maybe - ceiling.unclear)
        if unclear <= 0:
            return rest
        early = min(ceiling.early, unclear)  # perhaps it is one of those that has ended already
        ceiling.early -= early
        ceiling.unclear += unclear
        self._doubted[ceiling] = [*doubted, Doubted(unclear, early, ceiling.epoch, settled_at, now)]
        return rest - unclear

    def observed(self, ceilings: Iterable[Ceiling], now: float) -> None:
        """Take in what a quota shows: what members may have been charged that are not known."""
        for ceiling in ceilings:
            if ceiling.early:
                early = self._early.setdefault(ceiling, Early(now))
                if ceiling.early > early.amount:
                    early.rose = now
                early.amount = ceiling.early

    def held(self, shape: Shape, until: float) -> None:
        """Note that a member which appeared is held until then, though ``used`` may have it."""
        for ceiling, amount in shape.meets:
            ceiling.twice += amount
        self._twice.append((until, shape.meets))

    def charged_early(self, shape: Shape, now: float) -> bool:
        """Say whether ``used`` has the charge of a member that appears now, and count it as known then."""
        if any(ceiling in self._early and now > self._early[ceiling].rose + APPEARS_IN for ceiling, _ in shape.meets):
            return False
        doubted = {ceiling: self._doubts(ceiling) for ceiling, _ in shape.meets}
        early = {ceiling: ceiling.early + sum(each.early for each in doubted[ceiling]) for ceiling in doubted}
        if not shape.meets or any(early[ceiling] < amount for ceiling, amount in shape.meets):
            return False
        for ceiling, amount in shape.meets:
            left = amount - min(ceiling.early, amount)
            ceiling.early -= amount - left
            for each in doubted[ceiling]:  # it lives: the fall that came after its charge was another's
                taken = min(each.early, left)
                each.early -= taken
                left -= taken
            if not ceiling.early:
                self._early.pop(ceiling, None)
        return True

    def _expect(self, ceiling: Ceiling, gang: Gang | None, amount: int, now: float, within: float = FALL_MAX) -> None:
        if amount > 0:
            self._falls.setdefault(ceiling, []).append(Fall(gang, amount, now + within))
            if gang is not None:
                ceiling.returning += amount
                gang.returning[ceiling] = gang.returning.get(ceiling, 0) + amount

    def _explained(self, ceiling: Ceiling, room: int, *, kept: bool) -> int:
        """Explain up to this much new room by ends that are known; return how much that was."""
        left = room
        for fall in list(self._falls.get(ceiling, ())):
            if left and (fall.gang is not None) == kept:
                taken = min(left, fall.amount)
                left -= taken
                self._explain(ceiling, fall, taken)
        if kept:
            ceiling.settles(room - left)
        return room - left

    def _explain(self, ceiling: Ceiling, fall: Fall, amount: int) -> None:
        """Expect so much less of a fall."""
        fall.amount -= amount
        if fall.gang is not None:
            ceiling.returning -= amount
            fall.gang.returning[ceiling] -= amount
        if not fall.amount:
            falls = self._falls[ceiling]
            falls.remove(fall)
            if not falls:
                del self._falls[ceiling]

    def _doubts(self, ceiling: Ceiling) -> list[Doubted]:
        """Return what is doubted here, oldest first; what a refusal has taught since replaces it."""
        return [each for each in self._doubted.get(ceiling, ()) if each.epoch == ceiling.epoch]

    def _undoubt(self, ceiling: Ceiling, amount: int, kept: int, *, known: bool) -> int:
        """Doubt up to this much room no longer; return how much that was. The ``kept`` first part of it counts now.

        ``known``: it was that of a member whose end is known by now.
        """
        left, to_keep = amount, kept
        doubted = self._doubts(ceiling)
        self._doubted.pop(ceiling, None)
        for each in doubted:
            taken = min(left, each.amount)
            at_once = min(taken, to_keep)
            ceiling.settles(at_once)
            if taken > at_once:
                self._settling.add(each.settled_at, ceiling, taken - at_once)
            each.amount -= taken
            ceiling.unclear -= taken
            if known and each.early:
                ceiling.early += min(each.early, taken)
                each.early -= min(each.early, taken)
                self._early.setdefault(ceiling, Early(each.seen))
            left, to_keep = left - taken, to_keep - at_once
        if rest := [each for each in doubted if each.amount]:
            self._doubted[ceiling] = rest
        return amount - left

    # -- time ---------

    def follow(self, now: float, *, told: bool) -> None:
        """Note whether all ends of members are reported from now on; those missed have been reported."""
        self._told_at = now if told else None
        if told:
            self._expect_no_more(kept=False)

    def shown_again(self, now: float) -> None:
        """Note that the quotas are shown after changes of them were missed: any fall may have been among these.

        One that comes nevertheless is doubted like others that no end explains. Where less is used than members are
        charged, some have ended: what else is left is doubted as far, until their ends are reported.
        """
        self._expect_no_more(kept=True)
        for ceiling in {ceiling for member in self._by_uid.values() for ceiling, _ in member.shape.meets}:
            hidden = ceiling.members - ceiling.fact_used - ceiling.unclear
            if hidden > 0:
                ceiling.settles(-hidden)
                ceiling.unclear += hidden
                self._doubted[ceiling] = [*self._doubts(ceiling), Doubted(hidden, 0, ceiling.epoch, now, now)]

    def _expect_no_more(self, *, kept: bool) -> None:
        """Expect no falls of anybody's room any more, since they may have been missed; ``kept``: nor of a gang's."""
        for ceiling, falls in list(self._falls.items()):
            for fall in [each for each in falls if kept or each.gang is None]:
                self._explain(ceiling, fall, fall.amount)

    def next_at(self) -> float:
        """Return when time changes something here; infinity if it never does."""
        at = self._twice[0][0] if self._twice else FOREVER
        at = min(at, min((self._told_by(e.since, e.since + FALL_MAX) for e in self._early.values()), default=FOREVER))
        for falls in self._falls.values():
            at = min(at, *(fall.until for fall in falls))
        for doubted in self._doubted.values():
            at = min(at, self._counts_at(doubted[0]))
        return at

    def _counts_at(self, doubted: Doubted) -> float:
        return self._told_by(doubted.seen, doubted.seen + self._lag)

    def _told_by(self, seen: float, usual: float) -> float:
        """Return by when the members' watch has reported what was ``seen``; as a rule that is the ``usual`` time."""
        last = seen + LOST_MAX
        return last if self._told_at is None else min(last, max(usual, self._told_at + self._lag))

    def lapse(self, now: float) -> bool:
        """Expect and doubt no longer what is overdue; say whether there was any."""
        late = [c for c, early in self._early.items() if self._told_by(early.since, early.since + FALL_MAX) <= now]
        for ceiling in late:
            del self._early[ceiling]
            ceiling.early = 0
        fallen = [(c, fall) for c, falls in self._falls.items() for fall in falls if fall.until <= now]
        for ceiling, fall in fallen:
            self._explain(ceiling, fall, fall.amount)
        any_due = False
        while self._twice and self._twice[0][0] <= now:
            for ceiling, amount in self._twice.popleft()[1]:
                ceiling.twice -= amount
            any_due = True
        for ceiling in list(self._doubted):
            due = sum(each.amount for each in self._doubts(ceiling) if self._counts_at(each) <= now)
            any_due = self._undoubt(ceiling, due, due, known=False) > 0 or any_due
        return bool(late or fallen or any_due)

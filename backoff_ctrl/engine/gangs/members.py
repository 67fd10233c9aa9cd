"""The living members of gangs that keep their room: whose they are, and what they are charged.

When such a member ends, its gang reserves its room again in the same step, and its quotas expect its fall, or have seen
it (``facts.quotas``). Until then that room is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.facts.ceilings import Ceiling, Charges
from backoff_ctrl.engine.facts.entries import Amounts
from backoff_ctrl.engine.facts.quotas import Context, Quota
from backoff_ctrl.engine.facts.shapes import Shape

from .gang import Gang


@dataclass(slots=True, eq=False)
class Member:
    """A living member. ``gang`` is None once its gang is over: its room is free, but its end explains a fall."""

    gang: Gang | None
    part: int
    shape: Shape


class Members:
    """Those of one namespace, by uid; ``quotas`` are the quotas there."""

    __slots__ = ("_by_uid", "_context", "_quotas")

    def __init__(self, quotas: Mapping[str, Quota], context: Context) -> None:
        self._quotas = quotas
        self._context = context
        self._by_uid: dict[str, Member] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

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
        _count(shape.meets)

    def ended(self, uid: str, now: float) -> bool:
        """Return the room of a member that has ended to its gang, if that wants it; False: it is no member."""
        member = self._by_uid.pop(uid, None)
        if member is None:
            return False
        gang = member.gang
        wanted: Amounts = {}
        if gang is not None:
            _count(member.shape.meets, -1)
            if gang.returns(member.part) and gang.whole:
                wanted = dict(gang.shapes[member.part].meets)
        for quota, charges in member.shape.quotas:
            back = {c: kept for c, amount in charges if (kept := min(amount, wanted.get(c, 0)))}
            quota.has_ended(charges, now, member=True, gang=gang, back=back)
        return True

    def let_go(self, gang: Gang) -> None:
        """Note that a gang is over: what its members leave is anybody's."""
        for member in self._by_uid.values():
            if member.gang is gang:
                member.gang = None
                _count(member.shape.meets, -1)
        for quota in self._quotas.values():
            quota.let_go(gang)

    def may_return(self, gang: Gang, now: float) -> None:
        """Take what a gang lacks that has just been taken over for charges of members that live, or have just ended."""
        for quota in self._quotas.values():
            back = {c: min(gang.covered.get(c, 0), c.lacking) for c in quota.ceilings.values()}
            if back := {ceiling: amount for ceiling, amount in back.items() if amount}:
                quota.expect(gang, back, now)

    def give_up(self, gang: Gang, room: Iterable[tuple[Ceiling, int]], *, ended: bool = True) -> None:
        """Note that so much of a gang's room is no longer wanted. Falls that are to come are anybody's.

        Not ``ended``: no member has ended, and no end will follow.
        """
        amounts = dict(room)
        for quota in self._quotas.values() if amounts else ():
            quota.give_up(gang, amounts, ended=ended)

    def move(self, gang: Gang, to: Gang, parts: Callable[[int], int]) -> None:
        """Note that another gang absorbs this one; ``parts`` says which part of it has become which."""
        for member in self._by_uid.values():
            if member.gang is gang:
                member.gang, member.part = to, parts(member.part)
        for quota in self._quotas.values():
            quota.move(gang, to)

    def recount(self, know: Callable[[Shape], None]) -> None:
        """Count afresh what members are charged, after a change of the structure; all counts are 0 at this moment."""
        for member in self._by_uid.values():
            know(member.shape)
            if member.gang is not None:
                _count(member.shape.meets)

    def follow(self, now: float, *, told: bool) -> None:
        """Note whether all ends of members are reported from now on; those missed have been reported."""
        self._context.follow(now, told=told)
        if told:
            for quota in self._quotas.values():
                quota.forget_others()

    def shown_again(self, now: float) -> None:
        """Note that the quotas are shown after changes of them were missed."""
        for quota in self._quotas.values():
            quota.shown_again(now)

    def next_at(self) -> float:
        """Return when time changes something here; infinity if it never does."""
        return min((quota.next_at() for quota in self._quotas.values()), default=FOREVER)

    def lapse(self, now: float) -> bool:
        """Drop what is overdue; say whether there was any."""
        lapsed = [quota.lapse(now) for quota in self._quotas.values()]  # all of them, not only the first
        return any(lapsed)


def _count(charges: Charges, by: int = 1) -> None:
    for ceiling, amount in charges:
        ceiling.count_member(by * amount)

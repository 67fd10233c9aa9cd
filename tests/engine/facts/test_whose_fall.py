"""Whose a fall or a rise is, one rule each: what one quota makes of its own news and of that of pods."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from backoff_ctrl.engine import ObservedQuota, Policy
from backoff_ctrl.engine.facts.ceilings import Ceiling, send
from backoff_ctrl.engine.facts.entries import APPEARS_IN, BESIDE_GANGS, LEFT_FOR, RISES_MAX, Pending
from backoff_ctrl.engine.facts.quotas import Context, Quota, Settling

if TYPE_CHECKING:
    from backoff_ctrl.engine.facts.ceilings import Charges
    from backoff_ctrl.engine.facts.entries import Claims

LAG: Final = Policy().ends_lag
SOON: Final = 0.001
LIMIT: Final = 100


class Desk:
    """One watched quota of CPUs and pods, beside gangs; ``members`` say what living members are charged."""

    def __init__(self, cpu: int, pods: int, members: tuple[int, int] = (0, 0)) -> None:
        """Start with so much used."""
        self.context = Context(Settling(), LAG, gangs=True)
        self.quota = Quota("q", self.context)
        self.used = [cpu, pods]
        self.now = 0.0
        for name, used, charged in zip(("cpu", "pods"), self.used, members, strict=True):
            ceiling = self.quota.ceilings[name] = Ceiling("q", name, LIMIT, used)
            ceiling.count_member(charged)

    def charges(self, cpu: int, pods: int = 1) -> Charges:
        """Return what one is charged."""
        return ((self.quota.ceilings["cpu"], cpu), (self.quota.ceilings["pods"], pods))

    def changes(self, cpu: int, pods: int, *, recounted: bool = False) -> None:
        """Report a state, by how much it differs from the one before."""
        self.used = [self.used[0] + cpu, self.used[1] + pods]
        used = dict(zip(("cpu", "pods"), self.used, strict=True))
        hard = dict.fromkeys(used, LIMIT)
        self.context.facts += 1
        by = frozenset(used) if recounted else frozenset[str]()
        self.quota.read(ObservedQuota(hard, hard, used, recounted=by), self.now, self.now + SOON, 0.0)

    def ends(self, cpu: int, *, member: bool = False) -> None:
        """Report an end."""
        if member:
            for ceiling, amount in self.charges(cpu):
                ceiling.count_member(-amount)
        self.quota.has_ended(self.charges(cpu), self.now, member=member)

    def returns(self, cpu: int, gang: Claims) -> None:
        """Report the end of a member whose gang reserves all its room again."""
        for ceiling, amount in self.charges(cpu):
            ceiling.count_member(-amount)
            ceiling.set_apart(amount, keeps=True)
        self.quota.has_ended(self.charges(cpu), self.now, member=True, gang=gang, back=dict(self.charges(cpu)))

    def later(self, seconds: float = 2 * SOON) -> None:
        """Let time pass."""
        self.now += seconds
        self.context.settling.release(self.now)
        self.quota.lapse(self.now)

    @property
    def room(self) -> tuple[int, int]:
        """The room that may be given."""
        return self.quota.ceilings["cpu"].room, self.quota.ceilings["pods"].room


class Returning:
    """A gang, and how much its quotas still charge to members that have ended."""

    def __init__(self) -> None:
        self.amounts: Counter[Ceiling] = Counter()

    def expect(self, ceiling: Ceiling, amount: int) -> None:
        """Note so much more, or less."""
        self.amounts[ceiling] += amount


def twice(desk: Desk, *gangs: Returning) -> list[tuple[int, ...]]:
    """Return for each ceiling what is counted twice, and how much of it is each gang's."""
    return [(c.maybe, *(gang.amounts[c] for gang in gangs)) for c in desk.quota.ceilings.values()]


@pytest.mark.parametrize("ends", ["it falls", "too late", "missed", "over"])
def test_what_is_reserved_again_is_counted_twice_until_its_fall(ends: str) -> None:
    """Or until none is expected any more. Of a gang that another one absorbs it is that one's."""
    desk, gang, other = Desk(6, 3, members=(2, 1)), Returning(), Returning()
    desk.returns(2, gang)
    assert twice(desk, gang, other) == [(2, 2, 0), (1, 1, 0)]
    desk.quota.move(gang, other)
    assert twice(desk, gang, other) == [(2, 0, 2), (1, 0, 1)]
    if ends == "it falls":
        desk.changes(-2, -1)
    elif ends == "too late":
        desk.later(LEFT_FOR)
    elif ends == "missed":
        desk.quota.shown_again(desk.now)
    else:
        desk.quota.let_go(other)
    assert twice(desk, gang, other) == [(0, 0, 0), (0, 0, 0)]
    assert [c.fresh for c in desk.quota.ceilings.values()] == [0, 0], "it was reserved: none else gets it"


def test_a_fall_after_its_end_is_room_as_soon_as_it_has_settled() -> None:
    """It is that of the one that has ended."""
    desk = Desk(6, 3, members=(2, 1))
    desk.ends(2)
    desk.changes(-2, -1)
    assert desk.room == (94, 97)
    desk.later()
    assert desk.room == (96, 98)


def test_a_fall_before_any_end_may_be_a_members() -> None:
    """As much as members are charged is doubted, until no end can be told any more that explains it."""
    desk = Desk(6, 3, members=(2, 1))
    desk.changes(-3, -1)
    desk.later()
    assert desk.room == (95, 97)
    desk.later(LAG)
    assert desk.room == (97, 98)


def test_an_end_told_later_ends_the_doubt() -> None:
    """The fall was its own."""
    desk = Desk(6, 3, members=(2, 1))
    desk.changes(-3, -1)
    desk.ends(3)
    desk.later()
    assert desk.room == (97, 98)


def test_a_fall_of_several_is_doubted_as_far_as_it_is_not_explained() -> None:
    """Ours, and one that may be a member."""
    desk = Desk(9, 5, members=(2, 1))
    desk.changes(-5, -2)
    desk.ends(3)
    desk.later()
    assert desk.room == (94, 96)


def test_doubts_are_of_one_member_once() -> None:
    """It has ended once: two falls of its size doubt its room once, for as long as the newer one may be its own."""
    desk = Desk(9, 5, members=(2, 1))
    desk.changes(-2, -1)
    desk.later(LAG / 2)
    desk.changes(-2, -1)
    desk.later(LAG * 0.6)
    assert desk.room == (93, 96)
    desk.ends(2)
    assert desk.room == (95, 97)


def test_a_fall_of_exactly_what_one_is_charged_is_its_own() -> None:
    """An older one that would fit as well waits on."""
    desk = Desk(9, 5, members=(9, 5))
    desk.ends(1)
    desk.ends(3)
    desk.changes(-3, -1)
    assert [dict(left.amounts) for left in desk.quota.left] == [dict(desk.charges(1))]


def test_a_fall_that_is_too_small_is_no_ones_that_has_left() -> None:
    """A whole pod is released, or none."""
    desk = Desk(9, 5, members=(2, 1))
    desk.ends(3)
    desk.changes(-2, -1)
    desk.later()
    assert desk.room == (91, 95)


def test_who_ended_before_one_that_has_fallen_was_perhaps_missed() -> None:
    """A recount that has seen an end has seen all before it: the next fall of that size is doubted nevertheless."""
    desk = Desk(9, 5, members=(1, 1))
    desk.ends(1)
    desk.ends(3)
    desk.changes(-3, -1)
    desk.later()
    desk.changes(-1, -1)
    desk.later()
    assert desk.room == (94, 96)
    desk.later(LAG)
    assert desk.room == (95, 97)


def test_a_fall_long_after_an_end_is_doubted_nevertheless() -> None:
    """Its own was missed, perhaps, and this is a member's."""
    desk = Desk(9, 5, members=(1, 1))
    desk.ends(1)
    desk.later(LAG + SOON)
    desk.changes(-1, -1)
    desk.later()
    assert desk.room == (91, 95)
    assert not desk.quota.left


def test_an_end_whose_fall_never_comes_is_forgotten() -> None:
    """It was missed."""
    desk = Desk(9, 5)
    desk.ends(1)
    desk.later(LEFT_FOR - SOON)
    assert desk.quota.left
    assert desk.quota.next_at() == LEFT_FOR
    desk.later()
    assert not desk.quota.left


def test_an_end_is_no_part_of_a_fall_that_would_leave_no_whole_pod() -> None:
    """A fall of two pods is not that of one with all the CPUs, and of another with none."""
    desk = Desk(9, 5, members=(9, 5))
    desk.changes(-3, -2)
    desk.ends(3)
    assert [dict(fall.amounts) for fall in desk.quota.falls] == [dict(desk.charges(3, 2))]
    assert desk.quota.left


def test_of_two_equal_falls_the_newer_one_is_explained() -> None:
    """The older one was a stranger's: its end will not be told."""
    desk = Desk(9, 5, members=(9, 5))
    desk.changes(-3, -1)
    desk.later(LAG / 2)
    desk.changes(-3, -1)
    desk.ends(3)
    assert [fall.at for fall in desk.quota.falls] == [0.0]


def test_what_a_recount_finds_again_had_not_fallen() -> None:
    """Another fall stays doubted."""
    desk = Desk(9, 5, members=(9, 5))
    desk.changes(-1, -1, recounted=True)
    desk.changes(-3, -1, recounted=True)
    desk.changes(3, 1, recounted=True)
    assert [dict(fall.amounts) for fall in desk.quota.falls] == [dict(desk.charges(1))]
    desk.changes(2, 1, recounted=True)
    assert len(desk.quota.falls) == 1


def test_after_changes_were_missed_an_end_of_ours_explains_nothing() -> None:
    """Its fall may have been among them, or be yet to come. As much as members are charged is doubted meanwhile."""
    desk = Desk(9, 5, members=(2, 1))
    send(desk.charges(1))
    desk.changes(1, 1)
    desk.changes(-2, -2)
    desk.ends(5)
    desk.quota.shown_again(desk.now)
    assert not desk.quota.left
    assert not desk.quota.rises
    desk.quota.confirm()
    desk.later()
    desk.ends(1)
    assert not desk.quota.left
    assert desk.room == (89, 94)
    desk.ends(2, member=True)
    assert desk.room == (91, 95)


def test_a_pod_that_appears_has_the_newest_rise() -> None:
    """What is left over was a stranger's, and is soon too old."""
    desk = Desk(0, 0)
    desk.quota.ceilings["cpu"].set_apart(4, keeps=True)
    desk.changes(2, 1)
    desk.later(APPEARS_IN * 0.6)
    desk.changes(2, 1)
    desk.quota.appeared(desk.charges(2), desk.now, member=True)
    desk.later(APPEARS_IN * 0.6)
    desk.quota.appeared(desk.charges(2), desk.now, member=True)
    assert [pending.member for pending in desk.quota.pending] == [True]
    assert desk.quota.ceilings["cpu"].maybe == 2
    desk.quota.end_old(desk.now + 1, 1 / BESIDE_GANGS)
    assert desk.quota.ceilings["cpu"].maybe == 0


def test_a_pod_of_a_gang_that_is_over_has_its_rise_too() -> None:
    """Or a member of another gang would claim it; but it is waited for no rise."""
    desk = Desk(0, 0)
    desk.quota.ceilings["cpu"].set_apart(4, keeps=True)
    desk.changes(2, 1)
    for _ in range(2):
        desk.quota.appeared(desk.charges(2), desk.now, member=False)
    assert not desk.quota.pending
    assert not desk.quota.rises


def test_a_rise_before_a_create_was_sent_is_not_its_charge() -> None:
    """A stranger's, while another create was under way."""
    desk = Desk(0, 0)
    send(desk.charges(2))
    desk.changes(2, 1)
    assert desk.quota.answered(Pending(desk.now, desk.charges(2), desk.context.facts)) is False
    desk.changes(2, 1)
    assert desk.quota.confirm() is True


def test_two_rises_may_be_one_charge() -> None:
    """A state between them was not shown."""
    desk = Desk(0, 0)
    for _ in range(2):
        send(desk.charges(2))
    desk.changes(1, 1)
    desk.changes(2, 1)
    assert desk.quota.answered(Pending(desk.now, desk.charges(3, 1), 0)) is True


def test_rises_are_bounded() -> None:
    """The oldest go first."""
    desk = Desk(0, 0)
    send(desk.charges(50))
    for _ in range(RISES_MAX + 10):
        desk.changes(1, 0)
    assert len(desk.quota.rises) == RISES_MAX
    assert desk.quota.ceilings["cpu"].risen == RISES_MAX


def test_a_create_that_was_missed_while_others_rose_is_confirmed_by_its_own() -> None:
    """The number of the state tells, even where others are left over."""
    desk = Desk(0, 0)
    send(desk.charges(2))
    desk.changes(2, 1)
    send(desk.charges(2))
    desk.changes(1, 0)
    assert desk.quota.answered(Pending(desk.now, desk.charges(2), 1)) is False
    assert desk.quota.answered(Pending(desk.now, desk.charges(2), 0)) is False  # none jumps the queue
    desk.changes(1, 1)
    assert desk.quota.confirm() is True
    assert not desk.quota.pending


def test_a_member_that_counts_as_used_without_a_watch_is_counted_once() -> None:
    """A newer list has it: it is pending no more, and no gang is spared for it."""
    desk = Desk(0, 0)
    desk.quota.appeared(desk.charges(2), desk.now, member=True)
    assert desk.quota.ceilings["cpu"].maybe == 2
    desk.later()
    desk.quota.fold(desk.now)
    assert desk.quota.ceilings["cpu"].maybe == 0
    assert desk.room == (98, 99)


def test_one_fall_is_not_that_of_two_that_have_left_long_ago() -> None:
    """The fall of the second is still to come."""
    desk = Desk(9, 5, members=(1, 1))
    desk.ends(1)
    desk.ends(1)
    desk.later(LAG + SOON)
    desk.changes(-2, -1)
    assert len(desk.quota.left) == 1
    assert desk.quota.ceilings["cpu"].fallen == 2

"""A gang that keeps its room: what a member leaves is for the next one, whatever is told first."""

from __future__ import annotations

from itertools import permutations

import pytest

from backoff_ctrl.engine import Created, Demand, Draw, Gang, GangError, Overloaded, Policy, Reservation
from backoff_ctrl.engine.facts.entries import APPEARS_IN, LEFT_FOR
from backoff_ctrl.engine.facts.parts import Parts
from tests.engine.gangs.test_draws import shares
from tests.kit.timeline import NS, ONE, Timeline, amounts_of, state_of

LAG = Policy().ends_lag


class Keeping(Timeline):
    """A line with gangs that keep their room, of members of one CPU each."""

    def keep(self, *counts: int, standing: bool = False, priority: int = 0, cpus: tuple[float, ...] = (1, 2)) -> Gang:
        """Make a gang that is admitted at once."""
        request = self.ask(*counts, standing=standing, priority=priority, cpus=cpus)
        return self.gang_of(request)

    def ask(
        self, *counts: int, standing: bool = False, priority: int = 0, cpus: tuple[float, ...] = (1, 2)
    ) -> Reservation:
        """Submit a gang."""
        self.count += 1
        parts = Parts((Demand(amounts_of(cpu)), count) for count, cpu in zip(counts, cpus, strict=False))
        request = Reservation(f"g{self.count}", NS, parts, priority, keeps=True)
        self.controller.of(request.namespace).reserve(request, self.now, standing=standing)
        self.advance()
        return request

    def appear(self, gang: Gang, *uids: str, cpu: float = 1) -> None:
        """Report members that others made."""
        for uid in uids:
            self.controller.gangs_of(gang.namespace).appeared(gang, uid, Demand(amounts_of(cpu)), self.now)
            self.advance()

    def adopt(self, gang: Gang, *uids: str, cpu: float = 1) -> None:
        """Report members that lived before."""
        for uid in uids:
            assert self.controller.gangs_of(gang.namespace).adopt(gang, uid, Demand(amounts_of(cpu)), self.now)
            self.advance()

    def end(self, *uids: str) -> None:
        """Report ends."""
        for uid in uids:
            self.controller.ended(NS, uid, self.now)
            self.advance()

    def resize(self, gang: Gang, *counts: int) -> None:
        """Want fewer members."""
        self.controller.gangs_of(gang.namespace).resize(gang, counts, self.now)
        self.advance()

    def absorb(self, gang: Gang, other: Gang) -> None:
        """Take another gang in."""
        self.controller.gangs_of(gang.namespace).absorb(gang, other, self.now)
        self.advance()

    def told(self, told: bool) -> None:
        """Report whether ends of members are told."""
        self.controller.gangs_of(NS).follow_members(self.now, told=told)
        self.advance()


def keeping(used: float, limited: float, policy: Policy | None = None) -> Keeping:
    """Return a line whose one quota is watched, and whose room counts."""
    line = Keeping(policy)
    line.observe(used, limited)
    line.watching()
    line.later(1)
    return line


def full(*, strangers: int = 0, members: int = 2) -> tuple[Keeping, Gang]:
    """Return a full quota in which all members of a gang live, and one of high priority waits."""
    line = keeping(strangers, strangers + members)
    gang = line.keep(members)
    line.observe(strangers + members, strangers + members)
    line.appear(gang, *(f"m{number}" for number in range(members)))
    line.later(1)
    assert shares(line) == (0, 0, 0)
    return line, gang


def test_it_does_not_end_when_all_is_drawn_and_has_no_limit() -> None:
    """It ends only when it is given back."""
    line, gang = full()
    line.later(100_000)
    assert gang.end is None
    (shown,) = line.seen().gangs
    assert (shown.keeps, shown.wanted, shown.drawn, shown.undrawn, shown.until) == (True, 2, 2, 0, float("inf"))
    line.give_back(gang)
    assert gang.end == "given-back"
    assert not line.seen().gangs


def test_a_limit_is_refused() -> None:
    """It would never end it."""
    with pytest.raises(GangError, match="has no limit"):
        Reservation("g", NS, Parts([(Demand(amounts_of(1)), 1)]), limit=5, keeps=True)


@pytest.mark.parametrize("order", [*permutations(["end", "fall", "time"])])
def test_the_room_of_a_member_that_ends_is_for_the_next_one(order: tuple[str, ...]) -> None:
    """Whether its end is told first or the fall of used, and however much time is in between, up to the lag."""
    line, gang = full(strangers=3)
    waiting = line.submit(1, priority=9)
    for event in order:
        if event == "end":
            line.end("m0")
        elif event == "fall":
            line.observe(4, 5)
        else:
            line.later(LAG * 0.9)
        assert state_of(waiting) == "waiting"
    line.later(LEFT_FOR + 1)
    assert shares(line) == (0, 1, 0)
    line.observe(5, 5)
    line.appear(gang, "n0")
    line.later(1)
    assert (shares(line), gang.drawn, gang.left) == ((0, 0, 0), 2, 0)
    assert state_of(waiting) == "waiting"


def test_a_fall_that_no_end_explains_in_time_is_anybodys() -> None:
    """A stranger has left: the one who waits gets in after the lag, and the gang lacks nothing."""
    line, gang = full(strangers=3)
    waiting = line.submit(1)
    line.observe(4, 5)
    line.later(LAG * 0.9)
    assert state_of(waiting) == "waiting"
    line.later(LAG * 0.2)
    assert state_of(waiting) == "sent"
    assert gang.left == 0


@pytest.mark.parametrize("told", list(permutations(["end", "fall"])), ids="-".join)
def test_the_end_of_another_create_of_ours_explains_its_fall(told: tuple[str, ...]) -> None:
    """Such as that of a Task's pod, beside Jobs: who waits need not wait for the lag as well."""
    line = keeping(0, 3)
    line.controller.ends_told(NS, line.now, told=True)
    single = line.submit(1)
    line.advance()
    line.settle(line.ticket_of(single), Created(stored="single"))
    line.observe(1, 3)
    gang = line.keep(2)
    line.observe(3, 3)
    line.appear(gang, "m0", "m1")
    line.later(1)
    waiting = line.submit(1)
    for news in told:
        if news == "end":
            line.end("single")
        else:
            line.observe(2, 3)
    line.later(LAG * 0.1)
    assert state_of(waiting) == "sent"
    line.end("m0")
    assert gang.left == 1


def test_more_than_members_are_charged_is_anybodys_at_once() -> None:
    """Of five that left, at most two were members."""
    line, _ = full(strangers=5)
    waiting = [line.submit(1) for _ in range(5)]
    line.observe(2, 7)
    line.later(0.01)
    assert [state_of(each) for each in waiting] == ["sent"] * 3 + ["waiting"] * 2


def test_a_successor_may_appear_before_the_fall_is_seen() -> None:
    """Where the quota is not full."""
    line = keeping(0, 5)
    gang = line.keep(2)
    line.observe(2, 5)
    line.appear(gang, "a", "b")
    line.end("a")
    assert shares(line) == (0, 1, 2)  # counted twice: used has it, too
    line.observe(3, 5)
    line.appear(gang, "c")
    assert shares(line) == (0, 0, 2)
    line.observe(2, 5)
    line.later(1)
    assert shares(line) == (0, 0, 3)


def test_a_fall_that_is_never_seen_is_not_waited_for_for_ever() -> None:
    """The successor's charge came in one event with it; a stranger's room is the gang's for a while, then its lack."""
    line, gang = full(strangers=3)
    line.end("m0")
    line.observe(5, 5)
    assert (shares(line)[1], line.seen().gangs[0].lacks) == (1, {})
    line.later(LEFT_FOR)
    assert shares(line) == (0, 0, 0)
    assert line.seen().gangs[0].lacks == {("compute", "cpu"): ONE}
    assert gang.left == 1


def test_a_charge_that_is_seen_first_is_not_held_again() -> None:
    """Members are charged before they appear: others need not wait for a hold to end."""
    line = keeping(0, 5)
    gang = line.keep(2)
    waiting = line.submit(4)
    line.observe(1, 5)
    line.appear(gang, "a")
    assert shares(line) == (0, 1, 3)
    line.observe(0, 5)
    assert state_of(waiting) == "waiting"
    line.observe(2, 10)
    line.appear(gang, "b")
    line.later(0.01)
    assert state_of(waiting) == "sent"


def test_a_charge_before_its_member_costs_no_gang_its_room() -> None:
    """Room is below zero for a moment; after that it was a stranger's, and the youngest gang lacks it."""
    line = keeping(0, 3)
    elder, younger = line.keep(2), line.keep(1)
    line.observe(1, 3)
    assert [gang.lacks for gang in line.seen().gangs] == [{}, {}]
    line.appear(elder, "a")
    line.later(LEFT_FOR * 2)
    assert [gang.lacks for gang in line.seen().gangs] == [{}, {}]
    line.observe(2, 3)
    line.later(LEFT_FOR * 2)
    assert [gang.lacks for gang in line.seen().gangs] == [{}, {("compute", "cpu"): ONE}]
    assert younger.left == 1


def test_resized_it_gives_back_what_is_undrawn_and_does_not_take_back_what_ends() -> None:
    """In one step; more than it has now changes nothing."""
    line = keeping(0, 4)
    gang = line.keep(4)
    line.observe(2, 4)
    line.appear(gang, "a", "b")
    waiting = line.submit(1)
    line.resize(gang, 9)
    assert (gang.left, state_of(waiting)) == (2, "waiting")
    line.resize(gang, 1)
    assert (gang.left, state_of(waiting)) == (0, "sent")
    line.created(line.ticket_of(waiting))
    line.end("a")
    assert gang.left == 0
    line.end("b")
    assert gang.left == 1
    line.resize(gang, 0)
    line.observe(1, 4)
    line.later(1)
    assert shares(line) == (0, 0, 3)
    assert gang.end is None


def test_room_that_is_given_up_before_its_fall_is_seen_is_anybodys_when_it_is() -> None:
    """The last completion: the pod ends, the gang shrinks, then used falls. Nobody waits for the lag."""
    line, gang = full(strangers=3)
    waiting = line.submit(1)
    line.end("m0")
    line.resize(gang, 1)
    assert state_of(waiting) == "waiting"
    line.observe(4, 5)
    line.later(0.01)
    assert (state_of(waiting), gang.left) == ("sent", 0)


@pytest.mark.parametrize("order", [*permutations(["end", "fall", "give back"])])
def test_the_end_of_the_last_member_and_of_its_gang_free_the_room_at_once(order: tuple[str, ...]) -> None:
    """In any order, beside another gang whose members live."""
    line = keeping(0, 3)
    other, gang = line.keep(2), line.keep(1)
    line.observe(3, 3)
    line.appear(other, "a", "b")
    line.appear(gang, "c")
    waiting = line.submit(1)
    for event in order:
        if event == "end":
            line.end("c")
        elif event == "fall":
            line.observe(2, 3)
        else:
            line.give_back(gang)
    line.later(0.01)
    assert state_of(waiting) == "sent"


def test_a_gang_that_absorbs_another_has_its_room_and_members() -> None:
    """Nobody gets any of it in between."""
    line = keeping(0, 4)
    gang, other = line.keep(2), line.keep(2)
    line.observe(3, 4)
    line.appear(gang, "a", "b")
    line.appear(other, "c")
    line.end("c")
    waiting = line.submit(1, priority=9)
    line.absorb(gang, other)
    assert (other.end, gang.left, gang.drawn, gang.wanted) == ("absorbed", 2, 2, [4])
    assert state_of(waiting) == "waiting"
    line.observe(2, 4)
    line.later(1)
    assert (shares(line), state_of(waiting)) == ((0, 2, 0), "waiting")
    line.observe(3, 4)
    line.appear(gang, "d")
    line.end("d")
    assert gang.left == 2


def test_the_members_of_an_absorbed_gang_are_the_others() -> None:
    """What one of them leaves when it ends is for the gang that has absorbed its own."""
    line = keeping(0, 4)
    gang, other = line.keep(2), line.keep(2)
    line.observe(2, 4)
    line.appear(other, "a", "b")
    line.absorb(gang, other)
    line.end("a")
    assert (gang.left, gang.drawn) == (3, 1)


def test_who_wants_less_lacks_less() -> None:
    """Strangers took all: there is nothing to give back."""
    line = keeping(0, 2)
    gang = line.keep(2)
    line.observe(2, 2)
    line.later(LEFT_FOR + 1)
    (before,) = line.seen().gangs
    line.resize(gang, 1)
    (after,) = line.seen().gangs
    assert [sum(lacks.values()) for lacks in (before.lacks, after.lacks)] == [2 * ONE, ONE]
    assert shares(line)[0] == 0


def test_a_charge_long_before_a_member_appears_was_not_its_own() -> None:
    """A quota that shows the same again proves nothing new."""
    line = keeping(0, 4)
    gang = line.keep(2)
    line.observe(1, 4)
    line.later(APPEARS_IN / 2)
    line.observe(1, 4)
    line.later(APPEARS_IN)
    line.appear(gang, "a")
    assert shares(line)[1:] == (1, 1)


def test_what_the_absorbed_gang_lacks_the_other_lacks() -> None:
    """Strangers took it."""
    line = keeping(0, 4)
    gang, other = line.keep(2), line.keep(2)
    line.observe(1, 4)
    line.later(LEFT_FOR + 1)
    lacks = line.seen().gangs[1].lacks
    assert lacks
    line.absorb(gang, other)
    assert [each.lacks for each in line.seen().gangs] == [lacks]


def test_what_can_not_be_absorbed_resized_or_adopted_is_a_mistake() -> None:
    """And changes nothing."""
    line = keeping(0, 20)
    gang, other, ordinary = line.keep(2), line.keep(1, 1, cpus=(4, 1)), line.gang((2, 1))
    for pair in ((gang, other), (ordinary, gang), (gang, gang)):
        with pytest.raises(GangError, match="can't absorb"):
            line.absorb(*pair)
    with pytest.raises(GangError, match="can't be resized"):
        line.resize(gang, 1, 1)
    with pytest.raises(GangError, match="can't be resized"):
        line.resize(ordinary, 1)
    with pytest.raises(GangError, match="can't be resized"):
        line.resize(gang, -1)
    with pytest.raises(GangError, match="does not keep"):
        line.adopt(ordinary, "a")
    line.draw(ordinary)
    with pytest.raises(GangError, match="can't absorb"):
        line.absorb(gang, ordinary)
    line.give_back(gang)
    line.resize(gang, 1)
    with pytest.raises(GangError, match="can't absorb"):
        line.absorb(gang, other)
    assert not line.controller.gangs_of(gang.namespace).adopt(gang, "a", Demand(amounts_of(1)), line.now)
    with pytest.raises(GangError, match="can't absorb"):
        Keeping().absorb(gang, other)


def test_an_ordinary_gang_can_be_absorbed() -> None:
    """Of its members only those that are undrawn."""
    line = keeping(0, 4)
    gang, other = line.keep(2), line.gang((2, 1))
    line.created(line.ticket_of(line.draw(other)))
    line.absorb(gang, other)
    assert (gang.wanted, gang.left, gang.drawn) == ([3], 3, 0)


def test_members_that_lived_before_a_restart_are_not_counted_twice() -> None:
    """A standing gang asks for all that it wants, then adopts those that live; one has just ended, and used has it."""
    line = keeping(5, 5)
    younger = line.keep(1, standing=True)
    gang = line.keep(4, standing=True, priority=1)
    assert [each.lacks for each in line.seen().gangs] == [{}, {}]
    line.adopt(younger, "y")
    line.adopt(gang, "a", "b", "c")
    assert not line.controller.gangs_of(gang.namespace).adopt(gang, "a", Demand(amounts_of(1)), line.now)
    waiting = line.submit(1, priority=9)
    assert (gang.drawn, gang.left, shares(line)[:2]) == (3, 1, (0, 1))
    line.observe(4, 5)
    line.later(1)
    assert (state_of(waiting), shares(line)) == ("waiting", (0, 1, 0))
    line.end("b")
    assert gang.left == 2


def test_one_that_lives_beyond_what_is_wanted_is_not_followed_by_another() -> None:
    """A Job controller may replace a pod that is still terminating."""
    line = keeping(0, 5)
    gang = line.keep(2)
    line.observe(2, 5)
    line.appear(gang, "a", "b")
    line.observe(3, 5)
    assert not line.controller.gangs_of(gang.namespace).appeared(gang, "c", Demand(amounts_of(1)), line.now)
    line.adopt(gang, "d")
    assert (gang.left, gang.drawn) == (0, 4)
    line.end("a", "d")
    assert gang.left == 0
    line.end("c")
    assert gang.left == 1


def test_an_end_that_is_told_before_the_member_counts_it_never() -> None:
    """Another watch was quicker: its room stays reserved."""
    line = keeping(0, 5)
    gang = line.keep(2)
    line.end("a")
    line.appear(gang, "a")
    assert (gang.left, gang.drawn) == (2, 0)


def test_a_member_that_is_charged_otherwise_corrects_the_rest() -> None:
    """As in any gang; its own end gives back what it was charged."""
    line = keeping(0, 20)
    gang = line.keep(3, 1)
    line.appear(gang, "a", cpu=3)
    line.observe(3, 20)
    assert shares(line)[1] == 9 if gang.undrawn == [3, 0] else 8
    line.end("a")
    line.observe(0, 20)
    line.later(1)
    assert gang.left == 4
    assert shares(line)[0] == 0


def test_a_smaller_successor_leaves_the_rest_to_others() -> None:
    """A member of three CPUs, of a part of two."""
    line = keeping(0, 6)
    gang = line.keep(1, 1)
    line.observe(1, 6)
    line.appear(gang, "a", cpu=1)
    line.observe(4, 6)
    line.controller.gangs_of(gang.namespace).adopt(gang, "b", Demand(amounts_of(3)), line.now)
    line.resize(gang, 1, 0)
    waiting = line.submit(2)
    line.end("b")
    line.observe(1, 6)
    line.later(0.01)
    assert state_of(waiting) == "sent"


def test_draws_of_ours_return_too() -> None:
    """Known by the uid in the 201; the next draw waits until the quota no longer counts the member before."""
    line = keeping(1, 2)
    gang = line.keep(1)

    line.settle(line.ticket_of(line.draw(gang)), Created(stored="a"))
    line.observe(2, 2)
    with pytest.raises(GangError, match="are drawn"):
        line.controller.of(NS).draw(Draw("x", gang, 0), line.now)
    line.end("a")
    draw = line.draw(gang)
    assert state_of(draw) == "waiting"
    line.observe(1, 2)
    assert state_of(draw) == "sent"
    line.end("b")  # before the answer
    line.settle(line.ticket_of(draw), Created(stored="b"))
    assert (gang.left, gang.drawn) == (1, 0)


def test_a_draw_in_flight_that_is_no_longer_wanted_is_not_sent_again() -> None:
    """The gang was resized meanwhile."""

    line = keeping(0, 2)
    gang = line.keep(2)
    draw = line.draw(gang)
    line.resize(gang, 0)
    line.settle(line.ticket_of(draw), Overloaded())
    assert (state_of(draw), gang.left) == ("over", 0)

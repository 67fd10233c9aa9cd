"""A gang that keeps its room: charges and members that are reported in either order, and what that must not change."""

from __future__ import annotations

from itertools import permutations

import pytest

from backoff_ctrl.engine import Created, Policy
from backoff_ctrl.engine.facts.entries import APPEARS_IN, LEFT_FOR
from tests.engine.gangs.test_draws import shares
from tests.engine.gangs.test_keeping_room import keeping
from tests.kit.timeline import state_of

LAG = Policy().ends_lag


def test_a_member_that_lives_was_not_the_one_whose_fall_was_seen() -> None:
    """One is charged and another falls, before either is told: the first appears, and is not held again."""
    line = keeping(0, 5)
    gang = line.keep(2)
    line.observe(1, 5)
    line.appear(gang, "a")
    line.observe(2, 5)
    line.observe(1, 5)
    line.appear(gang, "b")
    assert shares(line)[:2] == (0, 0)
    line.end("a")
    line.later(1)
    assert (shares(line), gang.left) == ((0, 1, 3), 1)


def test_of_a_fall_whose_member_is_known_the_early_charge_was_anothers() -> None:
    """It is still expected to appear."""
    line = keeping(0, 5)
    gang = line.keep(2)
    line.observe(1, 5)
    line.appear(gang, "a")
    line.observe(2, 5)
    line.observe(1, 5)
    line.end("a")
    line.appear(gang, "b")
    assert (shares(line)[:2], gang.left) == ((0, 1), 1)


def test_what_an_absorbed_gang_waits_for_is_waited_for() -> None:
    """Falls that are to come are of the gang that has absorbed it; those of others are not."""
    line = keeping(0, 5)
    gang, other, third = line.keep(1), line.keep(1), line.keep(1)
    line.observe(3, 5)
    for member, uid in ((gang, "a"), (other, "b"), (third, "c")):
        line.appear(member, uid)
        line.end(uid)
    line.absorb(gang, other)
    line.give_back(gang)
    line.observe(1, 5)
    line.later(1)
    assert shares(line)[1] == 1


def test_a_pod_of_a_gang_that_is_over_leaves_no_rise_to_another_gang() -> None:
    """Told twice or not: the rise was its charge, so that the other gang's member is held until its own is shown."""
    line = keeping(0, 5)
    gang, other = line.keep(1), line.keep(1)
    line.observe(1, 5)
    line.give_back(gang)
    line.appear(gang, "a", "a")
    line.appear(other, "b")
    assert shares(line)[:2] == (1, 0)
    line.observe(2, 5)
    assert shares(line)[:2] == (0, 0)


def test_members_of_a_gang_that_is_over_count_no_more_after_a_change_of_the_quota() -> None:
    """What they leave is anybody's: a fall is no member's then."""
    line = keeping(0, 5)
    gang = line.keep(2)
    line.appear(gang, "a", "b")
    line.observe(2, 5)
    line.give_back(gang)
    line.observe(2, 4)
    waiting = line.submit(4)
    line.observe(0, 4)
    line.later(0.1)
    assert state_of(waiting) == "sent"


def test_what_may_be_counted_twice_stays_so_after_a_change_of_the_quota() -> None:
    """No gang lacks room for a member that is held though its charge was shown, nor for one that is yet to fall."""
    line = keeping(0, 3)
    gang = line.keep(3)
    line.observe(1, 3)
    line.later(2 * APPEARS_IN)
    line.appear(gang, "a")
    line.observe(2, 3)
    line.appear(gang, "b")
    line.end("b")
    line.observe(2, 4)
    line.observe(2, 3)
    (seen,) = line.seen().gangs
    assert not any(seen.lacks.values())


def test_a_gang_that_was_taken_over_sees_its_members_fall_one_by_one() -> None:
    """Of what it lacks at a restart, since they have just ended, each fall shows a part."""
    line = keeping(3, 3)
    gang = line.keep(3, standing=True)
    for used in (2, 1, 0):
        line.observe(used, 3)
        line.later(0.1)
    (seen,) = line.seen().gangs
    assert not any(seen.lacks.values())
    assert shares(line) == (0, 3, 0)
    assert gang.left == 3


@pytest.mark.parametrize("told", list(permutations(["appeared", "answered", "ended"])), ids="-".join)
def test_a_drawn_member_counts_once_in_whatever_order_it_is_told(told: tuple[str, ...]) -> None:
    """Its watch may be quicker than its answer."""
    line = keeping(0, 3)
    gang = line.keep(2)
    draw = line.draw(gang)
    line.observe(1, 3)
    for event in told:
        if event == "answered":
            line.settle(line.ticket_of(draw), Created(stored="u1"))
        elif event == "appeared":
            line.appear(gang, "u1")
        else:
            line.end("u1")
    line.observe(0, 3)
    line.later(LEFT_FOR)
    assert (gang.alive, gang.undrawn, shares(line)) == ([0], [2], (0, 2, 1))

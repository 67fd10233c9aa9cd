"""Members that somebody else creates: each takes its part out of what is reserved, once, with its real charge."""

from __future__ import annotations

from backoff_ctrl.engine import Created, Demand, Gang, Policy, Selector
from backoff_ctrl.engine.facts.entries import BESIDE_GANGS
from tests.engine.gangs.test_draws import shares
from tests.kit.timeline import NS, Timeline, amounts_of, settled, state_of

HOLD = Policy().answered_hold * BESIDE_GANGS
"""Seconds that a hold lasts which was answered while a gang lacked members."""


def appears(line: Timeline, gang: Gang, uid: str, cpu: float) -> bool:
    """Report a member."""
    counted = line.controller.gangs_of(gang.namespace).appeared(gang, uid, Demand(amounts_of(cpu)), line.now)
    line.advance()
    return counted


def test_a_member_that_appears_moves_from_reserved_to_held_and_then_to_used() -> None:
    """There is no moment in which its room is anybody else's."""
    line, gang = settled(0, 8).with_gang((4, 2))
    waiting = line.submit(1)
    assert appears(line, gang, "a", 2)
    assert shares(line) == (2, 6, 0)
    line.observe(2, 8)
    assert shares(line) == (0, 6, 0)
    assert state_of(waiting) == "waiting"


def test_a_charge_that_is_seen_first_counts_twice_until_the_member_is_known() -> None:
    """That is the safe side; it ends with the report, since a hold needs no second rise."""
    line, gang = settled(0, 10).with_gang((4, 2))
    line.observe(2, 10)
    assert shares(line) == (0, 8, 0)
    waiting = line.submit(1)
    assert appears(line, gang, "a", 2)
    line.later(HOLD)
    assert shares(line)[1] == 6
    assert state_of(waiting) == "sent"


def test_each_uid_counts_once_and_one_more_than_the_gang_has_is_a_stranger() -> None:
    """Reports come again when a watch is resumed."""
    line, gang = settled(0, 8).with_gang((2, 2))
    assert appears(line, gang, "a", 2)
    assert not appears(line, gang, "a", 2)
    assert line.reserved() == 2
    assert appears(line, gang, "b", 2)
    assert gang.end == "complete"
    assert not appears(line, gang, "c", 2)
    assert shares(line)[1] == 0


def test_a_real_charge_that_differs_corrects_the_undrawn_rest() -> None:
    """Each is charged three instead of two: the two that are still to come reserve six."""
    line, gang = settled(0, 20).with_gang((3, 2))
    appears(line, gang, "a", 3)
    assert shares(line) == (3, 6, 11)


def test_a_member_counts_for_the_part_it_is_like() -> None:
    """Else for the part that lacks most."""
    line, gang = settled(0, 20).with_gang((1, 4), (3, 2))
    appears(line, gang, "a", 4)
    assert gang.undrawn == [0, 3]
    appears(line, gang, "b", 2.5)
    assert gang.undrawn == [0, 2]


def test_a_member_that_no_quota_charges_counts_all_the_same() -> None:
    """Its gang is complete when all have appeared."""
    line = Timeline()
    line.watching(NS)
    gang = line.gang((1, 2))
    assert appears(line, gang, "a", 2)
    assert gang.end == "complete"


def test_the_limit_counts_from_the_last_that_appeared() -> None:
    """As from the last draw."""
    line, gang = settled(0, 8).with_gang((2, 2), limit=60)
    line.later(50)
    appears(line, gang, "a", 2)
    line.later(59)
    assert gang.end is None
    line.later(1)
    assert gang.end == "limit"
    assert not appears(line, gang, "b", 2)


def test_a_draw_that_waits_keeps_its_member() -> None:
    """One that appears while draws wait for all that is left is a stranger: else one too many would be sent."""
    line, gang = settled(0, 8, Policy(overload_start=1, overload_max=1)).with_gang((2, 2))
    line.draw(gang)
    waiting = line.draw(gang)
    assert not appears(line, gang, "a", 2)
    line.created(line.ticket_of(next(r for r in line.admitted() if r is not waiting)))
    assert state_of(waiting) == "sent"
    assert gang.undrawn == [0]


def test_a_member_that_is_charged_less_leaves_room_to_others_at_once() -> None:
    """Those who wait need no further news."""
    line, gang = settled(0, 8).with_gang((4, 2))
    waiting = line.submit(1)
    assert state_of(waiting) == "waiting"
    appears(line, gang, "a", 1)
    assert state_of(waiting) == "sent"


def test_the_hold_of_a_member_ends_by_itself() -> None:
    """As that of an answered create: its charge may have been told before it was known as a member."""
    line, gang = settled(0, 8).with_gang((4, 2))
    line.observe(2, 8)
    appears(line, gang, "a", 2)
    waiting = line.submit(2)
    assert state_of(waiting) == "waiting"
    line.observe(0, 8)  # room for it, beside the hold
    line.later(HOLD)
    assert state_of(waiting) == "sent"


def test_beside_a_gang_that_lacks_members_a_hold_lasts_until_its_charge_was_surely_read() -> None:
    """On a busy machine the alarm may ring before the watch is read: then another would get a member's room."""
    line, gang = settled(0, 8).with_gang((3, 2))
    line.created(line.ticket_of(line.submit(2)))
    waiting = line.submit(2)
    line.later(0.2)
    assert state_of(waiting) == "waiting"
    line.observe(2, 8)  # the charge: late
    line.later(HOLD)
    assert state_of(waiting) == "waiting"
    for uid in "abc":
        appears(line, gang, uid, 2)
    line.observe(4, 8)
    assert gang.end == "complete"
    line.later(HOLD / 2)  # for the members' own charges may not have been read
    assert state_of(waiting) == "waiting"
    line.later(HOLD / 2)
    assert state_of(waiting) == "sent"


def test_a_list_that_was_asked_for_before_a_member_appeared_is_not_believed() -> None:
    """It may lack the member, and show its room as free."""
    line = Timeline()
    single = line.submit(4)
    line.refused(line.ticket_of(single), 1, 4)
    line.controller.of(single.namespace).withdraw(single, line.now)
    gang = line.gang_of(line.reserve((2, 1.5), standing=True))
    line.later(10)
    assert line.ceiling()["headroom"] == 0
    asked_at = line.now
    line.later(1)
    appears(line, gang, "a", 1.5)
    line.later(0.1)
    line.controller.observe_quota(NS, "compute", line.quota(1, 4), line.now, asked_at)
    line.advance()
    assert line.ceiling()["headroom"] == 0


def test_a_member_of_other_scopes_corrects_where_the_rest_is_charged() -> None:
    """A webhook gives the pods a priority class, and a quota of that class charges them, too."""
    line = settled(0, 100)
    line.observe(0, 10, quota="gold", selector=Selector([(True, frozenset({"gold"}))]))
    gang = line.gang((3, 2))
    assert line.reserved(quota="gold") == 0
    charged = Demand(amounts_of(2), frozenset({"gold"}))
    assert line.controller.gangs_of(gang.namespace).appeared(gang, "a", charged, line.now)
    line.advance()
    assert (line.reserved(), line.reserved(quota="gold")) == (4, 4)


def test_a_member_is_of_none_but_the_parts_that_it_may_be_of() -> None:
    """A claim that is charged otherwise than expected takes no pod's room; nor does one too many."""
    line, gang = settled(0, 20).with_gang((3, 2), (1, 4))
    line.controller.gangs_of(gang.namespace).appeared(gang, "claim", Demand(amounts_of(3)), line.now, [1])
    assert gang.undrawn == [3, 0]
    assert not line.controller.gangs_of(gang.namespace).appeared(gang, "another", Demand(amounts_of(3)), line.now, [1])
    assert gang.undrawn == [3, 0]


def test_a_drawn_member_that_appears_before_its_answer_counts_once() -> None:
    """The other one may still be drawn."""
    line, gang = settled(0, 4).with_gang((2, 1))
    draw = line.draw(gang)
    assert appears(line, gang, "u1", 1)
    line.settle(line.ticket_of(draw), Created(stored="u1"))
    assert (gang.drawn, gang.left, gang.end) == (1, 1, None)
    line.observe(1, 4)
    line.later(2)
    assert shares(line) == (0, 1, 2)

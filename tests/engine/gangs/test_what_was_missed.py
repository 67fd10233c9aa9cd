"""A gang that keeps its room, and a watch that is lost for a while: what was missed gives no room away."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine.facts.entries import LOST_FOR
from tests.engine.gangs.test_keeping_room import LAG, full, keeping
from tests.kit.timeline import NS, ONE, state_of


def test_while_ends_may_be_missed_room_is_held_back() -> None:
    """Until the watch is back and has told what it missed; but not for ever."""
    line, gang = full(strangers=3)
    first, second = line.submit(1), line.submit(1)
    line.told(False)
    line.observe(3, 5)
    line.later(LOST_FOR / 2)
    assert state_of(first) == "waiting"
    line.end("m1")
    line.told(True)
    line.later(LAG * 2)
    assert (state_of(first), state_of(second), gang.left) == ("sent", "waiting", 1)


def test_room_is_not_held_back_for_ever() -> None:
    """A watch that never comes back must not starve others."""
    line, _ = full(strangers=3)
    waiting = line.submit(1)
    line.told(False)
    line.observe(4, 5)
    line.later(LOST_FOR - 1)
    assert state_of(waiting) == "waiting"
    line.later(1)
    assert state_of(waiting) == "sent"


def test_no_probe_takes_room_that_is_held_back() -> None:
    """The server would store it in the room of a member. It waits as it would with the quota watched."""
    line, _ = full(strangers=3)
    line.told(False)
    line.observe(4, 5)
    line.watch_lost(NS)
    waiting = line.submit(1)
    line.later(LOST_FOR - 1)
    assert state_of(waiting) == "waiting"
    line.later(1)
    assert state_of(waiting) == "sent"
    assert not line.ticket_of(waiting).probe


def test_a_probe_says_nothing_of_the_room_that_is_held_back() -> None:
    """A larger one was stored: as much less is used as it lacked, and not what is doubted besides."""
    line, _ = full(strangers=3)
    line.told(False)
    line.observe(4, 5)
    line.watch_lost(NS)
    larger = line.submit(2)
    line.later(10)
    probe = line.ticket_of(larger)
    assert probe.probe
    line.created(probe)
    assert line.cpu().used == 3 * ONE


def test_while_the_watch_stays_lost_a_fall_is_doubted_no_longer_than_usual() -> None:
    """The minute counts from the loss, not anew from each fall of strangers that come and go."""
    line, _ = full(strangers=3)
    line.told(False)
    line.later(LOST_FOR)
    line.told(False)
    line.observe(4, 5)
    waiting = line.submit(1)
    assert state_of(waiting) == "waiting"
    line.later(LAG)
    assert state_of(waiting) == "sent"


@pytest.mark.parametrize("missed", ["changes of the quota", "ends of members"])
def test_a_fall_that_was_missed_is_not_expected_any_more(missed: str) -> None:
    """Something else was charged meanwhile: the quota shows no fall. The next is a member's whose end comes later."""
    line, gang = full()
    line.told(missed != "ends of members")
    line.end("m1")
    line.resize(gang, 1)  # so that the fall of m1 is anybody's
    line.told(True)
    if missed == "changes of the quota":
        line.watch_lost(NS)
        line.observe(2, 2)
        line.watching(NS)
    waiting = line.ask(1)
    line.later(0.1)
    line.observe(1, 2)
    line.later(0.1)
    assert state_of(waiting) == "waiting"
    line.end("m0")
    line.later(2 * LAG)
    assert state_of(waiting) == "waiting", "the next member of its gang has that room"


def test_a_fall_that_a_successor_has_hidden_is_not_expected_any_more() -> None:
    """The quotas were not shown while a member ended and the next one came: the next fall is that of another."""
    line, gang = full()
    line.watch_lost(NS)
    line.end("m1")
    line.appear(gang, "n1")
    line.later(1)
    line.observe(2, 2)
    line.watching(NS)
    waiting = line.ask(1)
    line.observe(1, 2)
    line.later(0.1)
    assert state_of(waiting) == "waiting"
    line.end("m0")
    line.later(2 * LAG)
    assert state_of(waiting) == "waiting"


@pytest.mark.parametrize("told", [True, False])
def test_where_less_is_used_than_members_are_charged_some_have_ended(told: bool) -> None:
    """The quotas were not shown while members came and one ended: its room is its gang's if its end is told in time."""
    line = keeping(0, 2)
    gang = line.keep(2)
    line.watch_lost(NS)
    line.appear(gang, "m0", "m1")
    line.later(1)
    line.observe(1, 2)
    line.watching(NS)
    waiting = line.ask(1)
    line.later(LAG * 0.9)
    assert state_of(waiting) == "waiting"
    if told:
        line.end("m1")
    line.later(LAG)
    assert state_of(waiting) == ("waiting" if told else "over")

"""Wakes on news: a quota that reports less used than our living creates are charged is doubted, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine import Created, Rejected, Ticket
from backoff_ctrl.engine.facts.ceilings import Ceiling
from backoff_ctrl.engine.facts.living import DOUBTED_MAX, OLD, TRAILS_MAX, Living
from tests.kit.followed import SETTLED, Followed, full
from tests.kit.timeline import NS, ONE, QUOTA, tickets

if TYPE_CHECKING:
    from collections.abc import Callable


def test_where_ends_are_reported_a_recount_is_doubted_for_nothing_else() -> None:
    """It is known what lives, so no room has to wait for as long as a recount may trail."""
    for told, free in ((True, 4), (False, 0)):
        line = Followed(told=told)
        line.fill(answered_after=0.01)
        for name in "abcd":
            line.end(name)
        assert len(line.count_again(0)) == free


def test_a_doubt_that_lasts_is_dropped_and_begins_again_with_the_next_create() -> None:
    """Charged less than we believe, or given back before its end: after a second the server decides."""
    line = full()
    assert line.count_again(2) == []
    assert tickets(line.later(TRAILS_MAX - 2 * SETTLED)) == []
    went = tickets(line.later(2 * SETTLED))
    assert len(went) == 2
    line.observe(4, 4)
    for ticket, name in zip(went, "ef", strict=True):
        line.settle(ticket, Created(stored=name))

    assert (
        line.end("a") == line.end("b") == []
    )  # they no longer count, and their ends do not lower the count of the others
    assert len(line.count_again(1)) == 2  # e and f are known to live, whatever a recount says


def test_a_doubt_that_grows_is_not_dropped_sooner() -> None:
    """More reports in the same second are no reason to drop it sooner."""
    line = full()
    assert line.count_again(3) == []
    line.later(TRAILS_MAX / 2)
    assert line.count_again(1) == []
    assert tickets(line.later(TRAILS_MAX / 4)) == []


def test_doubts_that_come_and_go_are_not_dropped() -> None:
    """A busy second is full of recounts that lack creates of that second; each is found again soon."""
    line = full()
    alive = ["a", "b", "c", "d"]
    line.crowd(95)
    for number in range(90):  # six seconds
        line.end(alive.pop(0))
        (ticket,) = line.count_again(3)
        line.observe(4, 4)
        line.settle(ticket, Created(stored=f"new-{number}"))
        alive.append(f"new-{number}")
        assert line.count_again(3) == []
        line.later(0.06)
        assert line.count_again(4) == []


@pytest.mark.parametrize("each", [0.05, 0.3, 0.9])
def test_in_a_busy_namespace_too_a_doubt_is_dropped_in_the_end(each: float) -> None:
    """A create counted as living but not charged costs its room for half a minute, however much comes and goes."""
    line = Followed()
    line.create("false")
    line.observe(0, 4, then=SETTLED)
    alive = ["a", "b", "c"]
    sent = [line.ticket_of(line.submit(1)) for _ in alive]
    line.observe(3, 4)
    for ticket, name in zip(sent, alive, strict=True):
        line.settle(ticket, Created(stored=name))
    line.crowd(1000)
    began, went = line.now, list[Ticket]()
    while line.now < began + DOUBTED_MAX + 2:
        went += line.end(alive.pop(0))
        line.observe(len(alive) + len(went), 4)
        went += tickets(line.later(SETTLED))
        line.observe(len(alive) + len(went), 4)
        for ticket in went:
            line.settle(ticket, Created(stored=ticket.request.id))
            alive.append(ticket.request.id)
        went = tickets(line.later(each))

    assert len(alive) + len(went) == 4


def test_a_doubt_is_examined_even_without_a_report() -> None:
    """A create that the quota never charges ends its hold by time, and is forgotten in the end."""
    line = Followed()
    sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored=name))
    line.wait_in_line()
    assert tickets(line.later(TRAILS_MAX)) == []

    assert len(tickets(line.later(0.1))) == 4
    assert line.controller.next_deadline() is not None


def test_a_refusal_with_a_higher_used_ends_the_doubt() -> None:
    """Its figures are newer: the room they leave is not reduced by the old doubt."""
    line = Followed()
    line.create("a", "b")
    line.count_again(1)
    ticket = line.ticket_of(line.submit(2))
    line.later(0.001)
    line.refused(ticket, 3, 4)

    assert (line.cpu().used, line.cpu().headroom) == (3 * ONE, ONE)


def test_a_refusal_with_less_used_than_lives_is_doubted_too() -> None:
    """It gives the same count: an edited limit is believed, but no less used than what lives."""
    line = Followed()
    line.create("a", "b", "c")
    line.later(0.01)
    line.refused(line.ticket_of(line.submit(1)), 1, 1)

    assert (line.cpu().limited, line.cpu().used) == (ONE, 3 * ONE)


@pytest.mark.parametrize("ungated", [True, False])
def test_a_doubt_raised_by_a_refusal_is_dropped_too(ungated: bool) -> None:
    """It came before the watch's report of the same amounts, and no other report follows."""
    line = full()
    line.later(5)
    rejected = Rejected(QUOTA, {"cpu": 4 * ONE}, {"cpu": ONE}, {"cpu": 4 * ONE})
    if ungated:
        line.controller.learn(NS, frozenset(), rejected, line.now - 0.01, line.now)
    else:
        forced = line.controller.of(NS).force(line.request(4), line.now)
        line.later(0.01)
        line.settle(forced, rejected)
        line.controller.of(forced.request.namespace).withdraw(forced.request, line.now)
    line.later(2 * TRAILS_MAX + SETTLED)

    assert line.waiting() == 5 - 3


def test_a_doubt_that_comes_with_less_room_is_dropped_too() -> None:
    """A quota is edited down, and the same report says that less is used."""
    line = Followed()
    line.observe(0, 8, then=SETTLED)
    sent = [line.ticket_of(line.submit(1)) for _ in range(6)]
    line.observe(6, 8)
    for ticket, name in zip(sent, "abcdef", strict=True):
        line.settle(ticket, Created(stored=name))
    line.later(5)
    waiter = line.submit(3)
    line.observe(0, 4, then=2 * TRAILS_MAX)

    assert waiter.state == "sent"


@pytest.mark.parametrize("why", ["not followed", "nameless", "forgotten"])
def test_creates_of_unknown_fate_are_doubted_for_a_moment(why: str) -> None:
    """A claim, or a pod from before the watch began: a recount may lack it as well."""
    line = Followed(told=why != "not followed")
    sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
    line.wait_in_line()
    line.later(0.04)
    line.observe(4, 4)
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored="" if why == "nameless" else name))
    if why == "forgotten":
        line.controller.ends_told(NS, line.now, told=False)
        line.controller.ends_told(NS, line.now, told=True)
        line.advance()

    assert line.count_again(1) == []
    assert tickets(line.later(0.02)) == []  # its settle time is over
    assert len(tickets(line.later(0.1))) == 3


def test_a_doubt_is_not_fresh_room_to_probe_for() -> None:
    """With the watch of quotas lost, repeated refusals back off as usual."""
    probes = []
    for told in (True, False):
        line = Followed(told=told)
        line.create("a", "b", "c")
        line.watch_lost()
        line.submit(4)
        count = 0
        while line.now < 300:
            for ticket in tickets(line.later(0.1)):
                count += 1
                line.refused(ticket, 1, 4)
        probes.append(count)

    assert probes[0] == probes[1] < 30


def looked_at(doubts: Callable[[float], bool], *, every: float, until: float) -> int:
    """Look at regular times at a ceiling that is doubted at some of them; return how often what lives was forgotten."""
    living, ceiling = Living(followed=True), Ceiling("q", "cpu", 4, 2)
    number, moment = 0, 0.0
    while moment < until:
        if not ceiling.living:
            number += 1
            life = living.begin(f"pod-{number}", moment)
            assert life is not None
            life.count(((ceiling, 1),))
        ceiling.lowest = 0  # as other creates come and go, that does not show
        ceiling.observe(4, 0 if doubts(moment) else 2)
        living.look([ceiling], moment)
        moment += every
    return number - 1


def test_half_a_minute_of_recurring_doubts_is_too_long_and_then_starts_again() -> None:
    """Doubts in every second: forgotten once per half minute. With seconds free of doubt, or looks far apart: never."""
    assert looked_at(lambda moment: round(moment * 10) % 5 == 0, every=0.1, until=DOUBTED_MAX - 1) == 0
    assert looked_at(lambda moment: round(moment * 10) % 5 == 0, every=0.1, until=DOUBTED_MAX + 1) == 1
    assert looked_at(lambda moment: round(moment * 10) % 5 == 0, every=0.1, until=2 * DOUBTED_MAX - 1) == 1
    assert looked_at(lambda moment: moment % 10 < 8, every=0.1, until=5 * DOUBTED_MAX) == 0
    assert looked_at(lambda moment: moment % 10 < 1, every=5, until=5 * DOUBTED_MAX) == 0
    assert looked_at(lambda _: True, every=3, until=5 * DOUBTED_MAX) == 0


def test_after_half_a_minute_of_doubts_young_creates_still_count() -> None:
    """A recount may lack just these; forgetting them all at once would cause a burst of refusals each half minute."""
    living, ceiling = Living(followed=True), Ceiling("q", "cpu", 4, 2)
    lives = [living.begin(str(began), began) for began in (0.0, 1.0, DOUBTED_MAX - OLD + 1, DOUBTED_MAX - 1)]
    for moment in range(round(DOUBTED_MAX) + 1):
        assert ceiling.living == 4 * (moment > 0)
        if not moment:
            for life in lives:
                assert life is not None
                life.count(((ceiling, 1),))
        ceiling.lowest = 0
        ceiling.observe(4, 0)
        living.look([ceiling], float(moment))

    assert ceiling.living == 2
    assert [life is not None and life.known for life in lives] == [False, False, True, True]
    assert living.end("0.0", 0.0) is False
    assert living.end(str(DOUBTED_MAX - 1), DOUBTED_MAX) is True
    assert ceiling.living == 1

"""Lists that belong to no watch: they never overwrite newer facts, and they hand over the holds that they contain."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Created, Policy, Rejected
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, tickets, watched


def listed(line: Timeline, used: float, limited: float, sent: float, *, quota: str = QUOTA) -> bool:
    """Deliver a list that was requested at ``sent``; say whether the engine believed it."""
    seen = line.quota(used, limited)
    believed = line.controller.observe_quota(NS, quota, seen, line.now, sent)
    line.advance()
    return believed


def full_by_list() -> Timeline:
    """Ten waited-for creates of one CPU fill a quota of ten that was read once; the eleventh is refused."""
    line = Timeline()
    listed(line, 0, 10, line.now)
    for _ in range(10):
        line.later(0.1)
        line.created(line.ticket_of(line.submit(1)))
    line.later(0.1)
    refused = Rejected(QUOTA, {"cpu": ONE}, {"cpu": 10 * ONE}, {"cpu": 10 * ONE})
    line.controller.learn(NS, frozenset(), refused, line.now, line.now + 0.05)
    line.advance()
    return line


def test_a_list_undoes_no_change_that_a_watch_reported_while_it_was_read() -> None:
    """Eight wait for a full quota; a list says what was true before it filled: none of them is sent."""
    line = watched(0, 8)
    sent = line.now
    line.later(0.01)
    line.observe(8, 8)
    line.crowd(8)

    assert not listed(line, 0, 8, sent)
    assert line.later(60) == []


@pytest.mark.parametrize("still", [True, False], ids=["still watched", "lost since"])
def test_a_list_requested_before_a_watch_told_its_last_is_dropped(still: bool) -> None:
    """The watch had told all by then, also that there is no such quota."""
    line = Timeline()
    line.later(1)
    sent = line.now
    line.later(0.01)
    line.watching()
    if not still:
        line.watch_lost()

    assert not listed(line, 0, 8, sent)
    assert line.seen().quotas == {}


def test_a_list_brings_no_deleted_quota_back() -> None:
    """The deletion was told while the list was on its way."""
    line = Timeline()
    line.later(1)
    line.observe(0, 8, then=1)
    sent = line.now
    line.later(0.01)
    line.controller.forget_quota(NS, QUOTA, line.now)

    assert not listed(line, 0, 8, sent)


def test_of_a_list_only_what_is_newer_than_its_own_quotas_facts_is_believed() -> None:
    """A refusal of one quota came meanwhile; the other quota has no newer fact."""
    line = Timeline()
    line.later(1)
    sent = line.now
    line.later(0.01)
    full = Rejected(QUOTA, {"cpu": ONE}, {"cpu": 8 * ONE}, {"cpu": 8 * ONE})
    line.controller.learn(NS, frozenset(), full, sent, line.now)

    assert not listed(line, 0, 8, sent)
    assert listed(line, 0, 4, sent, quota="other")
    assert [line.ceiling(quota=q)["used"] for q in (QUOTA, "other")] == [8 * ONE, 0]


def test_a_list_may_lack_a_create_that_was_answered_since() -> None:
    """It was requested before the 201: what the engine counted stays."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(1))
    line.later(1)
    sent = line.now
    line.later(0.01)
    line.created(ticket)

    assert not listed(line, 0, 1, sent)


def test_a_list_that_is_newer_than_all_is_believed() -> None:
    """Once nothing is watched, the newest word counts, whichever way it came."""
    line = watched(4, 4)
    line.watch_lost()
    waiter = line.submit(1)
    line.later(0.01)

    assert listed(line, 3, 4, line.now)
    assert [ticket.request for ticket in tickets(line.later(0.01))] == [waiter]


def test_a_refusal_hands_over_the_holds_answered_before_it_was_sent() -> None:
    """Its ``used`` contains them: ten of ten are used, none is held, and nothing is left."""
    line = full_by_list()

    assert line.ceiling() == {"limited": 10 * ONE, "used": 10 * ONE, "held": 0, "headroom": 0}


def test_holds_that_were_handed_over_make_no_room_later() -> None:
    """Two minutes on, another create is still a probe: the quota is full."""
    line = full_by_list()
    line.later(130)

    assert line.ceiling()["headroom"] == 0
    line.submit(1)
    assert line.next_ticket().probe


def test_a_hold_answered_after_the_refused_create_was_sent_stays() -> None:
    """The refusal may lack it; in the end it counts as used, as no fact says otherwise."""
    line = Timeline(Policy(ticket_max=120))
    listed(line, 0, 10, line.now)
    ticket = line.ticket_of(line.submit(1))
    line.later(0.1)
    sent = line.now
    line.later(0.1)
    line.created(ticket)
    line.later(0.1)
    full = Rejected(QUOTA, {"cpu": 9 * ONE}, {"cpu": 5 * ONE}, {"cpu": 10 * ONE})
    line.controller.learn(NS, frozenset(), full, sent, line.now)
    line.advance()

    assert line.ceiling() == {"limited": 10 * ONE, "used": 5 * ONE, "held": ONE, "headroom": 4 * ONE}
    line.later(130)
    assert line.ceiling() == {"limited": 10 * ONE, "used": 6 * ONE, "held": 0, "headroom": 4 * ONE}


def test_a_newer_list_hands_over_what_it_contains_and_keeps_the_rest() -> None:
    """The create answered before the request is in its ``used``; the one in flight is not."""
    line = Timeline()
    listed(line, 0, 10, line.now)
    done, flying = (line.ticket_of(line.submit(cpu)) for cpu in (2, 1))
    line.created(done)
    line.later(1)

    assert listed(line, 2, 10, line.now)
    assert line.ceiling() == {"limited": 10 * ONE, "used": 2 * ONE, "held": ONE, "headroom": 7 * ONE}
    line.settle(flying, Created())


def test_the_rise_that_shows_a_create_handed_over_confirms_no_other() -> None:
    """The watch that follows reports two handed over creates; the third, answered now, is not among them."""
    line = Timeline()
    listed(line, 0, 10, line.now)
    for _ in range(2):
        line.created(line.ticket_of(line.submit(1)))
    third = line.ticket_of(line.submit(1))
    line.later(0.1)
    line.learn(2, 10, asked=9)
    line.created(third)
    line.observe(2, 10)
    line.watching()

    assert (line.ceiling()["used"], line.ceiling()["held"]) == (2 * ONE, ONE)

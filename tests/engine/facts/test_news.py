"""Wakes on news: room counts once the server knows of it, too; stale refusals and hints are no room."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Demand, Policy, Rejected
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, settled, tickets, watched


def test_room_counts_after_the_settle_time_and_not_before() -> None:
    """The server's own cache trails its watch by about 2 ms; after that room counts at once."""
    line = watched(4, 4)
    request = line.submit(1)
    line.later(10)
    assert line.observe(3, 4) == []
    assert line.controller.next_deadline() == pytest.approx(line.now + 0.002)
    assert line.later(0.0019) == []
    assert [t.request for t in tickets(line.later(0.0002))] == [request]


@pytest.mark.parametrize(("taken", "admitted"), [(2, 0), (1, 1)])
def test_room_that_is_taken_while_it_settles_is_gone(taken: float, admitted: int) -> None:
    """Two were freed, and used again at once: room that was taken never counts, the rest does."""
    line = watched(4, 4)
    line.crowd(3)
    line.later(1)
    line.observe(2, 4, then=0.001)
    line.observe(2 + taken, 4)

    assert len(tickets(line.later(1))) == admitted


def test_room_that_comes_in_pieces_settles_piece_by_piece() -> None:
    """Two were freed a millisecond apart: each counts 2 ms after its own report, and both are headroom at once."""
    line = watched(4, 4)
    waiting = [line.submit(1) for _ in range(2)]
    line.later(1)
    line.observe(3, 4, then=0.001)
    line.observe(2, 4)
    assert line.ceiling()["headroom"] == 2 * ONE
    assert [t.request for t in tickets(line.later(0.0015))] == waiting[:1]
    assert [t.request for t in tickets(line.later(0.001))] == waiting[1:]
    assert line.ceiling() == {"limited": 4 * ONE, "used": 2 * ONE, "held": 2 * ONE, "headroom": 0}


def test_a_stale_refusal_is_sent_again_soon_and_teaches_patience_only() -> None:
    """A refusal by a replaced state costs no back-off step and lowers no ceiling; only the settle time grows."""
    line = watched(4, 4)
    line.submit(1)
    line.observe(3, 4)
    ticket = line.next_ticket()
    before = line.snapshot().settle_time
    assert line.refused(ticket, 4, 4) == []
    assert line.ceiling()["used"] == 3 * ONE
    seen = line.snapshot()
    assert seen.namespaces[NS].quotas[QUOTA]["cpu"].block is None
    assert seen.settle_time == pytest.approx(1.5 * before)

    refused_at = line.now
    again = line.next_ticket()

    assert again.request is ticket.request
    assert not again.probe
    assert seen.settle_time <= line.now - refused_at <= 2 * seen.settle_time


def test_a_stale_refusal_finds_the_room_gone_again() -> None:
    """Others took the room between the sending and the refusal: there is nothing to set aside."""
    line = watched(4, 4)
    line.submit(1)
    line.observe(3, 4)
    ticket = line.next_ticket()
    line.observe(5, 5)
    line.refused(ticket, 4, 4)

    assert line.ceiling()["used"] == 5 * ONE
    deadline = line.controller.next_deadline()
    assert deadline is not None
    assert deadline > line.now + 1
    assert line.later(100) == []


def test_a_refusal_voids_the_room_that_was_still_settling() -> None:
    """A newer fact says full: the room reported before it never counts."""
    line = watched(4, 4)
    waiting = line.submit(1)
    line.observe(3, 4, then=0.001)
    line.learn(4, 4)
    line.later(0.1)

    assert waiting.state == "waiting"
    assert line.ceiling()["headroom"] == 0


def test_a_refusal_by_the_present_state_is_not_stale() -> None:
    """Its amounts are the latest reported: another client was faster, and a block follows."""
    line = settled(3, 4)
    ticket = line.ticket_of(line.submit(1))
    line.refused(ticket, 4, 4)
    assert line.ceiling()["used"] == 4 * ONE
    assert line.later(0.4) == []
    assert line.next_ticket().probe  # the refusal contradicted the report: now timers probe
    line.observe(3, 4)  # the next report ends the block
    assert line.cpu().block == "probing"


def test_a_hint_is_no_headroom_but_brings_the_probe_forward() -> None:
    """An own pod ended: after a short lag one probe is sent; that it was too early makes the lag grow."""
    line = Timeline()
    ticket = line.ticket_of(line.submit(1))
    line.submit(1)
    line.refused(ticket, 4, 4)
    lags = []
    for _ in range(3):
        hinted_at = line.now
        line.controller.hint_release(NS, line.now)
        assert line.advance() == []
        assert line.ceiling()["headroom"] == 0
        probe = line.next_ticket()
        assert probe.probe
        lags.append(line.now - hinted_at)
        line.refused(probe, 4, 4)
    assert lags[0] == pytest.approx(Policy().release_lag)
    assert lags[0] < lags[1] < lags[2]

    line.controller.hint_release(NS, line.now)
    line.created(line.next_ticket())  # this time it was late enough: the lag shrinks again
    line.refused(line.next_ticket(), 4, 4)
    hinted_at = line.now
    line.controller.hint_release(NS, line.now)
    line.next_ticket()
    assert line.now - hinted_at < 2 * lags[2]


def test_a_hint_probes_only_after_the_lag_whatever_happens_before() -> None:
    """A request submitted a moment after the hint does not make the probe earlier."""
    line = Timeline(Policy(release_lag=0.2))
    line.refuse(1, 4, 4)
    line.controller.hint_release(NS, line.now)
    assert line.later(0.1) == []
    gone = line.submit(2)
    line.controller.of(gone.namespace).withdraw(gone, line.now)  # this has the line scanned
    assert line.advance() == []
    assert tickets(line.later(0.11))[0].probe


def test_hints_for_watched_or_unknown_quotas_do_nothing() -> None:
    """A hint into a watched, an unknown or a never-seen namespace changes nothing."""
    line = watched(4, 4)
    line.submit(1)
    line.controller.hint_release(NS, line.now)
    line.controller.hint_release("unknown", line.now)

    assert line.later(100) == []


def test_a_hint_while_a_probe_is_out_for_a_quota_that_is_now_watched_does_nothing() -> None:
    """The probe stays the only call; after its refusal the quota's own news decide, and the hint is forgotten."""
    line = Timeline()
    line.refused(line.ticket_of(line.submit(1)), 4, 4)
    probe = line.next_ticket()
    line.observe(4, 4)
    line.watching()
    line.controller.hint_release(NS, line.now)
    assert line.later(100) == []
    line.refused(probe, 4, 4)
    assert line.later(100) == []
    line.observe(3, 4)
    assert line.next_ticket().request is probe.request


def test_a_refusal_by_a_state_that_came_back_is_not_stale() -> None:
    """Full, not full, full again: the refusal speaks of the present, and the server is not behind."""
    line = watched(4, 4)
    line.submit(1)
    line.observe(3, 4)
    ticket = line.next_ticket()
    line.observe(4, 4)
    line.refused(ticket, 4, 4)

    assert line.snapshot().settle_time == Policy().settle_time


@pytest.mark.parametrize(("after", "stale"), [(1.0, True), (1.25, False)], ids=["a second ago", "longer ago"])
def test_a_state_replaced_long_ago_makes_no_refusal_stale(after: float, stale: bool) -> None:
    """A server is behind by milliseconds: after a second the same figures are a fact again."""
    line = watched(4, 4)
    line.observe(3, 4, then=after)
    line.refused(line.ticket_of(line.submit(1)), 4, 4)

    assert line.ceiling()["used"] == (3 if stale else 4) * ONE


def test_a_stale_refusal_adds_to_the_room_that_still_settles() -> None:
    """More was freed while the create was out: all of it counts in the end, and no nano-unit twice."""
    line = watched(4, 4)
    line.submit(1)
    line.observe(3, 4)
    ticket = line.next_ticket()
    line.observe(1, 4)
    line.controller.settle(ticket, Rejected(QUOTA, {"cpu": ONE}, {"cpu": 4 * ONE}, {"cpu": 4 * ONE}), line.now)
    assert line.ceiling() == {"limited": 4 * ONE, "used": ONE, "held": 0, "headroom": 3 * ONE}
    assert line.next_ticket().request is ticket.request
    line.later(1)

    assert line.ceiling() == {"limited": 4 * ONE, "used": ONE, "held": ONE, "headroom": 2 * ONE}
    assert line.submit(2).state == "sent"


def test_a_stale_refusal_of_one_quota_says_nothing_about_the_other() -> None:
    """The learned quota behind the watched one keeps its step: whether it has room was not decided."""
    line = watched(4, 4, quota="watched")
    both = Demand({"cpu": ONE, "pods": ONE})
    line.observe(0, 4, quota="watched", then=0.1)
    pods = Rejected("learned", {"pods": ONE}, {"pods": 9 * ONE}, {"pods": 9 * ONE})
    line.settle(line.ticket_of(line.submit(demand=both)), pods)
    for _ in range(2):
        probe = line.next_ticket()
        line.settle(probe, pods)
    probe = line.next_ticket()
    line.observe(4, 4, quota="watched")
    line.observe(0, 4, quota="watched")
    old = Rejected("watched", {"cpu": ONE}, {"cpu": 4 * ONE}, {"cpu": 4 * ONE})
    line.controller.settle(probe, old, line.now)
    block = line.seen().quotas["learned"]["pods"]

    assert (block.block, block.attempts) == ("ready", 2)


def test_a_hint_never_delays_a_probe() -> None:
    """The probe was due before the lag is over: it is sent when it was due, however many pods end."""
    line = Timeline(Policy(release_lag=1.0))
    line.refused(line.ticket_of(line.submit(1)), 4, 4)
    due = line.controller.next_deadline()
    assert due is not None
    while line.now < due - 0.1:
        line.controller.hint_release(NS, line.now)
        line.later(0.1)

    assert line.next_ticket().sent == pytest.approx(due)


def test_a_release_lag_of_zero_is_learned_from_too() -> None:
    """Each probe that comes too early doubles the lag and adds a millisecond, so that zero grows as well."""
    line = Timeline(Policy(release_lag=0))
    line.refused(line.ticket_of(line.submit(1)), 4, 4)
    lags = []
    for _ in range(4):
        hinted_at = line.now
        line.controller.hint_release(NS, line.now)
        probe = line.next_ticket()
        lags.append(line.now - hinted_at)
        line.later(0.001)
        line.refused(probe, 4, 4)

    assert lags == pytest.approx([0, 0.001, 0.003, 0.007])


def test_a_probe_without_a_hint_teaches_no_lag() -> None:
    """A timer sent it: its refusal says nothing about how soon room follows a pod's end."""
    line = Timeline(Policy(release_lag=0.01))
    line.refused(line.ticket_of(line.submit(1)), 4, 4)
    for _ in range(3):
        line.refused(line.next_ticket(), 4, 4)
    hinted_at = line.now
    line.controller.hint_release(NS, line.now)

    assert line.next_ticket().sent - hinted_at == pytest.approx(0.01)

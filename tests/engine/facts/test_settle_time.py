"""Wakes on news: the settle time is learned from the server's refusals and its speed, and forgotten again."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Policy
from backoff_ctrl.engine.look.memory import Memory
from tests.kit.timeline import ONE, Timeline, watched


def behind(times: int, took: float = 0.0) -> tuple[Timeline, float]:
    """Return a line whose server was behind so many times in a row, ``took`` seconds each; and the settle time then."""
    line = watched(4, 4)
    line.crowd(200)
    line.observe(3, 4)
    for _ in range(times):
        ticket = line.next_ticket()
        line.now += took
        line.refused(ticket, 4, 4)
    return line, line.snapshot().settle_time


def test_the_settle_time_never_exceeds_its_limit() -> None:
    """However often the server is behind, the wait after a report stays bounded."""
    policy = Policy(settle_max=0.02)
    line = watched(4, 4, policy)
    line.submit(1)
    line.observe(3, 4)
    for _ in range(30):
        line.refused(line.next_ticket(), 4, 4)

    assert line.snapshot().settle_time == 0.02


def test_one_slow_moment_of_the_server_counts_once() -> None:
    """Ten creates in flight are all refused by the old state: the settle time grows by half, not to the limit."""
    line = watched(20, 20)
    waiting = [line.submit(1) for _ in range(10)]
    line.observe(10, 20)
    sent = [line.next_ticket() for _ in waiting]
    line.now += 0.001
    for ticket in sent:
        line.refused(ticket, 20, 20)
    assert line.snapshot().settle_time == pytest.approx(1.5 * Policy().settle_time)


def test_a_long_settle_time_of_a_busy_moment_is_forgotten_again() -> None:
    """A server that was slow for a moment does not cost a tenth of a second at every later wake."""
    line, longest = behind(30)
    full_at = line.now
    assert longest == Policy().settle_max

    seen = []
    for _ in range(100):
        ticket = line.next_ticket()
        line.later(0.005)
        line.observe(4, 4)
        line.created(ticket)
        line.later(0.895)
        line.observe(3, 4)
        seen.append(line.snapshot().settle_time)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == Policy().settle_time
    assert 90 < line.now - full_at < 110


def test_a_busy_server_is_believed_to_trail_before_it_has_refused() -> None:
    """Two fifths of what answers take beyond 5 ms, up to 40 ms; nothing is added for one that answers at once."""
    for took, wanted in ((0.005, 0.0), (0.01, 0.002), (0.03, 0.01), (0.055, 0.02), (0.3, 0.04)):
        line = watched(3, 4)
        ticket = line.ticket_of(line.submit(1))
        line.submit(1)
        line.later(took)
        line.created(ticket)

        assert line.snapshot().settle_time == pytest.approx(max(Policy().settle_time, wanted)), took


@pytest.mark.parametrize("each", [0.1, 2.0])
def test_half_of_it_is_forgotten_in_ten_seconds_however_many_creates_there_are(each: float) -> None:
    """With answers as fast as those it was learned from, for one create or a hundred."""
    line, before = behind(8, took=0.02)
    at = line.now
    while line.now < at + 9.99:
        ticket = line.next_ticket()
        line.now += 0.02
        line.created(ticket)
        line.observe(4, 4)
        line.now = min(at + 10, line.now + each)
        line.observe(3, 4)

    assert line.snapshot().settle_time == pytest.approx(before / 2, rel=0.2)


def test_the_settle_time_follows_the_answer_time() -> None:
    """The server's cache trails by about as much as its answers: a fast minute after a slow one does not wait."""
    line, slow = behind(6, took=0.04)
    learned_at = line.now
    assert slow == pytest.approx(1.5**6 * Policy().settle_time)

    for took, wanted in ((0.04, slow), (0.004, slow / 10), (0.04, slow)):
        for _ in range(60):
            ticket = line.next_ticket()
            line.now += took
            line.created(ticket)
            line.observe(4, 4)
            line.observe(3, 4)
        expected = max(Policy().settle_time, wanted * 0.5 ** ((line.now - learned_at) / 10))
        assert 0.8 * expected < line.snapshot().settle_time < 1.1 * expected


def test_a_remembered_settle_time_counts_until_the_server_answers_faster() -> None:
    """What an earlier process learned holds for answers like the first one."""
    line = watched(4, 4)
    line.controller.recall(Memory({}, 0.05), line.now)
    line.crowd(130)
    for took, wanted in ((0.02, 0.05), (0.002, 0.005)):
        for _ in range(60):
            line.observe(4, 4)
            line.observe(3, 4)
            ticket = line.next_ticket()
            line.now += took
            line.created(ticket)
        expected = wanted * 0.5 ** (line.now / 10)
        assert 0.9 * expected < line.snapshot().settle_time < 1.5 * expected


@pytest.mark.parametrize("trailed", [True, False])
def test_only_a_change_that_the_server_had_not_seen_lengthens_the_settle_time(trailed: bool) -> None:
    """A state that came and went while the create was in flight was the server's present: nothing trailed."""
    line = watched(4, 4)
    request = line.submit(1)
    line.observe(3, 4)
    ticket = line.next_ticket()
    if not trailed:
        line.later(0.001)
        line.observe(4, 4, then=0.001)
        line.observe(3, 4)
    line.later(0.001)
    before = line.snapshot().settle_time
    line.refused(ticket, 4, 4)

    assert (line.snapshot().settle_time > before) is trailed
    assert line.next_ticket(1).request is request
    assert line.ceiling()["limited"] == 4 * ONE

"""Bounded overtaking: a smaller create passes; then room is kept where it blocks, and not for ever. None starves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Demand, ObservedQuota, Policy, Request
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, settled, state_of, tickets, watched


def pass_one(line: Timeline, used: float = 2, limited: float = 4) -> Request:
    """Submit one small create and let it be stored and finish, all within the present room."""
    request = line.submit(1)
    if request.state == "sent":
        line.created(line.ticket_of(request))
        line.observe(used + 1, limited)
        line.observe(used, limited, then=0.01)
    return request


@pytest.mark.parametrize("overtakes_max", [0, 1, 5, 32])
def test_a_request_is_overtaken_overtakes_max_times_and_no_more(overtakes_max: int) -> None:
    """Small ones that fit pass the large one exactly ``overtakes_max`` times, then room is kept for it."""
    line = settled(2, 4, Policy(overtakes_max=overtakes_max, overtaken_for_max=0))
    large = line.submit(3)
    passed = [pass_one(line) for _ in range(overtakes_max)]
    assert {request.state for request in passed} <= {"over"}
    closed = line.submit(1)
    assert closed.state == "waiting"
    assert large.state == "waiting"

    line.observe(1, 4)
    assert [t.request for t in tickets(line.later(0.01))] == [large]


def test_within_one_scan_a_request_is_overtaken_no_more_than_that() -> None:
    """Much room comes at once: three of the ten behind the large one pass, and the rest of it is kept."""
    line = settled(4, 4, Policy(overtakes_max=3, overtaken_for_max=0))
    large = line.submit(3)
    small = [line.submit(0.1) for _ in range(10)]
    line.observe(2, 4)

    assert [t.request for t in tickets(line.later(0.1))] == small[:3]
    assert large.overtaken == 3


def test_a_request_is_overtaken_for_a_minute_and_no_longer() -> None:
    """Small ones pass for 60 s from the first that passed on; then room is kept."""
    line = settled(2, 4, Policy(overtakes_max=1, keep_stalled=1000))
    large = line.submit(3)
    line.later(20)
    assert pass_one(line).state == "over"
    first_at = line.now
    for _ in range(50):
        assert pass_one(line).state == "over"
    line.until(first_at + 59.5)
    assert pass_one(line).state == "over"
    line.until(first_at + 60)
    assert line.submit(1).state == "waiting"
    why = line.why(large)
    assert (why.reason, why.place) == ("quota", 1)


def test_the_defaults_are_thirty_two_and_a_minute() -> None:
    """By default both must be exceeded before room is kept: a burst may pass for a minute."""
    line = settled(2, 4)
    line.submit(3)
    assert [pass_one(line).state for _ in range(31)] == ["over"] * 31
    line.later(61)
    assert pass_one(line).state == "over"
    assert line.submit(1).state == "waiting"


def test_only_the_first_blocked_request_counts_as_overtaken() -> None:
    """Two large ones wait: passing counts for the first, which is next; the second waits for the first anyway."""
    line = settled(2, 4, Policy(overtakes_max=3, overtaken_for_max=0))
    first, second = line.submit(3), line.submit(4)
    for _ in range(3):
        pass_one(line)
    assert (first.overtaken, second.overtaken) == (3, 0)


def test_no_room_is_kept_for_a_request_that_was_not_overtaken() -> None:
    """Even after a long wait a first one may still pass."""
    line = settled(2, 4)
    line.submit(3)
    line.until(500)

    assert pass_one(line).state == "over"


def test_room_is_kept_only_in_what_blocks() -> None:
    """The large one lacks GPUs: cpu stays open to all, GPUs to none behind it."""
    line = Timeline(Policy(overtakes_max=1, overtaken_for_max=0))
    hard = {"cpu": 10 * ONE, "gpu": 4 * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {"cpu": 0, "gpu": 2 * ONE}), line.now)
    line.watching()
    line.submit(demand=Demand({"cpu": ONE, "gpu": 3 * ONE}))
    line.submit(demand=Demand({"gpu": ONE}))
    kept = line.seen().quotas[QUOTA]
    assert (kept["gpu"].kept, kept["cpu"].kept) == (True, False)

    states = [line.submit(demand=Demand({"cpu": ONE})).state for _ in range(5)]
    assert states == ["sent"] * 5
    behind = line.submit(demand=Demand({"gpu": ONE}))
    assert behind.state == "waiting"
    why = line.why(behind)
    assert (why.reason, why.resource, why.place) == ("kept-for-another", "gpu", 2)
    assert line.controller.tally(NS, 0, line.now)[0].blocked == {(QUOTA, "gpu"): 2}


def test_requests_ahead_are_not_kept_out() -> None:
    """Room kept for the third in line is open to the first and the second."""
    line = settled(2, 4, Policy(overtakes_max=1, overtaken_for_max=0))
    first = line.submit(3, priority=2)
    second = line.submit(2.5)
    pass_one(line)
    assert line.submit(1).state == "waiting"
    line.observe(1, 4)

    assert [t.request for t in tickets(line.later(0.01))] == [first]
    assert second.state == "waiting"


def test_keeping_pauses_when_the_kept_room_does_not_grow_and_is_tried_again() -> None:
    """After ``keep_stalled`` without growth the small ones pass; after ten times that room is kept once more."""
    line = settled(4, 10, Policy(overtakes_max=1, overtaken_for_max=0, keep_stalled=60, ticket_max=86_400))
    large = line.submit(8)
    pass_one(line, 4, 10)
    kept_from = line.now
    small = line.submit(1)
    line.until(kept_from + 59.9)
    assert small.state == "waiting"
    line.until(kept_from + 60.1)
    assert [small.state, line.submit(1).state] == ["sent", "sent"]
    line.until(kept_from + 599)
    assert line.submit(1).state == "sent"
    line.until(kept_from + 601)
    assert line.submit(1).state == "waiting"
    assert large.state == "waiting"


def test_keeping_goes_on_while_the_kept_room_grows() -> None:
    """Each growth restarts the stall time."""
    line = settled(8, 10, Policy(overtakes_max=1, overtaken_for_max=0, keep_stalled=60))
    large = line.submit(6)
    pass_one(line, 8, 10)
    small = line.submit(1)
    for used in (7, 6, 5):
        line.later(50)
        line.observe(used, 10)
        assert small.state == "waiting"
    line.later(50)
    line.observe(4, 10)
    assert [t.request for t in tickets(line.later(0.1))] == [large]


def test_the_stall_time_stretches_with_the_pace_of_releases() -> None:
    """With room every 30 s, five mean times between releases exceed a minute: keeping lasts for 150 s."""
    line = settled(10, 14, Policy(overtakes_max=1, overtaken_for_max=0, keep_stalled=60))
    large = line.submit(12)
    for _ in range(8):
        line.later(30)
        line.observe(11, 14)
        line.observe(10, 14)
    line.later(0.01)
    request = line.submit(1)
    line.created(line.ticket_of(request))
    kept_from = line.now
    small = line.submit(1)
    line.until(kept_from + 100)
    assert small.state == "waiting"
    line.until(kept_from + 200)
    assert state_of(small) == "sent"
    assert large.state == "waiting"


def test_keeping_ends_when_its_request_is_withdrawn() -> None:
    """Requests behind it are admitted at once."""
    line = settled(2, 4, Policy(overtakes_max=1, overtaken_for_max=0))
    large = line.submit(3)
    pass_one(line)
    small = line.submit(1)
    assert small.state == "waiting"
    line.withdraw(large)

    assert state_of(small) == "sent"


def test_nobody_is_admitted_who_leaves_together_with_the_one_ahead() -> None:
    """The room that was kept for that one is for those who stay. What does not wait is left alone."""
    line = settled(2, 4, Policy(overtakes_max=1, overtaken_for_max=0))
    large = line.submit(3)
    pass_one(line)
    leaving, staying, new = line.submit(1), line.submit(1), line.request(1)
    for each in (large, leaving, new):
        line.controller.of(each.namespace).withdraw(each, line.now)
    line.advance()

    assert [state_of(request) for request in (large, leaving, staying, new)] == ["over", "over", "sent", "new"]


def test_keeping_ends_when_its_request_has_waited_too_long() -> None:
    """In that moment its room is for the requests behind it."""
    line = settled(2, 4, Policy(overtakes_max=0, overtaken_for_max=0, keep_stalled=1000, wait_max=100))
    large = line.submit(3)
    line.later(50)
    small = line.submit(1)
    assert small.state == "waiting"
    line.until(large.joined + 99.9)
    assert small.state == "waiting"

    line.until(large.joined + 100.1)
    assert (large.state, small.state) == ("over", "sent")


@pytest.mark.parametrize("on_never_fits", ["fail", "wait"])
def test_keeping_ends_when_its_request_can_never_fit(on_never_fits: str) -> None:
    """The quota shrank below it: it is refused or waits on, and nothing is kept for it."""
    line = settled(
        2, 4, Policy(overtakes_max=1, overtaken_for_max=0, on_never_fits="fail" if on_never_fits == "fail" else "wait")
    )
    large = line.submit(3)
    pass_one(line)
    small = line.submit(0.5)
    assert small.state == "waiting"
    line.observe(1, 2, then=0.01)

    assert state_of(small) == "sent"
    assert large.state == ("over" if on_never_fits == "fail" else "waiting")


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=30),
    runtime=st.floats(0.5, 20),
    gap=st.floats(0.1, 3),
)
def test_nobody_starves_whatever_comes_in_what_order(sizes: list[int], runtime: float, gap: float) -> None:
    """A finite stream of any sizes through a watched quota: every create is stored, the largest too."""
    policy = Policy(overtakes_max=2, overtaken_for_max=10, keep_stalled=10)
    line = watched(0, 8, policy)
    line.later(0.1)
    ends: list[tuple[float, int]] = []
    arrivals = [(i * gap, size) for i, size in enumerate(sizes)]
    used, seen = 0, 0
    for _ in range(20 * len(sizes) + 20):
        moments = [m for m, _ in ends] + [m for m, _ in arrivals]
        if not moments:
            break
        moment = min(moments)
        line.until(max(line.now, moment))
        for at, size in [a for a in arrivals if a[0] <= line.now]:
            arrivals.remove((at, size))
            line.submit(size)
        for at, size in [e for e in ends if e[0] <= line.now]:
            ends.remove((at, size))
            used -= size
        line.observe(used, 8)
        line.later(policy.settle_max)  # some answers were late: after a slow answer room settles for longer
        for ticket in tickets(effect for _, effect in line.log[seen:]):
            size = ticket.request.demand.amounts["cpu"] // ONE
            assert used + size <= 8
            used += size
            ends.append((line.now + runtime, size))
            line.created(ticket)
            line.observe(used, 8)
        seen = len(line.log)

    assert not arrivals
    assert len(line.log) == len(sizes)
    assert line.waiting() == 0


def test_a_large_request_is_admitted_under_a_steady_stream_of_small_ones() -> None:
    """Two small ones always run in a quota of three; the one of three is overtaken to the limit, then admitted."""
    line = settled(0, 3, Policy(overtakes_max=8, overtaken_for_max=0))
    large = None
    running: list[tuple[int, Request]] = []
    for step in range(30):
        running = [(ends, request) for ends, request in running if ends > step]
        line.observe(len(running), 3)
        line.later(0.1)
        if step == 5:
            large = line.submit(3)
        line.submit(1)
        for request in [r for r in line.admitted() if r.state == "sent" and r is not large]:
            line.created(line.ticket_of(request))
            running.append((step + 2, request))
        line.observe(len(running), 3)
        line.later(0.1)
        if large is not None and large.state == "sent":
            break
    assert large is not None
    assert large.state == "sent"
    assert 5 + 8 <= step <= 5 + 8 + 3


def test_each_request_that_room_is_kept_for_has_its_own_stall_time() -> None:
    """The first one's minute was nearly over when it was admitted: the next one's is a whole one again."""
    line = settled(4, 10, Policy(overtakes_max=20, overtaken_for_max=0, keep_stalled=60))
    first = line.submit(8)
    for _ in range(20):
        pass_one(line, 4, 10)
    line.later(50)
    line.observe(2, 10, then=0.01)
    line.created(line.ticket_of(first))
    line.observe(10, 10)
    line.observe(6, 10, then=0.1)
    second = line.submit(8)
    for _ in range(20):
        pass_one(line, 6, 10)
    kept_from = line.now
    small = line.submit(1)
    line.until(kept_from + 59.9)
    assert small.state == "waiting"
    line.until(kept_from + 60.1)
    assert (state_of(small), second.state) == ("sent", "waiting")


def test_room_that_is_just_enough_is_not_kept() -> None:
    """To the last unit of CPU the large one would fit: it lacks a GPU, and CPU stays open."""
    line = Timeline(Policy(overtakes_max=0, overtaken_for_max=0))
    hard = {"cpu": 10 * ONE, "gpu": ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {"cpu": 0, "gpu": ONE}), line.now)
    line.watching()
    large = line.submit(demand=Demand({"cpu": 10 * ONE, "gpu": ONE}))

    assert line.submit(1).state == "sent"
    assert large.overtaken == 0


def test_who_stands_before_it_does_not_overtake_it() -> None:
    """A create of a higher priority takes what a blocked one waits for: that is its right, and is not counted."""
    line = settled(2, 4)
    large = line.submit(3)
    first = line.submit(1, priority=10**6)

    assert (first.state, large.overtaken) == ("sent", 0)

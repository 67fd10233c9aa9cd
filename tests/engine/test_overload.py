"""Lanes: the windows on creates in flight: additive increase, multiplicative decrease, turns among namespaces."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Created, Failed, Overloaded, Policy
from backoff_ctrl.engine.overload import Window
from tests.kit.timeline import NS, Timeline, flying, tickets, without_quotas


def crowd(count: int, policy: Policy | None = None, namespaces: int = 1) -> Timeline:
    """Return a line without quotas to which that many creates were submitted."""
    line = without_quotas(policy)
    for i in range(count):
        line.submit(1, namespace=f"n{i % namespaces}")
    return line


def size(line: Timeline, flow: str = "") -> float:
    """Return the size of a flow's window."""
    return line.snapshot().flows[flow].size


def test_sixteen_are_in_flight_at_first() -> None:
    """The window's start, per flow, whatever the number of namespaces."""
    assert len(flying(crowd(100))) == 16
    assert len(flying(crowd(100, namespaces=7))) == 16
    assert len(flying(crowd(100, Policy(overload_start=3)))) == 3


def test_the_window_grows_by_one_per_window_of_good_answers() -> None:
    """Additive increase: about 16 answers for the 17th place, 17 for the 18th."""
    line = crowd(400)
    for _ in range(17):
        line.created(flying(line)[0])
    assert 17 <= size(line) < 17.1
    assert len(flying(line)) == 17


def test_who_follows_a_namespace_learns_of_a_create_that_was_sent_in_its_turn() -> None:
    """Another namespace's answer made the place: nothing else happened in this one."""
    line = crowd(34, namespaces=2)
    upto = line.controller.changes(0, 10, line.now).upto
    one = next(ticket for ticket in flying(line) if ticket.request.namespace == "n0")
    sent = Counter(ticket.request.namespace for ticket in flying(line))
    while Counter(ticket.request.namespace for ticket in flying(line))["n1"] == sent["n1"]:
        upto = line.controller.changes(upto, 10, line.now).upto
        line.created(one)
        one = next(ticket for ticket in flying(line) if ticket.request.namespace == "n0")

    assert "n1" in line.controller.changes(upto, 10, line.now).items


def test_one_window_in_flight_cuts_once() -> None:
    """Sixteen 429s of one burst cut it once; the next burst cuts it again."""
    line = crowd(100)
    line.later(0.1)
    for ticket in flying(line):
        line.settle(ticket, Overloaded())
    assert size(line) == pytest.approx(16 * 0.7)
    line.later(30)
    assert len(flying(line)) == 11
    line.later(0.1)
    for ticket in flying(line):
        line.settle(ticket, Overloaded())
    assert size(line) == pytest.approx(16 * 0.7 * 0.7)


def test_after_a_storm_the_window_grows_again() -> None:
    """From one in flight, when that one place is all that is used of it."""
    line = crowd(3000)
    for _ in range(12):
        line.later(31)
        for ticket in flying(line):
            line.settle(ticket, Overloaded())
    line.later(31)
    assert (size(line), len(flying(line))) == (1, 1)
    for _ in range(200):
        line.created(flying(line)[0])

    assert len(flying(line)) >= 16


def test_the_pauses_after_overloads_back_off_by_full_jitter_and_a_good_answer_ends_that() -> None:
    """Ten bad answers in a row wait up to the cap; after one good answer the next pause is short again."""
    line = crowd(50)
    longest = 0.0
    for _ in range(12):
        [*_, ticket] = flying(line)
        line.later(0.01)
        line.settle(ticket, Overloaded())
        for other in flying(line):
            line.settle(other, Failed())
        closed_for = line.snapshot().flows[""].closed_for
        assert closed_for <= Policy().cap
        longest = max(longest, closed_for)
        line.later(Policy().cap)
    assert longest > 4
    line.created(flying(line)[0])
    line.later(0.01)
    line.settle(flying(line)[0], Overloaded())
    assert line.snapshot().flows[""].closed_for <= 1


@pytest.mark.parametrize("retry_after", [0.0, 1.0, 30.0])
def test_a_retry_after_is_kept_and_spread(retry_after: float) -> None:
    """No create is sent before the server's time, and not all at its first moment."""
    moments = set()
    for seed in range(20):
        line = Timeline(seed=seed)
        line.watching()
        line.later(1)
        line.settle(line.ticket_of(line.submit(1)), Overloaded(retry_after))
        told_at = line.now
        moments.add(line.next_ticket().sent - told_at)

    assert retry_after <= min(moments) <= max(moments) <= retry_after + 1
    assert max(moments) - min(moments) > 0.3


@pytest.mark.parametrize("told", [(1.0, 20.0), (20.0, 1.0)], ids=["the later", "the earlier"])
def test_the_longest_retry_after_of_a_burst_counts(told: tuple[float, float]) -> None:
    """Whichever answer says it; the window is cut once."""
    line = crowd(20)
    burst = flying(line)[:2]
    line.later(0.1)
    for ticket, retry_after in zip(burst, told, strict=True):
        line.settle(ticket, Overloaded(retry_after))

    assert size(line) == pytest.approx(16 * 0.7)
    assert line.snapshot().flows[""].closed_for >= 20


def test_a_window_that_is_hardly_used_does_not_grow() -> None:
    """With less than half in flight, a good answer is no sign that more would do."""
    window = Window(Policy(), random.Random(0))
    window.in_flight = 6
    window.good()
    assert window.size == 16
    window.in_flight = 7
    window.good()
    assert window.size == 16 + 1 / 16


def test_several_places_that_open_at_once_go_round() -> None:
    """The pause of four places is over: each of four namespaces gets one, the first does not get all."""
    line = crowd(80, Policy(overload_start=4, overload_max=4, overload_cut=0.99), namespaces=4)
    line.later(0.1)
    for ticket in flying(line):
        line.settle(ticket, Overloaded(10.0))
    line.later(20)

    assert sorted(t.request.namespace for t in flying(line)) == ["n0", "n1", "n2"]


def test_ungated_creates_are_in_flight_like_any_other() -> None:
    """They load the server as well: with three of them out, thirteen more may be sent."""
    line = crowd(0)
    forced = [line.controller.of(NS).force(line.request(1), line.now) for _ in range(3)]
    assert [line.submit(1).state for _ in range(14)] == ["sent"] * 13 + ["waiting"]
    line.created(*flying(line), *forced)
    line.created(*flying(line))
    flow = line.snapshot().flows[""]

    assert (flow.in_flight, flow.closed_for) == (0, 0.0)


def test_flows_do_not_disturb_each_other() -> None:
    """One credential is refused, another is served: the window is per flow."""
    line = without_quotas()
    for _ in range(20):
        line.submit(1, flow="robot")
        line.submit(1, flow="human")
    [*robots] = [t for t in flying(line) if t.request.flow == "robot"]
    line.later(0.1)
    line.settle(robots[0], Overloaded(60.0))

    assert size(line, "human") == 16
    assert line.submit(1, flow="human").state == "waiting"
    line.created(next(t for t in flying(line) if t.request.flow == "human"))
    assert len([t for t in flying(line) if t.request.flow == "human"]) == 16


def test_waiting_namespaces_take_turns() -> None:
    """One with a thousand waiting requests and nine with a few: each gets places in turn."""
    line = without_quotas(Policy(overload_start=4))
    for _ in range(300):
        line.submit(1, namespace="greedy")
    for i in range(9):
        for _ in range(5):
            line.submit(1, namespace=f"modest{i}")
    served: Counter[str] = Counter()
    for _ in range(40):
        ticket = flying(line)[0]
        served[ticket.request.namespace] += 1
        line.created(ticket)

    assert set(served) == {"greedy", *(f"modest{i}" for i in range(9))}
    assert max(count for name, count in served.items() if name != "greedy") <= 5
    assert served["greedy"] <= 4 + 6


def test_turns_leave_no_namespace_out() -> None:
    """All of ten namespaces are served to the end through a window of one."""
    line = crowd(100, Policy(overload_start=1, overload_max=1), namespaces=10)
    for _ in range(100):
        [ticket] = flying(line)
        line.created(ticket)

    assert flying(line) == []
    assert len(line.admitted()) == 100
    assert line.controller.next_deadline() is not None


def test_a_namespace_that_left_the_queue_does_not_hold_it_up() -> None:
    """It queued for a turn and withdrew its request: the next turn comes at once."""
    line = without_quotas(Policy(overload_start=1, overload_max=1))
    line.submit(1, namespace="a")
    leaver, stayer = line.submit(1, namespace="b"), line.submit(1, namespace="c")
    line.controller.of(leaver.namespace).withdraw(leaver, line.now)
    line.created(flying(line)[0])

    assert stayer.state == "sent"


@given(
    answers=st.lists(st.sampled_from(["good", "bad", "retry after", "lost"]), max_size=60),
    gaps=st.lists(st.floats(0, 30), min_size=60, max_size=60),
    seed=st.integers(0, 1000),
)
def test_a_window_stays_within_its_bounds_whatever_the_answers(
    answers: list[str], gaps: list[float], seed: int
) -> None:
    """Between 1 and the limit, and closed no longer than the cap, or the Retry-After plus its spread."""
    policy = Policy(overload_max=20)
    window = Window(policy, random.Random(seed))
    now = 0.0
    for answer, gap in zip(answers, gaps, strict=False):
        sent = now
        now += gap
        window.in_flight = int(window.size)
        before = window.size
        if answer == "good":
            window.good()
            assert window.size >= before
        else:
            cut = None if answer == "lost" else 0.7
            window.bad(sent, now, 40.0 if answer == "retry after" else None, policy.base, cut=cut)
            assert window.size in (before, max(1.0, before - 1 if cut is None else before * 0.7))
        assert 1 <= window.size <= 20
        assert window.snapshot(now).closed_for <= 41


def test_a_place_in_the_window_is_given_back_by_every_outcome() -> None:
    """After every ticket has ended nothing is in flight."""
    line = crowd(16)
    for ticket, outcome in zip(flying(line), [Created(), Failed()] * 8, strict=True):
        line.settle(ticket, outcome)

    assert line.snapshot().flows[""].in_flight == 0
    assert tickets(line.later(10)) == []
    assert line.seen("n0").outstanding == 0
    assert NS not in line.snapshot().namespaces


def test_the_end_of_a_pause_is_a_deadline_also_for_a_window_of_one() -> None:
    """``next_deadline`` is the moment when its one place opens."""
    line = without_quotas(Policy(overload_start=1, overload_max=1))
    ticket = line.ticket_of(line.submit(1))
    line.settle(ticket, Overloaded(30.0))
    again = line.next_ticket(within=31)

    assert again.request is ticket.request
    assert 30 <= again.sent <= 31

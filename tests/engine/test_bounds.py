"""Deterministic and bounded. Limits have a stated outcome, idle state expires, alarms stay few."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Controller, Created, Demand, ObservedQuota, Policy, Request, Ticket
from tests.kit.costs import kept_by
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, flying, refusals, tickets, watched, without_quotas

if TYPE_CHECKING:
    from collections.abc import Callable


def quota_of(used: int, limited: int) -> ObservedQuota:
    """Return a quota on cpu."""
    hard = {"cpu": limited * ONE}
    return ObservedQuota(hard, hard, {"cpu": used * ONE})


def test_one_more_than_waiters_max_is_refused() -> None:
    """The limit is exact, per namespace, and the refusal gives the reason."""
    line = watched(4, 4, Policy(waiters_max=3))
    waiting = [line.submit(1) for _ in range(3)]
    same, other = line.submit(1), line.submit(2)
    elsewhere = line.submit(1, namespace="team-b")

    assert {r.state for r in waiting} == {"waiting"}
    assert [(r.request, r.reason, r.detail) for r in refusals([e for _, e in line.log])] == [
        (request, "too-many-waiting", "3 requests wait in team-a already") for request in (same, other)
    ]
    assert elsewhere.state == "sent"
    line.controller.of(waiting[0].namespace).withdraw(waiting[0], line.now)
    assert line.submit(1).state == "waiting"


def test_a_request_that_waits_too_long_is_refused() -> None:
    """Each is refused ``wait_max`` after its own submit, and no other with it; one that was withdrawn is not."""
    line = watched(4, 4, Policy(wait_max=100))
    first, leaver = line.submit(1), line.submit(1)
    line.later(30)
    second, other = line.submit(1), line.submit(2)
    line.withdraw(leaver)
    effects = line.until(100.1)
    assert [(e.request, e.reason, e.detail) for e in refusals(effects)] == [
        (first, "waited-too-long", "waited 100 s in team-a")
    ]
    assert [e.request for e in refusals(line.until(131))] == [second, other]
    assert line.waiting() == 0


def test_wait_max_counts_from_submit_also_after_a_refusal_by_the_server() -> None:
    """A create that the server refused goes on waiting with its old time."""
    line = Timeline(Policy(wait_max=100))
    ticket = line.ticket_of(line.submit(1))
    line.later(60)
    line.refused(ticket, 4, 4)
    while ticket.request.state != "over":
        deadline = line.controller.next_deadline()
        assert deadline is not None
        line.now = deadline
        for probe in tickets(line.advance()):
            line.later(0.1)
            line.refused(probe, 4, 4)

    assert line.now == pytest.approx(100, abs=0.2)


def test_a_ticket_that_is_never_settled_lapses() -> None:
    """After ``ticket_max`` its hold ends; a late report of its sender is accepted silently."""
    line = watched(0, 2, Policy(ticket_max=120))
    ticket = line.ticket_of(line.submit(2))
    waiting = line.submit(1)
    line.until(119.9)
    assert (line.held(), waiting.state) == (2 * ONE, "waiting")
    line.until(120.1)
    assert (ticket.request.state, waiting.state) == ("over", "sent")
    line.controller.settle(ticket, Created(), line.now)

    assert line.held() == ONE


def test_a_ticket_lapses_even_if_nothing_else_happens() -> None:
    """With one create, an empty line and no report, the engine still asks to be woken for it."""
    line = Timeline(Policy(ticket_max=120))
    request = line.submit(1)
    assert line.controller.next_deadline() == 120
    line.until(120)

    assert request.state == "over"


@pytest.mark.parametrize("scan_max", [1, 2, 7])
def test_a_scan_that_is_cut_short_goes_on_at_the_next_advance(scan_max: int) -> None:
    """However few rows one scan covers, every waiting request gets its chance, in order, in the same instant."""
    line = watched(4, 4, Policy(scan_max=scan_max, overload_start=256))
    requests = [line.submit(demand=Demand({"cpu": ONE, "x": i + 1})) for i in range(20)]
    line.observe(0, 100)
    effects = tickets(line.later(0.01))

    assert [t.request for t in effects] == requests
    assert {at for at, _ in line.log} == {effects[0].sent}


def test_a_scan_covers_no_more_rows_than_the_policy_allows() -> None:
    """With a thousand shapes in the line, one ``advance`` admits at most ``scan_max`` of them."""
    line = watched(4, 4, Policy(scan_max=10))
    for i in range(50):
        line.submit(demand=Demand({"cpu": ONE, "x": i + 1}))
    line.observe(0, 100)
    line.now += 1
    assert len(tickets(line.advance())) == 10
    assert line.controller.next_deadline() == line.now


def test_a_turn_at_a_busy_server_starts_at_the_place_that_asked() -> None:
    """With scans of one row the third row still gets its turn, and the scan goes on where it was cut."""
    line = watched(4, 4, Policy(scan_max=1, overload_start=1, overload_max=1))
    busy = line.submit(demand=Demand({"other": 1}))
    rows = [line.submit(cpu) for cpu in (3, 2)]
    small = line.submit(demand=Demand({"x": 1}))
    line.later(1)
    assert (busy.state, small.state) == ("sent", "waiting")
    line.observe(3, 4)
    line.now += 0.002
    line.controller.settle(line.ticket_of(busy), Created(), line.now)

    assert [t.request for t in tickets(line.advance())] == [small]
    line.created(line.ticket_of(small))
    line.observe(2, 4)
    assert [t.request for t in tickets(line.later(0.01))] == rows[1:]


def test_an_admission_does_not_send_the_scan_back_to_the_head() -> None:
    """Ten rows that do not fit are examined once, not again for each of the ten behind them that do."""
    line = watched(4, 4, Policy(scan_max=20))
    for i in range(10):
        line.submit(demand=Demand({"cpu": 3 * ONE, "x": i + 1}))
    small = [line.submit(demand=Demand({"cpu": ONE // 10, "x": i + 1})) for i in range(10)]
    line.observe(3, 4)
    line.now += 0.002

    assert [t.request for t in tickets(line.advance())] == small


def test_a_scan_that_was_cut_short_goes_on_after_a_turn() -> None:
    """A turn at a busy server came in between: the row that the scan had not reached yet is not forgotten."""
    line = watched(4, 4, Policy(scan_max=1, overload_start=1, overload_max=1))
    busy = line.ticket_of(line.submit(demand=Demand({"other": 1}), flow="busy"))
    rows = [line.submit(cpu) for cpu in (3, 2, 1)]
    small = line.submit(demand=Demand({"x": 1}), flow="busy")
    line.later(1)
    line.observe(3, 4)
    line.now += 0.002
    line.controller.settle(busy, Created(), line.now)

    assert [t.request for t in tickets(line.advance())] == [small]
    assert [t.request for t in tickets(line.later(0))] == rows[2:]


def test_a_report_during_a_scan_that_was_cut_short_restarts_it() -> None:
    """The first in line comes first for the room that was reported meanwhile."""
    line = watched(4, 4, Policy(scan_max=1))
    large, small = line.submit(3), line.submit(1)
    line.later(1)
    line.observe(3, 4)
    line.now += 0.002
    assert line.advance() == []  # the large one does not fit, and the scan ends there
    line.controller.observe_quota(NS, QUOTA, quota_of(1, 4), line.now)
    line.now += 0.002

    assert [t.request for t in tickets(line.advance())] == [large]
    assert small.state == "waiting"


def reports(line: Timeline, number: int) -> None:
    """A quota changes all the time."""
    line.observe(4 + number % 2, 4, then=0.001)
    if number % 10 == 0:
        line.withdraw(line.submit(1))


def deleted_quotas(line: Timeline, number: int) -> None:
    """Quotas come and go; a request is blocked, and room is kept for it, by each of them."""
    if number == 0:
        line.watch_lost()
        line.submit(1)
    line.observe(0, 0, quota=f"quota-{number}")
    line.later(25)  # a probe is refused by the quota that stays
    line.refused(line.next_ticket(), 4, 4)
    line.controller.forget_quota(NS, f"quota-{number}", line.now)


def first_in_line(line: Timeline, number: int) -> None:
    """The first in line, for whom room is kept, leaves; the next one takes its place."""
    line.submit(1)
    line.later(1)
    waiting = line.controller.waiting(None, 10, line.now).items
    line.withdraw(waiting[0].request if number % 3 else waiting[-1].request)
    if len(waiting) > 2:
        line.withdraw(waiting[1].request)


def from_behind(line: Timeline, number: int) -> None:
    """Requests are withdrawn from behind the head."""
    if number == 0:
        line.submit(1)
    line.withdraw(line.submit(1))


def shapes(line: Timeline, number: int) -> None:
    """Each create asks a different amount, and one is always in flight."""
    before = flying(line)
    line.submit(demand=Demand({"memory": number + 1}))
    line.created(*before)
    line.later(1)


def answered_while_unwatched(line: Timeline, number: int) -> None:
    """Holds last until the next list, but not for ever; ends of pods are reported."""
    if number == 0:
        line.observe(0, 100_000, then=1)
        line.controller.ends_told(NS, line.now, told=True)
        line.watch_lost()
    line.settle(line.ticket_of(line.submit(1)), Created(stored=f"pod-{number}"))
    line.later(1)


@pytest.mark.parametrize(
    "story",
    [reports, deleted_quotas, first_in_line, from_behind, shapes, answered_while_unwatched],
    ids=lambda story: story.__name__,
)
def test_nothing_piles_up(story: Callable[[Timeline, int], None]) -> None:
    """What the engine keeps does not grow with what has come and gone."""
    line = watched(4, 4, Policy(overtakes_max=0, overtaken_for_max=0, idle_ttl=60, ticket_max=30))
    kept = []
    for number in range(300):
        story(line, number)
        if number % 100 == 99:
            kept.append(kept_by(line.controller))

    assert max(kept[1:]) < 1.3 * kept[0] + 100


@given(data=st.data(), count=st.integers(2, 30))
def test_withdrawals_do_not_change_the_order_of_the_rest(data: st.DataObject, count: int) -> None:
    """Withdrawals from anywhere in the line, then room for all: first in, first out."""
    line = watched(4, 4, Policy(overload_start=256))
    requests = [line.submit(1) for _ in range(count)]
    leavers = data.draw(st.lists(st.sampled_from(requests), unique_by=id, max_size=count - 1))
    for request in leavers:
        line.controller.of(request.namespace).withdraw(request, line.now)
    line.observe(0, 100)
    line.advance()

    assert [t.request for t in tickets(line.later(1))] == [r for r in requests if r not in leavers]


# -- deterministic -----------------------------------------------------------------------------------------------


def test_an_earlier_now_counts_as_the_last_one() -> None:
    """Time is monotonic inside, whatever the caller's clock does."""
    line = watched(4, 4)
    line.now = 100.0
    line.submit(1)
    line.now = 50.0
    line.observe(3, 4)
    ticket = line.next_ticket()

    assert ticket.sent == pytest.approx(100.002)
    line.now = 3.0
    line.created(ticket)
    waiter = line.submit(4)
    why = line.controller.explain(waiter, 1.0)
    assert why is not None
    assert why.waited == 0


def test_an_earlier_advance_does_not_turn_time_back() -> None:
    """A later call is dated no earlier than the latest call before."""
    line = without_quotas()
    line.now = 100.0
    line.advance()
    line.now = 50.0
    line.advance()
    line.now = 60.0

    assert line.ticket_of(line.submit(1)).sent == 100


def story(seed: int) -> str:
    """Play a long random day from a seed; return every effect with its time."""
    rng = random.Random(seed)
    line = Timeline(Policy(base=0.5, cap=4), seed=seed)
    open_tickets: list[Ticket] = []
    for _ in range(400):
        line.later(rng.random())
        namespace = rng.choice(["a", "b", "c"])
        scopes = [s for s in ("gold", "Terminating") if rng.random() < 0.3]
        demand = Demand({"cpu": rng.randrange(1, 5) * ONE, "pods": ONE}, scopes)
        line.submit(namespace=namespace, demand=demand, flow=rng.choice(["x", "y"]), priority=rng.randrange(3))
        open_tickets = [e for _, e in line.log if isinstance(e, Ticket) and not e.ended]
        for ticket in [t for t in open_tickets if rng.random() < 0.5]:
            if rng.random() < 0.6:
                line.refused(ticket, rng.randrange(5), 4, quota=rng.choice(["p", "q"]))
            else:
                line.created(ticket)
    return "\n".join(f"{at} {effect!r}" for at, effect in line.log)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_calls_give_the_same_answers(seed: int) -> None:
    """The same day twice, in this process and in one with other string hashes: equal effects at equal times."""
    here = story(seed)
    root = Path(__file__).parents[2]
    code = f"import importlib.util as u; s = u.spec_from_file_location('bounds', {str(Path(__file__))!r}); "
    code += f"m = u.module_from_spec(s); s.loader.exec_module(m); print(m.story({seed}))"
    there = subprocess.run(  # another process hashes strings differently
        [sys.executable, "-c", code], cwd=root, env={"PYTHONHASHSEED": "4711", "PYTHONPATH": str(root)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert here.count("\n") > 300
    assert there.stdout.strip() == here


def test_without_rng_the_engine_is_deterministic_too() -> None:
    """The default is a fixed seed."""
    waits = []
    for _ in range(2):
        controller = Controller()
        controller.submit(Request("a", NS, Demand({"cpu": 1})), 0.0)
        [ticket] = controller.advance(0.0)
        assert isinstance(ticket, Ticket)
        line = Timeline()
        line.controller = controller
        line.now = 0.1
        line.refused(ticket, 4, 4)
        waits.append(controller.next_deadline())

    assert waits[0] == waits[1]

"""Laws 12 and 13: deterministic and bounded. Limits have a stated outcome, idle state expires, alarms stay few."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Controller, Created, Demand, ObservedQuota, Policy, Request, Ticket
from backoff_ctrl.engine.shapes import Row
from tests.timeline import NS, ONE, QUOTA, Timeline, refusals, tickets


def quota_of(used: int, limited: int) -> ObservedQuota:
    """Return a quota on cpu."""
    hard = {"cpu": limited * ONE}
    return ObservedQuota(hard, hard, {"cpu": used * ONE})


def full(policy: Policy | None = None) -> Timeline:
    """Return a watched line with no room."""
    line = Timeline(policy)
    line.observe(4, 4)
    line.watching()
    return line


def test_one_more_than_waiters_max_is_refused() -> None:
    """The limit is exact, per namespace, and the refusal gives the reason."""
    line = full(Policy(waiters_max=3))
    waiting = [line.submit(1) for _ in range(3)]
    same, other = line.submit(1), line.submit(2)
    elsewhere = line.submit(1, namespace="team-b")

    assert {r.state for r in waiting} == {"waiting"}
    assert [(r.request, r.reason, r.detail) for r in refusals([e for _, e in line.log])] == [
        (request, "too-many-waiting", "3 requests wait in team-a already") for request in (same, other)
    ]
    assert elsewhere.state == "sent"
    line.controller.withdraw(waiting[0], line.now)
    assert line.submit(1).state == "waiting"


def test_a_request_that_waits_too_long_is_refused() -> None:
    """Each is refused ``wait_max`` after its own submit, and no other with it."""
    line = full(Policy(wait_max=100))
    first = line.submit(1)
    line.later(30)
    second, other = line.submit(1), line.submit(2)
    effects = line.until(100.1)
    assert [(e.request, e.reason, e.detail) for e in refusals(effects)] == [
        (first, "waited-too-long", "waited 100 s in team-a")
    ]
    assert [e.request for e in refusals(line.until(131))] == [second, other]
    assert line.waiting() == 0


def test_a_withdrawn_request_is_not_refused_later() -> None:
    """Withdrawn from between two that wait too long, it stays withdrawn."""
    line = full(Policy(wait_max=100))
    first, leaver, last = (line.submit(1) for _ in range(3))
    line.controller.withdraw(leaver, line.now)

    assert [e.request for e in refusals(line.until(101))] == [first, last]


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
    line = Timeline(Policy(ticket_max=120))
    line.observe(0, 2)
    line.watching()
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
    line = full(Policy(scan_max=scan_max, overload_start=256))
    requests = [line.submit(demand=Demand({"cpu": ONE, "x": i + 1})) for i in range(20)]
    line.observe(0, 100)
    effects = tickets(line.later(0.01))

    assert [t.request for t in effects] == requests
    assert {at for at, _ in line.log} == {effects[0].sent}


def test_a_scan_covers_no_more_rows_than_the_policy_allows() -> None:
    """With a thousand shapes in the line, one ``advance`` admits at most ``scan_max`` of them."""
    line = full(Policy(scan_max=10))
    for i in range(50):
        line.submit(demand=Demand({"cpu": ONE, "x": i + 1}))
    line.observe(0, 100)
    line.now += 1
    assert len(tickets(line.advance())) == 10
    assert line.controller.next_deadline() == line.now


def test_a_turn_at_a_busy_server_starts_at_the_place_that_asked() -> None:
    """With scans of one row the third row still gets its turn, and the scan goes on where it was cut."""
    line = full(Policy(scan_max=1, overload_start=1, overload_max=1))
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
    line = full(Policy(scan_max=20))
    for i in range(10):
        line.submit(demand=Demand({"cpu": 3 * ONE, "x": i + 1}))
    small = [line.submit(demand=Demand({"cpu": ONE // 10, "x": i + 1})) for i in range(10)]
    line.observe(3, 4)
    line.now += 0.002

    assert [t.request for t in tickets(line.advance())] == small


def test_a_scan_that_was_cut_short_goes_on_after_a_turn() -> None:
    """A turn at a busy server came in between: the row that the scan had not reached yet is not forgotten."""
    line = full(Policy(scan_max=1, overload_start=1, overload_max=1))
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
    line = full(Policy(scan_max=1))
    large, small = line.submit(3), line.submit(1)
    line.later(1)
    line.observe(3, 4)
    line.now += 0.002
    assert line.advance() == []  # the large one does not fit, and the scan ends there
    line.controller.observe_quota(NS, QUOTA, quota_of(1, 4), line.now)
    line.now += 0.002

    assert [t.request for t in tickets(line.advance())] == [large]
    assert small.state == "waiting"


def test_alarms_do_not_pile_up() -> None:
    """Ten thousand changed deadlines of one namespace leave a handful of alarms, not ten thousand."""
    line = full()
    for i in range(10_000):
        line.now += 0.001
        line.observe(4 + i % 2, 4)
        if i % 100 == 0:
            line.controller.withdraw(line.submit(1), line.now)

    assert len(line.controller._alarms) < 200


def test_alarms_do_not_pile_up_beside_a_waiting_request() -> None:
    """Its own far alarm is not set again for each report."""
    line = full()
    line.submit(2)
    for i in range(2000):
        line.observe(4 - i % 2, 4)
        line.later(0.01)

    assert len(line.controller._alarms) < 200


def test_old_states_of_a_quota_do_not_pile_up() -> None:
    """Only the newest few are kept, to recognise a stale refusal."""
    line = full()
    for i in range(1000):
        line.observe(4 + i % 2, 4)

    assert len(line.controller._handlers[NS].knowledge.quotas[QUOTA].history) < 100


def test_deleted_quotas_leave_nothing_behind() -> None:
    """A hundred come and go while one request is blocked, and room is kept for it, by each of them."""
    line = Timeline(Policy(overtakes_max=0, overtaken_for_max=0))
    line.observe(4, 4)
    line.submit(1)
    for i in range(100):
        line.observe(0, 0, quota=f"quota-{i}")
        line.until(line.now + 25)  # a probe is refused by the quota that stays
        line.refused(line.next_ticket(), 4, 4)
        line.controller.forget_quota(NS, f"quota-{i}", line.now)
    handler = line.controller._handlers[NS]

    assert {ceiling.quota for ceiling in handler.probing.blocks} == {QUOTA}
    assert {ceiling.quota for ceiling in handler.keeping._growth} == {QUOTA}


def test_what_is_noted_of_kept_room_holds_no_request() -> None:
    """One note for each ceiling, however many were first in line there, and none of them stays in memory."""
    line = full(Policy(overtakes_max=0, overtaken_for_max=0))
    first = line.submit(1)
    for _ in range(20):
        line.later(1)
        line.controller.withdraw(first, line.now)
        first = line.submit(1)
    [kept] = line.controller._handlers[NS].keeping._growth.values()

    assert kept.place == (first.rank, first.seq)


def test_withdrawn_requests_do_not_stay_in_the_rows() -> None:
    """Five thousand are withdrawn from behind the head: the row drops them."""
    line = full()
    head = line.submit(1)
    for _ in range(5000):
        line.controller.withdraw(line.submit(1), line.now)
    assert isinstance(head.row, Row)
    assert len(head.row.waiting) < 10
    assert line.waiting() == 1


def test_withdrawn_requests_are_dropped_when_the_head_moves_past_them() -> None:
    """Three hundred had left before the head passed them; they do not hide those that leave later."""
    line = full()
    waiting = [line.submit(1) for _ in range(1000)]
    for request in waiting[1:600:2] + waiting[0:600:2] + waiting[601:]:
        line.controller.withdraw(request, line.now)
    head = waiting[600]

    assert isinstance(head.row, Row)
    assert len(head.row.waiting) < 10
    assert line.waiting() == 1


@given(data=st.data(), count=st.integers(2, 30))
def test_withdrawals_do_not_change_the_order_of_the_rest(data: st.DataObject, count: int) -> None:
    """Withdrawals from anywhere in the line, then room for all: first in, first out."""
    line = full(Policy(overload_start=256))
    requests = [line.submit(1) for _ in range(count)]
    leavers = data.draw(st.lists(st.sampled_from(requests), unique_by=id, max_size=count - 1))
    for request in leavers:
        line.controller.withdraw(request, line.now)
    line.observe(0, 100)
    line.advance()

    assert [t.request for t in tickets(line.later(1))] == [r for r in requests if r not in leavers]


# -- law 12 ------------------------------------------------------------------------------------------------------


def test_an_earlier_now_counts_as_the_last_one() -> None:
    """Time is monotonic inside, whatever the caller's clock does."""
    line = full()
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
    line = Timeline()
    line.watching()
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

"""One probe: one probe per block, no calls between probes; and a ticket ends once."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import (
    Abandoned,
    Created,
    Demand,
    Expired,
    Failed,
    ObservedQuota,
    Overloaded,
    Policy,
    Rejected,
    Request,
    Ticket,
    TicketError,
)
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, tickets, watched


def blocked(waiters: int, policy: Policy | None = None) -> Timeline:
    """Return a line whose first create was refused by a full quota, with that many waiting."""
    line = Timeline(policy)
    ticket = line.ticket_of(line.submit(1))
    for _ in range(waiters - 1):
        line.submit(1)
    line.later(0.1)
    line.refused(ticket, 4, 4)
    return line


@pytest.mark.parametrize("waiters", [1, 10, 1000])
def test_a_thousand_waiting_requests_cause_as_many_calls_as_one(waiters: int) -> None:
    """The calls of five minutes at a full quota do not depend on how many requests wait."""
    line = blocked(waiters)
    for _ in range(15):
        ticket = line.next_ticket()
        assert ticket.probe
        line.later(0.05)
        line.refused(ticket, 4, 4)

    sent = len(line.admitted())
    assert sent == 16
    assert line.now >= 15 / 2 + 20 / 2 * 9  # 1, 2, 4, 8, 16 and then the cap, at least half of each


def test_a_probe_that_is_due_does_not_wait_for_the_block_of_another_shape() -> None:
    """A larger request comes after the timer has run out, and before that was seen to; it also waits for a quota."""
    line = Timeline(Policy(base=1))
    both = Demand({"pods": ONE, "cpu": 5 * ONE})
    first = line.submit(demand=Demand({"pods": ONE}))
    line.settle(line.ticket_of(first), Rejected("count", {"pods": ONE}, {"pods": 8 * ONE}, {"pods": 8 * ONE}))
    due = line.controller.next_deadline()
    assert due is not None
    line.until(due - 0.001)
    full = Rejected("compute", {"cpu": 5 * ONE}, {"cpu": 6 * ONE}, {"cpu": 8 * ONE})
    line.controller.learn(NS, frozenset(), full, line.now, line.now)
    line.advance()
    line.now = due + 0.001
    line.submit(demand=both)

    assert line.ticket_of(first).probe
    assert line.now == due + 0.001


def test_after_a_success_the_next_probe_is_sent_at_once() -> None:
    """Room came: each 201 sends the next probe in the same instant, never two."""
    line = blocked(10)
    probe = line.next_ticket()
    for _ in range(9):
        line.later(0.01)
        effects = tickets(line.created(probe))
        assert len(effects) == 1
        assert effects[0].probe
        probe = effects[0]
    assert line.created(probe) == []


@pytest.mark.parametrize("outcome", [Failed(), Abandoned(), Expired()], ids=lambda o: o.event)
def test_after_a_probe_without_an_answer_the_next_one_probes(outcome: Failed | Abandoned | Expired) -> None:
    """No quota was asked: the next in line probes, at the same step."""
    line = blocked(3)
    probe = line.next_ticket()
    step = line.cpu().attempts

    effects = tickets(line.settle(probe, outcome))

    assert [t.probe for t in effects] == [True]
    assert effects[0].request is not probe.request
    assert line.cpu().attempts == step


def test_an_overloaded_probe_is_sent_again_when_its_flow_opens() -> None:
    """A 429 says nothing about the quota: the block is as it was, the flow waits."""
    line = blocked(3)
    probe = line.next_ticket()
    line.settle(probe, Overloaded(5.0))
    told_at = line.now
    again = line.next_ticket()

    assert again.request is probe.request
    assert again.probe
    assert 5 <= line.now - told_at <= 6


def test_late_refusals_never_advance_the_steps() -> None:
    """Creates that were in flight when the block was made say nothing about its back-off."""
    line = Timeline(Policy(unproven_max=16))
    line.crowd(40)
    flying = []
    for _ in range(4):  # slow start, to eight in flight
        flying = [line.ticket_of(r) for r in line.admitted() if r.state == "sent"]
        for ticket in flying[: min(len(flying), 4)]:
            line.created(ticket)
    flying = [t for _, t in line.log if isinstance(t, Ticket) and not t.ended]
    assert len(flying) > 4
    line.later(0.2)
    for ticket in flying:
        line.refused(ticket, 9, 9)
    seen = line.cpu()

    assert seen.attempts == 0
    assert seen.next_probe is not None
    assert seen.next_probe <= Policy().base


def test_a_late_refusal_of_a_ready_block_shuts_it_at_the_same_step() -> None:
    """A create that should have fitted was refused: the block holds, and its next probe waits the same step again."""
    line = blocked(3)
    for _ in range(3):
        line.refused(line.next_ticket(), 4, 4)
        line.later(0.1)
    probe = line.next_ticket()
    line.settle(probe, Overloaded(100.0))  # the block is ready, but the flow is closed
    forced = line.controller.of(NS).force(line.request(1), line.now)
    line.later(0.1)
    line.refused(forced, 4, 4)
    seen = line.cpu()

    assert (seen.block, seen.attempts) == ("shut", 3)
    assert seen.next_probe is not None
    assert 4 <= seen.next_probe <= 8


def test_what_a_probe_s_refusal_does_not_count_is_no_ceiling() -> None:
    """A resource without ``used`` says nothing; the block that refused the probe takes its step."""
    line = blocked(1)
    probe = line.next_ticket()
    [[name, before]] = line.seen().quotas[QUOTA].items()
    line.settle(probe, Rejected(QUOTA, {name: ONE, "x": ONE}, {name: 4 * ONE}, {"x": 4 * ONE, name: 4 * ONE}))

    [[found, after]] = line.seen().quotas[QUOTA].items()
    assert found == name
    assert after.attempts == before.attempts + 1


def test_one_probe_counts_for_every_block_that_it_meets() -> None:
    """Two full quotas, one probe: while it is out neither gets another, and it waits for both timers."""
    line = Timeline()
    line.fill_two()
    seen = line.seen().quotas
    due = [q.next_probe for ceilings in seen.values() for q in ceilings.values() if q.next_probe is not None]
    assert len(due) == 2
    asked_at = line.now + max(due)
    only_cpu = line.submit(demand=Demand({"cpu": ONE}))
    probe = line.next_ticket()
    assert probe.probe
    if probe.request is only_cpu:  # it meets one block only, whose timer ran out first
        line.settle(probe, Failed())
        probe = line.next_ticket()
    assert line.now == pytest.approx(asked_at)
    states = line.seen().quotas
    assert {c.block for ceilings in states.values() for c in ceilings.values()} == {"probing"}
    assert line.later(60) == []


def test_a_probe_that_the_first_quota_refuses_says_nothing_about_the_second() -> None:
    """The second block repeats its step; the refusing one takes the next."""
    line = Timeline()
    line.fill_two()
    probe = line.next_ticket()
    before = line.seen().quotas
    line.later(0.1)
    line.settle(probe, Rejected("a", {"cpu": ONE}, {"cpu": ONE}, {"cpu": ONE}))
    after = line.seen().quotas

    assert after["a"]["cpu"].attempts == before["a"]["cpu"].attempts + 1
    assert after["b"]["pods"].attempts == before["b"]["pods"].attempts
    assert after["b"]["pods"].block == "shut"


def test_what_the_refusing_quota_did_not_name_had_room() -> None:
    """A refusal names only the exceeded resources of a quota: the others had room for this create."""
    line = Timeline()
    demand = Demand({"cpu": ONE, "pods": ONE})
    request = line.submit(demand=demand)
    line.later(0.1)
    both = {"cpu": ONE, "pods": ONE}
    line.settle(line.ticket_of(request), Rejected("a", both, both, both))
    probe = line.next_ticket()
    line.later(0.1)
    line.settle(probe, Rejected("a", {"cpu": ONE}, {"cpu": ONE}, {"cpu": ONE}))
    seen = line.seen().quotas["a"]

    assert (seen["cpu"].block, seen["cpu"].headroom) == ("shut", 0)
    assert (seen["pods"].block, seen["pods"].headroom) == ("ready", ONE)


def test_a_success_disproves_a_ceiling_and_wipes_no_other() -> None:
    """The probe was stored: used was less than believed, by just that much. Other ceilings and the limit stay."""
    line = Timeline()
    line.fill_two()
    probe = line.next_ticket()
    line.created(probe)
    seen = line.seen().quotas

    for resource in (seen["a"]["cpu"], seen["b"]["pods"]):
        assert (resource.limited, resource.used, resource.held) == (ONE, ONE, 0)
    only_cpu = line.submit(demand=Demand({"cpu": ONE}))
    assert line.ticket_of(only_cpu).probe  # full again by its own charge: a probe, not free room


def test_a_success_that_was_sent_before_the_newest_fact_disproves_nothing() -> None:
    """An older fact never overwrites a newer one: the probe left before the refusal that says how full it is now."""
    line = blocked(2)
    probe = line.next_ticket()
    line.later(0.1)
    line.learn(8, 4)
    line.later(0.1)
    line.created(probe)

    assert line.ceiling()["used"] == 9 * ONE  # 8 by the fact, and 1 by the create that the fact may lack


def test_a_ticket_ends_exactly_once() -> None:
    """Settling it again is the caller's bug, and changes nothing."""
    line = watched(0, 4)
    ticket = line.ticket_of(line.submit(1))
    line.created(ticket)
    held = line.held()

    with pytest.raises(TicketError, match=r"^the ticket of request r1 was settled before$"):
        line.controller.settle(ticket, Created(), line.now)
    assert line.held() == held


def test_a_request_is_submitted_once() -> None:
    """Waiting, sent or over, it may not be submitted again."""
    line = blocked(2)
    waiting = next(r for r in (line.submit(1),) if r.state == "waiting")
    over = line.submit(1)
    line.controller.of(over.namespace).withdraw(over, line.now)
    for request in (waiting, line.next_ticket().request, over):
        with pytest.raises(
            TicketError, match=f"^request {request.id} is {request.state}: 'submit' is not allowed in that state$"
        ):
            line.controller.submit(request, line.now)


def test_a_request_of_any_state_may_be_withdrawn_and_only_a_waiting_one_leaves() -> None:
    """Withdrawing a request that does not wait has no effect."""
    line = blocked(3)
    new = Request("new", NS, Demand({}))
    sent = line.next_ticket().request
    for request in (new, sent):
        state = request.state
        line.controller.of(request.namespace).withdraw(request, line.now)
        assert request.state == state
    assert line.waiting() == 2


def test_reprs_name_the_request() -> None:
    """As shown in log lines."""
    line = blocked(1)
    probe = line.next_ticket()
    assert repr(probe).startswith("Ticket('r1', sent=")
    assert repr(probe).endswith(", probe)")
    assert repr(probe.request) == "Request('r1', 'team-a', sent)"


def test_a_probe_refused_after_the_watch_came_back_leaves_no_block() -> None:
    """The watch was lost, one probe was sent, the watch came back: the refusal is older than the report."""
    line = blocked(3)
    probe = line.next_ticket()
    line.observe(4, 4)
    line.watching()
    line.later(0.1)
    line.refused(probe, 4, 4)

    assert line.cpu().block is None
    assert line.later(1000) == []


@pytest.mark.parametrize("outcome", [Failed(), Created()], ids=lambda o: o.event)
def test_a_probe_that_ends_after_the_watch_came_back_leaves_no_block(outcome: Failed | Created) -> None:
    """Stored or not: from now on reports decide, not the block."""
    line = blocked(3)
    probe = line.next_ticket()
    line.observe(4, 4)
    line.watching()
    line.settle(probe, outcome)

    assert line.cpu().block is None
    assert line.later(1000) == []


def test_a_probe_of_two_quotas_that_ends_after_the_watch_came_back_leaves_no_block() -> None:
    """The quota that refused and the one that was not asked are both watched now."""
    line = Timeline()
    line.fill_two()
    probe = line.next_ticket()
    for quota, resource in (("a", "cpu"), ("b", "pods")):
        hard = {resource: ONE}
        line.controller.observe_quota(NS, quota, ObservedQuota(hard, hard, hard), line.now)
    line.watching()
    line.later(0.1)
    line.settle(probe, Rejected("a", {"cpu": ONE}, {"cpu": ONE}, {"cpu": ONE}))
    seen = line.seen().quotas

    assert [c.block for ceilings in seen.values() for c in ceilings.values()] == [None, None]


def test_a_probe_whose_refusal_is_older_than_what_is_known_still_advances_the_step() -> None:
    """Its amounts are not new, so nothing moved: the quota is as quiet as the probe found it."""
    line = blocked(2)
    probe = line.next_ticket()
    line.later(0.1)
    line.learn(4, 4)
    line.refused(probe, 3.5, 4)
    seen = line.cpu()

    assert (seen.used, seen.attempts) == (4 * ONE, 1)


def test_a_namespace_with_a_new_block_is_reported_once() -> None:
    """Also where all requests waited for something else at first, as here for a window of one: the quota came later."""
    line = Timeline(Policy(overload_start=1))
    line.observe(2, 4)
    line.crowd(4)
    blocked_ones = [line.controller.take_blocked()]
    while on_their_way := [ticket for ticket in tickets(effect for _, effect in line.log) if not ticket.ended]:
        line.created(*on_their_way)
        blocked_ones.append(line.controller.take_blocked())

    assert len(line.admitted()) == 2
    assert [each for each in blocked_ones if each] == [[NS]]
    assert line.controller.take_blocked() == []


def test_watched_quotas_and_forgotten_namespaces_are_not_reported_as_blocked() -> None:
    """Changes of the former are reported anyway; in the latter no request waits any more."""
    watched = Timeline()
    watched.observe(4, 4)
    watched.watching()
    watched.submit(1)
    forgotten = blocked(1)
    forgotten.controller.of(forgotten.admitted()[0].namespace).withdraw(forgotten.admitted()[0], forgotten.now)
    forgotten.later(10_000)

    assert watched.controller.take_blocked() == []
    assert NS not in forgotten.controller.snapshot(forgotten.now).namespaces
    assert forgotten.controller.take_blocked() == []

"""What a review by attack found: each of these once forgot a request, hammered a server or grew without end."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Created, Demand, ObservedQuota, Policy, Rejected
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, tickets, watched

FULL = {"cpu": 10 * ONE}


def crowded() -> Timeline:
    """A watched full quota that blocks more rows than one scan may cover; only one create may be in flight."""
    line = Timeline(Policy(scan_max=2, overload_start=1, overload_max=1))
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(FULL, FULL, FULL), line.now)
    line.watching()
    return line


def test_a_turn_reaches_a_request_behind_more_blocked_rows_than_one_scan_covers() -> None:
    """The one place in flight comes free: the request that queued for it gets it, though scans are cut short."""
    line = crowded()
    other = line.ticket_of(line.submit(namespace="other", demand=Demand({})))
    for cpu in (1, 2, 3):
        line.submit(cpu)
    waiter = line.submit(demand=Demand({"pods": ONE}))
    line.later(1)

    assert [ticket.request for ticket in tickets(line.created(other))] == [waiter]


def test_a_long_line_of_blocked_rows_does_not_lose_its_turns_to_other_namespaces() -> None:
    """Fifty creates of two other namespaces want the same place: the turns go round."""
    line = crowded()
    for i in range(50):
        line.submit(namespace=f"other-{i % 2}", demand=Demand({}))
    for cpu in (1, 2, 3):
        line.submit(cpu)
    waiter = line.submit(demand=Demand({"pods": ONE}))
    for _ in range(4):
        line.created(line.next_ticket())

    assert waiter in line.admitted()


def test_rows_that_a_turn_left_out_are_scanned_afterwards() -> None:
    """Room was reported just as the namespace took a turn: the scan of the whole line is not lost."""
    line = crowded()
    other = line.ticket_of(line.submit(namespace="other", demand=Demand({})))
    rows = [line.submit(cpu) for cpu in (1, 2, 3)]
    waiter = line.submit(demand=Demand({"pods": ONE}))
    line.later(1)
    line.observe(0, 10)
    line.created(other)
    for _ in range(4):
        line.created(line.next_ticket())

    assert set(line.admitted()) == {other.request, *rows, waiter}


def test_a_block_whose_probe_no_longer_meets_it_is_probed_again() -> None:
    """While the probe was out its shape turned out to be of another scope class; others still wait at the block."""
    line = Timeline()
    both = Demand({"cpu": ONE, "memory": ONE}, ["A"])
    slow = line.controller.of(NS).force(line.request(demand=both), line.now)
    line.later(0.1)
    for quota, resource in (("x", "cpu"), ("y", "memory")):
        full = {resource: 5 * ONE}
        line.controller.learn(
            NS, frozenset({"A"}), Rejected(quota, {resource: ONE}, full, full), line.now - 0.05, line.now
        )
    line.submit(demand=both)
    probe = line.next_ticket()
    assert probe.probe
    line.settle(slow, Created(Demand(both.amounts, ["B"])))
    full = {"memory": 5 * ONE}
    line.settle(probe, Rejected("y", {"memory": ONE}, full, full))
    line.controller.of(probe.request.namespace).withdraw(probe.request, line.now)
    waiter = line.submit(demand=Demand({"cpu": ONE}, ["A"]))

    assert line.next_ticket(within=10).request is waiter


def test_a_resource_that_the_server_does_not_charge_does_not_block() -> None:
    """A webhook removes the CPU: that CPU is used beyond its limit does not concern this create."""
    line = Timeline()
    hard = {"cpu": 5 * ONE, "pods": 99 * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {"cpu": 0, "pods": 0}), line.now)
    line.watching()
    asks = Demand({"cpu": ONE, "pods": ONE})
    line.settle(line.ticket_of(line.submit(demand=asks)), Created(Demand({"pods": ONE})))
    over = ObservedQuota(hard, hard, {"cpu": 9 * ONE, "pods": ONE})
    line.controller.observe_quota(NS, QUOTA, over, line.now)
    line.later(1)

    request = line.submit(demand=asks)

    assert line.ticket_of(request).request is request


def test_an_admission_proves_nothing_about_a_resource_it_did_not_ask() -> None:
    """A quota used beyond its limit does not refuse a create that asks for none of it."""
    line = Timeline()
    teacher = line.ticket_of(line.submit(demand=Demand({"cpu": ONE}, ["A"])))
    line.later(0.1)
    line.settle(teacher, Rejected(QUOTA, {"cpu": ONE}, {"cpu": 10 * ONE}, {"cpu": 5 * ONE}))
    line.created(line.ticket_of(line.submit(demand=Demand({"pods": ONE}, ["B"]))))
    assert line.applies() == {frozenset({"A"}): True}

    line.created(line.ticket_of(line.submit(demand=Demand({"cpu": ONE}, ["B"]))))
    assert line.applies()[frozenset({"B"})] is False  # this one it would have refused


@pytest.mark.parametrize(
    "rejected",
    [
        Rejected(QUOTA, {}, {}, {}),
        Rejected(QUOTA, {"cpu": ONE}, {"cpu": 0}, {"cpu": 5 * ONE}),
        Rejected(QUOTA, {}, {"cpu": 5 * ONE}, {"cpu": 5 * ONE}),
    ],
    ids=["no figures", "room by its own figures", "asked for nothing"],
)
def test_a_refusal_without_a_full_resource_causes_no_storm(rejected: Rejected) -> None:
    """The create is sent again with growing pauses: a few times in ten seconds, not once per round trip."""
    line = Timeline()
    line.submit(1)
    sends = 0
    while line.now < 10:
        ticket = line.next_ticket()
        sends += 1
        line.later(0.005)
        line.settle(ticket, rejected)

    assert sends <= 20
    assert line.seen().quotas == {}


def test_the_charges_of_answered_holds_count_when_those_have_ended_while_the_watch_is_lost() -> None:
    """They last until the next list, but not for ever."""
    line = watched(0, 1000, Policy(ticket_max=10))
    line.watch_lost()
    for _ in range(100):
        line.created(line.ticket_of(line.submit(1)))
        line.later(1)
    assert line.seen().answered_holds <= 10
    assert line.ceiling()["headroom"] == 900 * ONE
    line.later(60)
    assert (line.held(), line.ceiling()["headroom"]) == (0, 900 * ONE)


def test_a_hold_that_a_later_refusal_contains_is_not_counted_twice() -> None:
    """The refused create was sent after the other's answer: its ``used`` contains that charge already."""
    line = watched(0, 10, Policy(ticket_max=10))
    line.watch_lost()
    line.created(line.ticket_of(line.submit(1)))
    line.later(1)
    line.refused(line.ticket_of(line.submit(6)), 6, 10)
    line.later(20)

    assert line.ceiling()["used"] == 6 * ONE


def test_a_probe_that_only_our_own_creates_blocked_disproves_nothing() -> None:
    """Our creates in flight explain why it seemed not to fit: the known ``used`` stays."""
    line = Timeline()
    large = line.submit(6)
    line.later(0.1)
    line.refused(line.ticket_of(large), 4, 9)
    line.controller.of(large.namespace).withdraw(large, line.now)
    line.controller.of(NS).force(line.request(5), line.now)
    line.submit(1)
    probe = line.next_ticket(within=10)
    assert probe.probe
    line.created(probe)

    assert line.ceiling()["used"] == 5 * ONE

"""Gentle start: slowly to sixteen unproven creates in flight, until a quota is known."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Created, Demand, Failed, Policy, Rejected
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, flying, without_quotas


def crowd(count: int, policy: Policy | None = None, shapes: int = 1) -> Timeline:
    """Return a line to which that many creates were submitted at once."""
    line = Timeline(policy)
    for i in range(count):
        line.submit(1 + i % shapes)
    return line


@pytest.mark.parametrize("shapes", [1, 7])
def test_creates_into_an_unknown_namespace_grow_one_two_four_to_sixteen(shapes: int) -> None:
    """A thousand at once: each round of good answers doubles what is in flight, up to sixteen."""
    line = crowd(1000, shapes=shapes)
    rounds = []
    for _ in range(7):
        round_of = flying(line)
        rounds.append(len(round_of))
        line.later(0.3)
        for ticket in round_of:
            line.created(ticket)

    assert rounds == [1, 2, 4, 8, 16, 16, 16]


def test_the_policy_sets_the_limit() -> None:
    """A setting of three means three."""
    line = crowd(50, Policy(unproven_max=3))
    for _ in range(4):
        for ticket in flying(line):
            line.created(ticket)

    assert len(flying(line)) == 3


def test_a_failure_is_no_proof() -> None:
    """Permanent refusals by something other than quota do not widen the window."""
    line = crowd(20)
    for _ in range(5):
        [ticket] = flying(line)
        line.settle(ticket, Failed())

    assert len(flying(line)) == 1


def test_a_refusal_teaches_and_ends_the_flood() -> None:
    """A full quota is known now: of the thousand only probes are sent."""
    line = crowd(1000)
    for ticket in flying(line):
        line.created(ticket)
    two = flying(line)
    line.later(0.3)
    for ticket in two:
        line.refused(ticket, 1, 1)
    assert flying(line) == []
    line.later(1.1)
    assert [ticket.probe for ticket in flying(line)] == [True]


def test_another_class_starts_slowly_again_after_a_refusal() -> None:
    """Creates that the known quota does not charge are still unproven: one at a time."""
    line = Timeline()
    gold = Demand({"cpu": ONE}, ["gold"])
    line.crowd(10)
    for _ in range(3):
        for ticket in flying(line):
            line.created(ticket)
    line.later(0.1)
    for ticket in flying(line):
        line.settle(ticket, Rejected(QUOTA, {"cpu": ONE}, {"cpu": ONE}, {"cpu": ONE}))
    for _ in range(10):
        line.submit(demand=gold)

    assert [t.request.demand for t in flying(line)] == [gold]


def test_a_healthy_watch_with_no_quota_is_knowledge() -> None:
    """If a complete list shows no quota, nothing needs proof."""
    line = without_quotas()
    line.crowd(10)

    assert len(flying(line)) == 10


def test_a_watch_of_one_namespace_counts_there_only() -> None:
    """Another namespace stays as unknown as before."""
    line = Timeline()
    line.watching(NS)
    for _ in range(5):
        line.submit(1)
        line.submit(1, namespace="team-b")

    assert [t.request.namespace for t in flying(line)].count(NS) == 5
    assert [t.request.namespace for t in flying(line)].count("team-b") == 1


def test_every_outcome_of_an_unproven_create_frees_its_place() -> None:
    """However it ends, even if never sent, the next one takes its place in the window."""
    line = crowd(3)
    first = flying(line)[0]
    line.settle(first, Failed())
    second = flying(line)
    assert len(second) == 1
    line.settle(second[0], Created())
    assert line.seen().unproven == 1

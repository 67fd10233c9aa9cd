"""A place survives: back-off belongs to the block; it ends with time and with news, not when nobody waits any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine import Overloaded, Policy
from tests.kit.timeline import NS, QUOTA, Timeline, tickets

if TYPE_CHECKING:
    from backoff_ctrl.engine.look.explaining import CeilingSnapshot


def blocked(waiters: int, policy: Policy | None = None) -> Timeline:
    """Return a line whose first create was refused by a full quota, with that many waiting."""
    line = Timeline(policy)
    ticket = line.ticket_of(line.submit(1))
    for _ in range(waiters - 1):
        line.submit(1)
    line.later(0.1)
    line.refused(ticket, 4, 4)
    return line


def seen(line: Timeline) -> CeilingSnapshot:
    """Return the quota's ceiling as it is shown."""
    return line.cpu()


def test_a_block_outlives_the_requests_that_met_it() -> None:
    """The line was empty for a moment: who comes now waits as long as who waited on would have."""
    line = blocked(1)
    for _ in range(4):
        line.refused(line.next_ticket(), 4, 4)
    last = line.now
    line.withdraw(line.admitted()[0])
    line.later(0.25)
    line.submit(1)
    probe = line.next_ticket()

    assert probe.probe
    assert 8 <= probe.sent - last <= 16


def refusals_in_ten_minutes(patience: float) -> int:
    """Count the refusals of a caller of a full quota that gives up after so many seconds and comes again at once."""
    line = blocked(1)
    refused, end = 0, line.now + 600
    request = line.admitted()[0]
    gives_up = line.now + patience
    while line.now < end:
        deadline = line.controller.next_deadline()
        line.now = min(gives_up, gives_up if deadline is None else max(line.now, deadline))
        for ticket in tickets(line.advance()):
            refused += 1
            line.refused(ticket, 4, 4)
        if line.now >= gives_up:
            line.withdraw(request)
            gives_up = line.now + patience
            request = line.request(1)
            line.controller.submit(request, line.now)
    return refused


@pytest.mark.parametrize("patience", [0.3, 1.0, 5.0])
def test_a_caller_with_short_time_outs_meets_no_more_refusals_than_a_patient_one(patience: float) -> None:
    """A place survives: back-off belongs to the block, not to who waits. (It was seven times as many.)"""
    assert refusals_in_ten_minutes(patience) <= 1.2 * refusals_in_ten_minutes(600)


@pytest.mark.parametrize(("unprobed", "attempts"), [(19, 5), (21, 5), (41, 4), (61, 3), (101, 1), (1000, 1)])
def test_a_block_goes_one_step_back_for_each_cap_that_nobody_probes_it(unprobed: float, attempts: int) -> None:
    """It was at the fifth step; the next create probes at once, and its refusal adds one step again."""
    line = blocked(1, Policy(base=1, cap=20, idle_ttl=86_400))
    for _ in range(6):
        line.refused(line.next_ticket(), 4, 4)
    line.controller.of(line.admitted()[0].namespace).withdraw(line.admitted()[0], line.now)
    line.later(seen(line).next_probe or 0.0)
    line.later(unprobed)
    probe = line.ticket_of(line.submit(1))
    assert probe.probe
    line.refused(probe, 4, 4)

    assert seen(line).attempts == attempts


def test_a_block_that_nobody_probes_for_long_is_dropped() -> None:
    """Its ceiling is still known."""
    line = blocked(1, Policy(idle_ttl=1000))
    line.controller.of(line.admitted()[0].namespace).withdraw(line.admitted()[0], line.now)
    line.until(1000)

    assert seen(line).block is None


def test_a_probe_that_took_long_takes_no_step_back() -> None:
    """It was on its way, so the block was not left alone; then the flow was overloaded, and no quota was asked."""
    line = blocked(1)
    for _ in range(4):
        line.refused(line.next_ticket(), 4, 4)
    probe = line.next_ticket()
    line.later(100)
    line.settle(probe, Overloaded(0.0))
    line.next_ticket()

    assert seen(line).attempts == 4


def test_a_list_that_shows_room_ends_the_block() -> None:
    """News, though nobody waits and nothing is watched: who comes next and is too large starts at the first step."""
    line = blocked(1)
    for _ in range(4):
        line.refused(line.next_ticket(), 4, 4)
    line.controller.of(line.admitted()[0].namespace).withdraw(line.admitted()[0], line.now)
    line.later(0.1)
    line.controller.observe_quota(NS, QUOTA, line.quota(3, 4), line.now, line.now)
    line.advance()

    assert seen(line).block is None

"""The order of the line: priority, age, and the place of a create that the server refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.engine import Failed
from tests.kit.timeline import Timeline, settled, tickets, watched

if TYPE_CHECKING:
    from backoff_ctrl.engine import Request


def test_higher_priority_comes_first_and_age_makes_up_for_it() -> None:
    """Each ``age_step`` waited is worth one step of priority."""
    line = settled(4, 4)
    plain = line.submit(1)
    line.later(10)
    urgent = line.submit(1, priority=1)
    line.later(25)
    late = line.submit(1, priority=1)  # 35 s after the plain one, whose age is worth one step by now
    order = []
    for used in (3, 2, 1):
        line.observe(used, 4)
        order += [t.request for t in tickets(line.later(0.1))]
        line.created(*[line.ticket_of(r) for r in order if r.state == "sent"])
        line.observe(4, 4)

    assert order == [urgent, plain, late]


def test_a_refused_probe_goes_back_to_its_old_place() -> None:
    """A refusal by the server does not move a request back: the first in line stays the first."""
    line = Timeline()
    requests = [line.submit(1) for _ in range(4)]
    line.later(0.1)
    line.refused(line.ticket_of(requests[0]), 4, 4)
    for _ in range(3):
        probe = line.next_ticket()
        assert probe.request is requests[0]
        line.later(0.1)
        line.refused(probe, 4, 4)


def test_refused_creates_go_back_before_equals_that_were_never_sent() -> None:
    """Several were sent and refused: they stand before those never sent, in their old order."""
    line = Timeline()
    requests = [line.submit(1) for _ in range(8)]
    for _ in range(3):
        line.created(*[line.ticket_of(r) for r in line.admitted() if r.state == "sent"][:1])
    flying = [r for r in requests if r.state == "sent"]
    assert len(flying) >= 2
    line.later(0.1)
    for request in reversed(flying):
        line.refused(line.ticket_of(request), 9, 9)
    order: list[Request] = []
    while len(order) < 5:
        probe = line.next_ticket()
        order.append(probe.request)
        line.created(probe)

    assert order == [r for r in requests if r in order]


def test_a_new_request_does_not_pass_waiting_equals_when_room_has_just_come() -> None:
    """An equal request submitted before the scan of the line goes behind those that wait."""
    line = watched(0, 2)
    running = line.ticket_of(line.submit(2))
    waiting, newcomer = line.submit(2), line.request(2)
    line.controller.settle(running, Failed(), line.now)
    line.controller.submit(newcomer, line.now)

    assert [t.request for t in tickets(line.advance())] == [waiting]


def test_a_request_that_leaves_the_midst_of_its_row_returns_to_its_place() -> None:
    """Its mark in the row is taken back: it is counted again, and no equal one behind it goes first."""
    line = settled(3, 3)
    requests = [line.submit(1) for _ in range(3)]
    handler = line.controller.of(requests[1].namespace)
    assert handler.prioritize(requests[1], 1, line.now)
    assert handler.prioritize(requests[1], 0, line.now)
    tally, _ = line.controller.tally(handler.namespace, 0, line.now)
    assert tally.reasons.total() == 3
    line.observe(0, 3)

    assert [t.request for t in tickets(line.later(0.1))] == requests

"""What operators do to the line: halt a namespace, let it go on, move a waiting request. Also beside the twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from backoff_ctrl.engine import Overloaded, Policy, Ticket
from tests.kit.engine_machine import NAMESPACES, PICKS, ControllerMachine, one_of
from tests.kit.examples import examples
from tests.kit.timeline import NS, Timeline, settled, state_of, tickets

if TYPE_CHECKING:
    from backoff_ctrl.engine import Effect


class OperatedMachine(ControllerMachine):
    """The controller and its twin, with an operator in between: all laws hold, and who is halted is not sent."""

    def __init__(self) -> None:
        """Start with nothing halted."""
        super().__init__()
        self.halted: set[str] = set()

    def effects(self, one: list[Effect], other: list[Effect]) -> None:
        """Check beside the laws that no ticket is of a halted namespace."""
        sent = {effect.request.namespace for effect in one if isinstance(effect, Ticket)}
        assert not sent & self.halted, "a halted namespace was sent"
        super().effects(one, other)

    @precondition(lambda self: self.waiting)
    @rule(pick=PICKS, priority=st.integers(-2, 3))
    def prioritize(self, pick: int, priority: int) -> None:
        """Move a waiting request; the invariants then compare its place with the twin's."""
        request = self.waiting[one_of(sorted(self.waiting), pick)]
        assert self.engine.controller.of(request.namespace).prioritize(request, priority, self.engine.now)
        assert self.copy.controller.of(self.replica[request.id].namespace).prioritize(
            self.replica[request.id], priority, self.copy.now
        )
        self.advance()

    @rule(namespace=st.sampled_from(NAMESPACES))
    def halt(self, namespace: str) -> None:
        """Halt a namespace; a second time changes nothing."""
        self.halted.add(namespace)
        for line in (self.engine, self.copy):
            line.controller.halt(namespace, line.now)
        self.advance()

    @rule(namespace=st.sampled_from(NAMESPACES))
    def resume(self, namespace: str) -> None:
        """Let a namespace go on, whether it was halted or not."""
        self.halted.discard(namespace)
        for line in (self.engine, self.copy):
            line.controller.resume(namespace, line.now)
        self.advance()

    def teardown(self) -> None:
        """Let all go on: nothing is forgotten."""
        if not self.broken:
            for namespace in NAMESPACES:
                self.resume(namespace)
        super().teardown()


TestOperated = pytest.mark.long(OperatedMachine.TestCase)
TestOperated.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_halted_namespace_waits_although_there_is_room_and_goes_on_in_order() -> None:
    """Why is said; nothing wakes it in vain; other namespaces go on."""
    line = settled(0, 4)
    line.controller.halt(NS, line.now)
    requests = [line.submit(1), line.submit(1)]
    other = line.submit(1, namespace="team-b")
    line.later(1)
    line.created(*[line.ticket_of(other)])
    line.later(60)
    assert [each.state for each in requests] == ["waiting", "waiting"]
    assert other.state == "over"
    why = line.why(requests[0])
    assert (why.reason, why.quota, why.place) == ("paused-by-operator", "", 1)
    assert line.controller.tally(NS, 0, line.now)[0].reasons == {"paused-by-operator": 2}
    assert line.controller.is_halted(NS)
    assert line.controller.halted() == [NS]
    line.controller.resume(NS, line.now)
    assert [ticket.request for ticket in tickets(line.advance())] == requests
    assert not line.controller.is_halted(NS)


def test_to_resume_what_is_not_halted_changes_nothing() -> None:
    """A second answer to the same operator does no harm."""
    line = settled(4, 4)
    request = line.submit(1)
    line.controller.resume(NS, line.now)
    assert line.advance() == []
    assert (request.state, line.controller.halted()) == ("waiting", [])


def test_what_was_sent_before_a_halt_still_teaches_and_waits_if_it_is_refused() -> None:
    """A refused create goes back into the line, and is not sent again as a probe."""
    line = Timeline()
    request = line.submit(1)
    ticket = line.ticket_of(request)
    line.controller.halt(NS, line.now)
    line.refused(ticket, 4, 4)
    line.later(120)
    assert request.state == "waiting"
    line.controller.resume(NS, line.now)
    assert [each.request for each in tickets(line.advance())] == [request]


def test_a_halt_outlives_the_namespace() -> None:
    """One that was forgotten, or never known, is halted when it comes."""
    line = Timeline(Policy(idle_ttl=10))
    line.controller.halt(NS, line.now)
    line.later(100)
    assert line.controller.size == 0
    request = line.submit(1)
    line.later(1)
    assert request.state == "waiting"
    line.controller.resume(NS, line.now)
    assert state_of(request) == "waiting"
    line.advance()
    assert state_of(request) == "sent"


def test_a_halt_is_not_lifted_by_the_end_of_a_brake() -> None:
    """A webhook that fails and recovers meanwhile changes nothing."""
    line = settled(0, 40)
    first = line.submit(1)
    ticket = line.ticket_of(first)
    line.controller.halt(NS, line.now)
    line.settle(ticket, Overloaded(1.0, "namespace"))
    line.later(300)
    assert first.state == "waiting"


def test_a_moved_request_stands_where_its_priority_puts_it_and_keeps_its_age() -> None:
    """As if it had joined with it; back again, it is where it was."""
    line = settled(4, 4)
    first, second, third = (line.submit(1) for _ in range(3))
    line.later(10)  # less than a step of priority is worth
    late = line.submit(1, priority=1)
    line.later(5)
    assert line.controller.of(third.namespace).prioritize(third, 1, line.now)
    places = {}
    for request in (first, second, third, late):
        why = line.why(request)
        places[request.id] = why.place
    assert places == {third.id: 1, late.id: 2, first.id: 3, second.id: 4}
    assert third.joined == first.joined
    line.observe(3, 4)
    assert [ticket.request for ticket in tickets(line.later(0.1))] == [third]
    assert line.controller.of(second.namespace).prioritize(second, -1, line.now)
    assert line.controller.of(second.namespace).prioritize(second, 0, line.now)
    why = line.why(second)
    assert why.place == 3


def test_who_is_moved_in_front_of_kept_room_goes_in_at_once() -> None:
    """Room is kept for a large one against those behind it, and no news comes that would look at the line again."""
    line = settled(1, 4, Policy(overtakes_max=1, overtaken_for_max=1))
    large = line.submit(4)
    line.submit(1)
    line.later(5)
    small = line.submit(1)
    line.later(5)
    assert (large.state, small.state) == ("waiting", "waiting")
    assert line.controller.of(small.namespace).prioritize(small, 9, line.now)
    assert [ticket.request for ticket in tickets(line.advance())] == [small]


def test_only_who_waits_can_be_moved() -> None:
    """One that was sent, or is over, stays as it is."""
    line = settled(0, 4)
    request = line.submit(1)
    assert not line.controller.of(request.namespace).prioritize(request, 5, line.now)
    assert request.priority == 0


def test_no_gang_is_granted_in_a_halted_namespace() -> None:
    """It waits as single creates do."""
    line = settled(0, 4)
    line.controller.halt(NS, line.now)
    request = line.reserve((2, 1))
    line.later(60)
    assert (state_of(request), line.reserved()) == ("waiting", 0)
    line.resume()
    assert line.reserved() == 2

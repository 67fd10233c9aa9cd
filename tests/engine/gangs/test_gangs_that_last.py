"""What time does to an admitted gang: its limit, an operator's halt, and the namespace's own forgetting."""

from __future__ import annotations

from backoff_ctrl.engine import Created, Demand, Expired, GivenBack, Overloaded, Policy
from tests.kit.timeline import NS, ONE, Timeline, amounts_of, settled, state_of


def until(line: Timeline) -> float:
    """Return in how many seconds the only gang's limit ends, as status pages show it."""
    (gang,) = line.seen().gangs
    return gang.until


def test_the_limit_stands_still_while_an_operator_halts_the_namespace() -> None:
    """It may not draw then: what it had left before the halt, it has left after it."""
    line, gang = settled(0, 8).with_gang((4, 2), limit=60)
    line.later(50)
    line.controller.halt(NS, line.now)
    line.later(500)
    line.controller.halt(NS, line.now)  # twice is one halt
    assert (gang.end, until(line)) == (None, 10)
    line.later(500)
    assert until(line) == 10
    draw = line.draw(gang)
    assert state_of(draw) == "waiting"
    line.controller.of(draw.namespace).withdraw(draw, line.now)
    line.resume()
    assert until(line) == 10
    line.later(9.9)
    assert gang.end is None
    line.later(0.1)
    assert gang.end == "limit"
    assert any(isinstance(effect, GivenBack) for _, effect in line.log)


def test_the_limit_of_a_gang_that_drew_during_a_halt_begins_with_its_end() -> None:
    """What was sent before is answered, and what others make appears: both are signs of life."""
    line, gang = settled(0, 8).with_gang((4, 2), limit=60)
    sent = line.ticket_of(line.draw(gang))
    line.controller.halt(NS, line.now)
    line.later(30)
    line.created(sent)
    line.later(30)
    line.controller.gangs_of(gang.namespace).appeared(gang, "a", Demand(amounts_of(2)), line.now)
    line.later(1000)
    assert until(line) == 60
    line.controller.resume(NS, line.now)
    line.later(59)
    assert gang.end is None
    line.later(1)
    assert gang.end == "limit"


def test_a_draw_that_comes_back_after_a_halt_takes_nothing_from_the_limit() -> None:
    """It counts from the last member that was created, and the halt does not count."""
    line, gang = settled(0, 8).with_gang((4, 2), limit=60)
    line.store(gang)
    line.controller.halt(NS, line.now)
    line.later(1000)
    line.resume()
    line.later(10)
    draw = line.draw(gang)
    line.settle(line.ticket_of(draw), Overloaded())
    line.controller.of(draw.namespace).withdraw(draw, line.now)
    assert (gang.end, until(line)) == (None, 50)


def test_a_standing_gang_of_a_namespace_that_is_halted_already_has_its_whole_limit() -> None:
    """The operator's halt survives a restart of the gate; so does the time of what lives."""
    line = Timeline()
    line.controller.halt(NS, line.now)
    line.observe(0, 8)
    line.watching()
    gang = line.gang_of(line.reserve((4, 2), limit=60, standing=True))
    line.later(1000)
    assert until(line) == 60
    line.controller.resume(NS, line.now)
    line.later(59)
    assert (gang.end, line.reserved()) == (None, 8)


def test_draws_that_wait_go_on_after_a_halt() -> None:
    """In order, from what is reserved."""
    line, gang = settled(0, 8).with_gang((4, 2))
    line.controller.halt(NS, line.now)
    draws = [line.draw(gang) for _ in range(4)]
    line.later(1000)
    assert [state_of(draw) for draw in draws] == ["waiting"] * 4
    line.resume()
    assert [state_of(draw) for draw in draws] == ["sent"] * 4


def test_a_gang_outlasts_the_idle_time_of_its_namespace() -> None:
    """Nothing waits, nothing is in flight, nobody asks: what is reserved stays reserved, and can be drawn."""
    line = Timeline(Policy(idle_ttl=60, gang_limit=86_400))
    line.controller.observe_quota(NS, "compute", line.quota(0, 8), line.now)  # unwatched: it may be forgotten
    gang = line.gang_of(line.reserve((4, 2), standing=True))
    line.later(3600)
    assert line.reserved() == 8
    assert state_of(line.draw(gang)) == "sent"
    assert line.reserved() == 6


def test_what_a_gangs_members_are_charged_is_known_as_long_as_the_gang_is() -> None:
    """To creates that ask for as much, too."""
    line, gang = settled(0, 100, Policy(idle_ttl=60, gang_limit=86_400)).with_gang((3, 2))
    line.settle(line.ticket_of(line.draw(gang)), Created(Demand(amounts_of(3))))
    line.observe(3, 100, then=3600)
    line.submit(2)
    assert line.ceiling()["held"] == 3 * ONE


def test_a_part_is_known_as_long_as_gangs_of_it_are() -> None:
    """Single creates and members of equal demand go on learning from each other."""
    line = Timeline(Policy(idle_ttl=600))
    line.observe(8, 8)
    line.watching()
    line.later(500)
    line.withdraw(line.reserve((4, 1)))
    line.later(400)
    line.observe(0, 100, then=1)
    line.settle(line.ticket_of(line.submit(1)), Created(Demand(amounts_of(3))))
    line.gang((4, 1))
    assert line.reserved() == 12


def test_a_draw_that_waits_stands_where_its_gang_stood_for_those_who_look() -> None:
    """Ahead of creates that joined after the gang, though they are on no roll yet."""
    line, gang = settled(0, 8, Policy(overload_start=1, overload_max=1)).with_gang((4, 2))
    line.draw(gang)
    line.later(1)
    singles = [line.submit(1) for _ in range(3)]
    draw = line.draw(gang)
    page = line.controller.waiting(None, 10, line.now)
    assert [each.request for each in page.items] == [draw, *singles]
    line.controller.of(draw.namespace).withdraw(draw, line.now)
    assert [each.request for each in line.controller.waiting(None, 10, line.now).items] == singles


def test_a_gang_all_of_whose_draws_were_lost_is_complete() -> None:
    """Nothing is left that a limit could give back."""
    line, gang = settled(0, 8).with_gang((1, 2), limit=60)
    line.settle(line.ticket_of(line.draw(gang)), Expired())
    assert gang.end == "complete"

"""A place survives: who was told to come again waits on, and its room is held for as long as callers take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine import Identity, Overloaded, Request
from tests.kit.costs import lines_of
from tests.kit.timeline import NS, QUOTA, Timeline, refusals, state_of, tickets, watched

if TYPE_CHECKING:
    from backoff_ctrl.engine import Effect
from tests.engine.line.test_seats import ANN, ANN_TOO, come_again


def go_away(line: Timeline, request: Request, identity: Identity = ANN, retry_after: float = 1.0) -> None:
    """Tell the caller of a waiting request to come again."""
    assert line.controller.of(request.namespace).leave(request, line.now, identity, retry_after)
    line.advance()


def back(line: Timeline, request: Request) -> list[Request]:
    """Let the caller come again; return who is sent then."""
    assert line.controller.of(request.namespace).come_back(request, line.now)
    return sent(line.advance())


def sent(effects: list[Effect]) -> list[Request]:
    """Return who is sent."""
    return [ticket.request for ticket in tickets(effects)]


def test_the_room_of_a_caller_that_is_due_back_is_held() -> None:
    """Neither who waits behind it nor who comes new gets it; the caller does, when it comes."""
    line = watched(2, 2)
    first, behind = line.submit(1), line.submit(2)
    go_away(line, first)
    line.observe(1, 2)

    assert tickets(line.later(0.5)) == []
    assert [state_of(each) for each in (line.submit(1), behind)] == ["waiting", "waiting"]
    why = line.why(first)
    assert (why.reason, why.place, line.reserved()) == ("comes-back", 1, 1)
    line.later(0.6)
    assert back(line, first) == [first]
    assert line.reserved() == 0


def test_room_beyond_what_is_held_goes_to_those_behind() -> None:
    """Room comes for two: one is held, the other is given at once."""
    line = watched(2, 2)
    first, second = line.submit(1), line.submit(1)
    go_away(line, first)
    line.observe(0, 2)

    assert sent(line.later(0.1)) == [second]
    assert line.submit(1).state == "waiting"


def test_room_is_held_once_and_for_a_second_more_than_was_told_at_the_most() -> None:
    """Then it goes to the next in line; who comes back later has the old place, and what comes next."""
    line = watched(2, 2)
    first, behind = line.submit(1), line.submit(1)
    go_away(line, first, retry_after=2.0)
    line.observe(1, 2)

    assert tickets(line.later(2.9)) == []
    assert sent(line.later(0.2)) == [behind]
    line.created(line.ticket_of(behind))
    line.observe(2, 2)
    line.observe(1, 2)
    third = line.submit(1)
    assert sent(line.later(0.1)) == [third], "it had its time"
    assert back(line, first) == []
    assert line.place(first) == 1


def test_who_is_ahead_of_one_that_is_away_goes_first() -> None:
    """What is held for a place is not held against those before it."""
    line = watched(2, 2)
    first, second = line.submit(1), line.submit(1)
    go_away(line, second)
    line.observe(1, 2)

    assert sent(line.later(0.1)) == [first]


def test_nothing_is_held_that_would_not_fit() -> None:
    """A smaller one passes a larger one that is away, as it would if that one were there."""
    line = watched(4, 4)
    large, small = line.submit(3), line.submit(1)
    go_away(line, large)
    line.observe(3, 4)

    assert sent(line.later(0.1)) == [small]


def test_how_late_callers_come_is_learned() -> None:
    """After eight that came within 0.1 s, room is held for no longer than that."""
    line = watched(2, 2)
    first = line.submit(1)
    for _ in range(8):
        go_away(line, first)
        line.later(1.1)
        assert back(line, first) == []
    behind = line.submit(1)
    go_away(line, first)
    line.observe(1, 2)

    assert tickets(line.later(1.09)) == []
    assert sent(line.later(0.02)) == [behind]


def test_without_a_watch_nobody_behind_probes_while_the_first_in_line_is_due_back() -> None:
    """The probe is the first one's: it goes once the caller is there."""
    line = Timeline()
    first = line.submit(1)
    line.refused(line.next_ticket(), 4, 4)
    go_away(line, first, retry_after=1.5)

    assert tickets(line.later(1.2)) == [], "the block opens after 0.5 to 1 s"
    assert line.submit(1).state == "waiting"
    assert back(line, first) == [first]


def test_without_a_watch_the_next_one_probes_once_a_caller_is_overdue() -> None:
    """The time of the place is over."""
    line = Timeline()
    first = line.submit(1)
    line.refused(line.next_ticket(), 4, 4)
    go_away(line, first)
    behind = line.submit(1)

    assert tickets(line.later(1.9)) == []
    assert sent(line.later(0.2)) == [behind]


def submit_as(line: Timeline, identity: Identity) -> tuple[Request, list[Effect]]:
    """Submit an equal create; return what follows at once, too."""
    again = line.request(1)
    line.controller.submit(again, line.now, identity)
    return again, line.advance()


def test_the_same_create_under_a_new_request_takes_the_place() -> None:
    """Whoever was away is refused, and its room is the new one's."""
    line = watched(2, 2)
    first, behind = line.submit(1), line.submit(1)
    go_away(line, first)
    line.observe(1, 2, then=0.1)
    again, effects = submit_as(line, ANN)

    assert [(refusal.request, refusal.reason) for refusal in refusals(effects)] == [(first, "place-taken")]
    assert sent(effects) == [again]
    assert (again.joined, behind.state) == (first.joined, "waiting")


def test_another_equal_create_of_a_caller_takes_only_a_place_that_is_overdue() -> None:
    """A caller with several creates has several places; one that draws a name at each try takes its last one's."""
    line = watched(2, 2)
    first = line.submit(1)
    go_away(line, first)
    line.later(1.9)
    second, effects = submit_as(line, ANN_TOO)
    assert (effects, line.place(second)) == ([], 2)
    line.later(0.2)
    third, effects = submit_as(line, ANN_TOO)

    assert [refusal.request for refusal in refusals(effects)] == [first]
    assert [line.place(each) for each in (third, second)] == [1, 2]


def test_who_is_withdrawn_while_away_holds_nothing_and_leaves_no_place() -> None:
    """The room goes to the next, and there is nobody to come back."""
    line = watched(2, 2)
    first, behind = line.submit(1), line.submit(1)
    go_away(line, first)
    line.observe(1, 2, then=0.1)
    line.controller.of(first.namespace).withdraw(first, line.now)

    assert sent(line.advance()) == [behind]
    assert not line.controller.of(first.namespace).come_back(first, line.now)
    assert come_again(line).joined == line.now


def test_only_who_waits_goes_away_and_only_who_is_away_comes_back() -> None:
    """Not a create that was sent, no gang, and nobody twice."""
    line = watched(2, 2)
    line.observe(1, 2, then=1)
    there, gang = line.submit(1), line.reserve((2, 1))
    waits = line.submit(1)

    assert [line.controller.of(each.namespace).leave(each, line.now, ANN, 1.0) for each in (there, gang)] == [
        False,
        False,
    ]
    assert not line.controller.of(waits.namespace).come_back(waits, line.now)
    go_away(line, waits)
    assert not line.controller.of(waits.namespace).leave(waits, line.now, ANN, 1.0)
    assert not line.controller.of(NS).come_back(line.submit(1), line.now)


@pytest.mark.parametrize("change", ["limit", "quota", "deleted", "prioritized", "halted", "never fits"])
def test_what_is_held_is_given_back_whole_whatever_changes(change: str) -> None:
    """Amounts are counted anew where the structure changes; in the end nothing is set apart."""
    line = watched(2, 2)
    first = line.submit(1)
    go_away(line, first)
    line.observe(1, 2, then=0.1)
    assert line.reserved() == 1
    match change:
        case "limit":
            line.observe(1, 3)
        case "quota":
            line.observe(0, 9, quota="other")
        case "deleted":
            line.controller.forget_quota(NS, QUOTA, line.now)
        case "prioritized":
            line.controller.of(first.namespace).prioritize(first, 3, line.now)
        case "halted":
            line.controller.halt(NS, line.now)
        case _:
            line.observe(0, 0.5)
    line.advance()
    line.withdraw(first)

    quotas = line.seen().quotas
    assert all(each.reserved == 0 for resources in quotas.values() for each in resources.values())


def test_the_turn_of_an_overloaded_flow_holds_no_room_twice() -> None:
    """The flow's window opens in the midst of the line; what is held there already is counted once."""
    line = watched(4, 4)
    line.observe(0, 4, then=1)
    first = line.submit(1)
    line.settle(line.ticket_of(first), Overloaded())
    go_away(line, first, retry_after=9.0)
    line.later(5)

    assert line.reserved() == 1


def test_who_is_refused_while_away_keeps_the_seat() -> None:
    """The quota was too small for a moment: the place is still there when it has grown again, and holds nothing."""
    line = watched(4, 4)
    large = line.submit(3)
    go_away(line, large, retry_after=4.0)
    line.observe(2, 2)
    assert state_of(large) == "over"
    line.submit(2)
    line.observe(1, 4)
    line.submit(2)
    line.later(1)

    assert line.reserved() == 0
    assert come_again(line, cpu=3).joined == large.joined


def test_thousands_who_are_away_cost_the_others_nothing() -> None:
    """Bounded: who is told to come again, and never does, is not looked at in each decision about somebody else."""
    few, many = (steps_beside(away) for away in (200, 2000))
    assert many <= few * 1.5


def steps_beside(away: int) -> int:
    """Return how many lines run for a create that comes and goes beside so many whose callers are overdue."""
    line = watched(4, 4)
    for number in range(away):
        go_away(line, line.submit(1), Identity("ann", number))
    line.later(3)
    return lines_of(lambda: line.withdraw(line.submit(1)))

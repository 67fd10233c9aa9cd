"""Draws: a member's amounts move from reserved to held; what was not stored goes back; never one more than reserved."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import (
    Abandoned,
    Created,
    Demand,
    Expired,
    Failed,
    GangError,
    Overloaded,
    Policy,
    Rejected,
    Ticket,
)
from backoff_ctrl.engine.gangs.gang import GivenBack
from tests.kit.timeline import NS, ONE, Timeline, amounts_of, refusals, settled, state_of, without_quotas


def shares(line: Timeline) -> tuple[float, float, float]:
    """Return what is held, reserved and left, in CPUs."""
    seen = line.ceiling()
    return int(str(seen["held"])) / ONE, line.reserved(), int(str(seen["headroom"])) / ONE


def test_a_draw_moves_its_amounts_from_reserved_to_held_and_leaves_the_room_as_it_is() -> None:
    """Nobody else can be admitted in between, since there is no between."""
    line, gang = settled(0, 10).with_gang((4, 2))
    assert shares(line) == (0, 8, 2)
    draw = line.draw(gang)
    assert state_of(draw) == "sent"
    assert shares(line) == (2, 6, 2)
    line.created(line.ticket_of(draw))
    assert shares(line) == (2, 6, 2)
    line.observe(2, 10)
    assert shares(line) == (0, 6, 2)


@pytest.mark.parametrize("outcome", [Failed(), Abandoned(), Overloaded(), Overloaded(None, "namespace")])
def test_what_was_not_stored_goes_back_to_reserved(outcome: Failed | Abandoned | Overloaded) -> None:
    """However it ended, the gang may draw it again, and nobody else got its room."""
    line, gang = settled(0, 8).with_gang((4, 2))
    single = line.submit(1)
    draw = line.draw(gang)
    line.settle(line.ticket_of(draw), outcome)
    assert shares(line) == (0, 8, 0) or state_of(draw) == "sent"
    line.later(5)
    again = draw if isinstance(outcome, Overloaded) else line.draw(gang)
    assert state_of(again) == "sent"
    assert gang.undrawn == [3]
    assert state_of(single) == "waiting"


def test_a_draw_that_is_lost_counts_as_drawn() -> None:
    """Nobody knows whether it was stored; it is not drawn a second time."""
    line, gang = settled(0, 8).with_gang((4, 2))
    line.settle(line.ticket_of(line.draw(gang)), Expired())
    assert (gang.undrawn, gang.drawn) == ([3], 1)
    assert line.reserved() == 6


def test_no_more_is_drawn_than_was_reserved() -> None:
    """Neither when all are drawn, nor while draws of all that is left wait, nor after the end."""
    line, gang = settled(0, 8).with_gang((1, 2), (1, 1))
    line.draw(gang)
    with pytest.raises(GangError, match="all members of part 1 of the gang g1 are drawn"):
        line.draw(gang)
    line.created(line.ticket_of(line.draw(gang, 1)))
    line.created(*[effect for _, effect in line.log if isinstance(effect, Ticket) and not effect.ended])
    assert gang.end == "complete"
    with pytest.raises(GangError, match="are drawn"):
        line.draw(gang, 1)


def test_a_draw_passes_the_line_but_not_the_overload_window() -> None:
    """With one create in flight at most, the members are sent one after the other, ahead of an elder single create."""
    line, gang = settled(0, 8, Policy(overload_start=1, overload_max=1)).with_gang((3, 2))
    draws = [line.draw(gang) for _ in range(3)]
    assert [state_of(draw) for draw in draws] == ["sent", "waiting", "waiting"]
    with pytest.raises(GangError, match="are drawn"):
        line.draw(gang)
    single = line.submit(1)
    order = []
    for _ in range(4):
        ticket = next(t for _, t in line.log if isinstance(t, Ticket) and not t.ended)
        order.append(ticket.request)
        line.created(ticket)
    assert order == [*draws, single]


def test_a_draw_that_waits_can_be_withdrawn_and_drawn_again() -> None:
    """It keeps its member, and tells why it waited."""
    line, gang = settled(0, 8, Policy(overload_start=1, overload_max=1)).with_gang((2, 2))
    line.draw(gang)
    second = line.draw(gang)
    why = line.why(second)
    assert why.reason == "overload"
    line.controller.of(second.namespace).withdraw(second, line.now)
    assert state_of(line.draw(gang)) == "waiting"


def test_after_the_end_draws_are_refused() -> None:
    """Those that wait, those that come back, and those that come late: none is sent without a reservation."""
    line, gang = settled(0, 8, Policy(overload_start=1, overload_max=1)).with_gang((4, 2))
    sent, waiting = line.draw(gang), line.draw(gang)
    line.controller.gangs_of(gang.namespace).give_back(gang, line.now)
    line.give_back(gang)
    late = line.draw(gang)
    line.settle(line.ticket_of(sent), Overloaded(None, "namespace"))
    refused = refusals(effect for _, effect in line.log)
    assert [r.request for r in refused] == [waiting, late, sent]
    assert {r.reason for r in refused} == {"given-back"}
    assert shares(line) == (0, 0, 8)


def test_a_gang_is_complete_when_its_last_member_is_stored() -> None:
    """Nothing of it is left; a member that ends later is no longer its business."""
    line, gang = settled(0, 8).with_gang((2, 2))
    line.store(gang)
    assert gang.end is None
    line.store(gang)
    assert gang.end == "complete"
    assert line.seen().gangs == ()


def test_the_limit_counts_from_the_last_draw_and_gives_back_what_is_undrawn() -> None:
    """The caller is told how much was drawn and how much was not."""
    line, gang = settled(0, 8).with_gang((4, 2), limit=60)
    line.later(50)
    line.store(gang)
    line.later(59)
    assert gang.end is None
    waiting = line.submit(4)
    line.later(1)
    assert gang.end == "limit"
    assert [(e.gang, e.drawn, e.undrawn) for _, e in line.log if isinstance(e, GivenBack)] == [(gang, 1, 3)]
    assert state_of(waiting) == "sent"
    assert line.reserved() == 0


def test_the_limit_is_five_minutes_if_none_is_given() -> None:
    """The policy's."""
    line, gang = settled(0, 8).with_gang((1, 2))
    line.later(299)
    assert gang.end is None
    line.later(1)
    assert gang.end == "limit"


def test_a_draw_without_an_answer_keeps_a_gang_alive() -> None:
    """All are drawn, so that nothing can be given back; if it comes back, the limit counts from there."""
    line, gang = settled(0, 8).with_gang((1, 2), limit=10)
    draw = line.draw(gang)
    line.later(60)
    assert gang.end is None
    line.settle(line.ticket_of(draw), Failed())
    line.later(9)
    assert gang.end is None
    line.later(1)
    assert gang.end == "limit"


def test_what_a_member_is_really_charged_corrects_the_rest() -> None:
    """The server's defaults make each member cost 3: five that are undrawn reserve 15."""
    line, gang = settled(0, 30).with_gang((6, 2))
    line.settle(line.ticket_of(line.draw(gang)), Created(Demand(amounts_of(3))))
    assert shares(line) == (3, 15, 12)


@pytest.mark.parametrize("members", [2, 4], ids=["half the room", "all of it: no room that settles wakes anybody"])
def test_a_refusal_by_a_state_older_than_ours_lets_the_draw_wait_a_moment(members: int) -> None:
    """What is reserved for it is not set aside, so it would be sent again at once, and again."""
    line = settled(8, 8)
    request = line.reserve((members, 2))
    line.observe(0, 8, then=0.1)
    draw = line.draw(line.gang_of(request))
    line.now += 0.001
    line.settle(line.ticket_of(draw), Rejected("compute", amounts_of(2), amounts_of(8), amounts_of(8)))
    assert state_of(draw) == "waiting"
    line.later(0.5)
    assert state_of(draw) == "sent"


def test_a_draw_that_the_server_sends_back_does_not_put_the_limit_off() -> None:
    """Strangers took the room, and probes are refused again and again: the gang ends all the same."""
    line = Timeline(Policy(base=1, cap=4))
    request = line.reserve((2, 4), limit=30)
    sent = line.now
    line.now += 0.005
    line.controller.observe_quota("team-a", "compute", line.quota(0, 8), line.now, sent)
    line.controller.gangs_of("team-a").looked(line.now, readable=True)
    line.advance()
    line.later(1)
    gang = line.gang_of(request)
    draw = line.draw(gang)
    while gang.end is None:
        if state_of(draw) == "sent":
            line.refused(line.ticket_of(draw), 8, 8)
        line.until(line.controller.next_deadline() or 0)
        assert line.now < 40
    assert gang.end == "limit"
    assert [r.request for r in refusals(effect for _, effect in line.log)] == [draw]


def test_a_draw_of_one_gang_does_not_wait_behind_an_equal_one_of_another() -> None:
    """The elder's was refused by a state older than ours, and waits a moment; the younger's goes."""
    line = settled(8, 8, Policy(overload_start=1, overload_max=1))
    requests = [line.reserve((2, 2)), line.reserve((2, 2))]
    line.observe(0, 8, then=0.1)
    elder, younger = (line.draw(line.gang_of(request)) for request in requests)
    assert state_of(younger) == "waiting"
    line.now += 0.001
    line.settle(line.ticket_of(elder), Rejected("compute", amounts_of(2), amounts_of(8), amounts_of(8)))
    assert (state_of(elder), state_of(younger)) == ("waiting", "sent")


def test_a_draw_that_waited_too_long_may_be_drawn_again() -> None:
    """It keeps its member no longer."""
    line, gang = settled(0, 8, Policy(overload_start=1, overload_max=1, wait_max=30)).with_gang((2, 2))
    line.draw(gang)
    late = line.draw(gang)
    line.later(31)
    assert [(r.request, r.reason) for r in refusals(e for _, e in line.log)] == [(late, "waited-too-long")]
    assert state_of(line.draw(gang)) == "waiting"


def test_when_members_turn_out_to_cost_more_no_more_are_sent_than_there_is_room_for() -> None:
    """Twelve are left for six members of two each; the first is charged three, and three more go."""
    line, gang = settled(0, 12).with_gang((6, 2))
    line.settle(line.ticket_of(line.draw(gang)), Created(Demand(amounts_of(3))))
    draws = [line.draw(gang) for _ in range(5)]
    assert [state_of(draw) for draw in draws] == ["sent"] * 3 + ["waiting"] * 2


def test_giving_back_a_gang_of_a_forgotten_namespace_is_no_error() -> None:
    """It was complete long ago."""
    line = without_quotas(Policy(idle_ttl=60))
    gang = line.gang((1, 2))
    line.store(gang)
    line.later(600)
    assert NS not in line.snapshot().namespaces
    line.controller.gangs_of(gang.namespace).give_back(gang, line.now)
    assert line.advance() == []

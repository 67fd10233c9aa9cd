"""Defects of gangs that reviews found: room that nobody got, draws that waited for ever, limits that never ended."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import (
    Abandoned,
    Created,
    Demand,
    Draw,
    GangError,
    GivenBack,
    Identity,
    Overloaded,
    Parts,
    Policy,
    Rejected,
    Reservation,
    TicketError,
)
from tests.engine.gangs.test_strangers import lacks
from tests.engine.gangs.test_unwatched import looks, read
from tests.kit.costs import lines_of
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, amounts_of, flying, refusals, settled, state_of

REFUSED = Rejected(QUOTA, amounts_of(1), amounts_of(8), amounts_of(8))


def test_what_is_left_beside_a_gang_that_has_all_it_needs_is_everybodys_at_once() -> None:
    """The very news that ends its deficit lets in those who wait behind it."""
    line, gang = settled(0, 8).with_gang((4, 1))
    line.store(gang)
    line.observe(8, 8)
    behind = line.submit(1)
    line.observe(2, 8, then=0.1)
    assert lacks(line) == [0]
    assert state_of(behind) == "sent"


@pytest.mark.parametrize("answer", [REFUSED, Overloaded(None, "namespace")], ids=["refused", "overloaded"])
def test_a_gang_whose_draws_come_back_for_ever_is_given_back(answer: Rejected | Overloaded) -> None:
    """A draw that returns to the line extends no limit: else the gang would close the line behind it without end."""
    line = Timeline(Policy(base=1, cap=8, gang_limit=60))
    request = line.reserve((4, 1))
    read(line, 4, 8)
    gang = line.gang_of(request)
    line.store(gang)
    for _ in range(3):
        line.draw(gang)
    for _ in range(40):
        for ticket in flying(line):
            line.settle(ticket, answer)
        line.later(2)
    assert gang.end == "limit"
    assert [(e.drawn, e.undrawn) for _, e in line.log if isinstance(e, GivenBack)] == [(1, 3)]
    assert line.reserved() == 0


def test_a_draw_that_is_sent_back_takes_nothing_from_the_limit_that_another_member_began() -> None:
    """Since that one appeared, a whole limit may pass."""
    line, gang = settled(0, 8).with_gang((4, 1), limit=60)
    line.later(50)
    line.controller.gangs_of(gang.namespace).appeared(gang, "a", Demand(amounts_of(1)), line.now)
    line.settle(line.ticket_of(line.draw(gang)), Overloaded(None, "namespace"))
    for ticket in flying(line):
        line.settle(ticket, Overloaded(None, "namespace"))
    line.later(20)
    assert gang.end is None


def test_one_by_one_a_member_that_came_back_goes_with_its_equals() -> None:
    """It is first in its row again, though it began to wait last."""
    line = Timeline(Policy(gang_blind="one_by_one"))
    request = line.reserve((3, 1))
    line.looked(False)
    gang = line.gang_of(request)
    first, _ = line.draw(gang), line.draw(gang)
    line.refused(line.ticket_of(first), 8, 8)
    for _ in range(2):
        line.created(line.next_ticket(within=30))
    assert gang.undrawn == [1]


def test_a_read_that_nobody_waited_for_does_not_hold_up_the_next() -> None:
    """The gang left while the quotas were read: the next gang has them read again at once."""
    line = Timeline()
    line.controller.of(NS).withdraw(line.reserve((2, 1)), line.now)
    line.advance()
    read(line, 0, 8)
    line.later(5)
    second = line.reserve((3, 1))
    assert len(looks(line)) == 2
    read(line, 0, 8)
    assert line.granted() == [second]


def test_who_leaves_the_line_and_comes_again_has_the_quotas_read_no_more_often() -> None:
    """The back-off of reads ends with time, not with an empty line (a place survives)."""
    line = Timeline(Policy(base=1, cap=8))
    for _ in range(100):
        request = line.reserve((4, 1))
        if looks(line)[-1] == line.now:
            read(line, 8, 8)
        line.later(0.5)
        line.controller.of(request.namespace).withdraw(request, line.now)
        line.later(0.5)
        line.looked(True)
    assert len(looks(line)) < 30
    line.later(100)
    assert line.now - looks(line)[-1] > 90  # nobody waits
    before = len(looks(line))
    line.reserve((4, 1))
    assert len(looks(line)) == before + 1


def test_where_quotas_cannot_be_read_a_gang_is_refused_and_they_are_tried_again_for_a_later_one() -> None:
    """Half of it would be worse than none. Somebody may allow it; until the next read gangs are refused at once."""
    line = Timeline(Policy(base=1, cap=8))
    first = line.reserve((4, 1))
    line.looked(False)
    second = line.reserve((4, 1))
    refused = refusals(effect for _, effect in line.log)
    assert [(r.request, r.reason) for r in refused] == [(first, "quotas-unreadable"), (second, "quotas-unreadable")]
    assert "can't be read" in refused[0].detail
    line.later(5)
    third = line.reserve((4, 1))
    assert state_of(third) == "waiting"
    assert len(looks(line)) == 2
    read(line, 0, 8)
    assert line.granted() == [third]


@pytest.mark.parametrize("standing", [True, False])
def test_a_gang_is_whole_where_quotas_are_watched_though_they_were_unreadable_once(standing: bool) -> None:
    """What is watched is known."""
    line = Timeline()
    line.reserve((4, 1))
    line.looked(False)
    line.observe(0, 8)
    line.watching()
    assert line.gang_of(line.reserve((4, 1), standing=standing)).whole


def test_a_draw_takes_room_that_is_free_though_keeping_for_its_gang_has_paused() -> None:
    """It fits everybody's room and what its gang has: no reason to wait where others pass."""
    line, gang = settled(0, 8, Policy(keep_stalled=10)).with_gang((8, 1), limit=1000)
    line.observe(7, 8)
    line.draw(gang)
    line.settle(flying(line)[0], Abandoned())
    line.later(15)
    line.observe(8, 8)
    line.observe(7, 8)  # no more room than there was: it stays everybody's
    line.later(0.1)
    assert lacks(line) == [8]
    assert state_of(line.draw(gang)) == "sent"


def test_a_draw_takes_no_room_that_is_kept_for_an_elder() -> None:
    """And says so."""
    line = settled(4, 8, Policy(overtakes_max=1, overtaken_for_max=0))
    elder = line.submit(6)
    gang = line.gang((4, 1))
    assert elder.overtaken == 1
    line.observe(8, 8)
    line.observe(7, 8, then=0.01)
    draw = line.draw(gang)
    assert (state_of(draw), lacks(line)) == ("waiting", [4])
    why = line.why(draw)
    assert (why.reason, why.asked, why.left) == ("kept-for-another", ONE, ONE)


def test_one_member_that_was_charged_otherwise_teaches_single_creates_no_longer_than_they_say_so_themselves() -> None:
    """A sidecar may be injected into the gang's pods only."""
    line, gang = settled(0, 100).with_gang((3, 2))
    line.controller.gangs_of(gang.namespace).appeared(gang, "a", Demand(amounts_of(3)), line.now)
    line.observe(3, 100, then=1)
    single = line.submit(2)
    line.settle(line.ticket_of(single), Created(Demand(amounts_of(2))))
    line.observe(5, 100, then=1)
    line.submit(2)
    assert line.ceiling()["held"] == 2 * ONE


def test_a_member_holds_its_real_charge_whatever_creates_that_ask_for_as_much_are_charged() -> None:
    """Those who ask for three are charged four; a member that is charged three holds three."""
    line = settled(0, 100)
    line.settle(line.ticket_of(line.submit(3)), Created(Demand(amounts_of(4))))
    line.observe(4, 100, then=1)
    gang = line.gang((3, 2))
    line.controller.gangs_of(gang.namespace).appeared(gang, "a", Demand(amounts_of(3)), line.now)
    assert line.ceiling()["held"] == 3 * ONE
    assert line.reserved() == 6


def test_a_member_is_of_the_part_that_is_expected_to_be_charged_as_much() -> None:
    """One of the first part was seen to cost five: the next that costs five is of that part, too."""
    line, gang = settled(0, 100).with_gang((2, 2), (2, 9))
    line.controller.gangs_of(gang.namespace).appeared(gang, "a", Demand(amounts_of(5)), line.now)
    assert gang.undrawn == [1, 2]
    line.controller.gangs_of(gang.namespace).appeared(gang, "b", Demand(amounts_of(5)), line.now)
    assert gang.undrawn == [0, 2]


def test_a_recount_gives_a_gang_no_room_that_is_kept_for_an_elder() -> None:
    """What it lacked before it still lacks: that is made up at its place in line."""
    line = settled(4, 8, Policy(overtakes_max=1, overtaken_for_max=0))
    elder = line.submit(6)
    line.gang((4, 1))
    line.observe(8, 8)
    line.observe(6, 8, then=0.01)
    assert (elder.overtaken, lacks(line)) == (1, [4])
    line.observe(0, 20, quota="other")  # a change of structure
    line.later(0.01)
    assert lacks(line) == [4]
    line.observe(2, 8, then=0.01)
    assert state_of(elder) == "sent"


def test_an_abandoned_draw_leaves_no_seat() -> None:
    """Its place is its gang's, not its caller's."""
    line, gang = settled(0, 8).with_gang((4, 1))
    line.settle(line.ticket_of(line.draw(gang)), Abandoned(Identity(1, 2), 5.0))
    assert line.seen().seats == 0


def test_a_gang_or_draw_that_is_not_new_is_an_error_that_changes_nothing() -> None:
    """Its place in line above all."""
    line = settled(8, 8)
    request = line.reserve((4, 1))
    behind = line.submit(1)
    line.later(3)
    with pytest.raises(TicketError, match="waiting"):
        line.controller.of(request.namespace).reserve(request, line.now)
    assert (request.joined, request.rank) == (1, 1)
    line.controller.of(request.namespace).withdraw(request, line.now)
    assert line.waiting() == 1
    line.controller.of(behind.namespace).withdraw(behind, line.now)
    line.observe(0, 8, then=1)
    gang = line.gang((4, 1))
    draw = line.draw(gang)
    with pytest.raises(TicketError, match="sent"):
        line.controller.of(draw.namespace).draw(draw, line.now)
    assert gang.undrawn == [3]


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_a_limit_that_is_no_time_is_an_error_at_once(limit: float) -> None:
    """With one that is not a number no alarm would ever ring."""
    with pytest.raises(GangError, match="the limit of the gang g is a number of seconds above 0, not"):
        Reservation("g", NS, Parts([(Demand(amounts_of(1)), 1)]), limit=limit)


def test_a_gang_that_waits_for_a_read_says_when_the_next_one_is() -> None:
    """As one who waits for a probe."""
    line = Timeline(Policy(base=1, cap=8))
    request = line.reserve((4, 1))
    read(line, 8, 8)
    line.later(0.1)
    why = line.why(request)
    assert why.next_probe is not None
    assert 0 < why.next_probe <= 2


def test_a_draw_costs_no_more_beside_many_draws_that_wait() -> None:
    """Bounded: members of a large gang are drawn one after the other, however many wait already."""

    def cost(waiting: int) -> int:
        line, gang = settled(0, 10**6, Policy(overload_start=1, overload_max=1)).with_gang((5000, 1))
        draws = [Draw(f"m{number}", gang, 0) for number in range(waiting + 1)]
        for draw in draws[:-1]:
            line.controller.of(draw.namespace).draw(draw, line.now)
            line.controller.advance(line.now)
        return lines_of(lambda: line.controller.of(draws[-1].namespace).draw(draws[-1], line.now))

    assert cost(1000) < 1.5 * cost(10)


def test_a_draw_costs_no_more_beside_many_gangs_that_lack_nothing() -> None:
    """Nobody has to give up anything: only ceilings without room are looked at."""

    def cost(gangs: int) -> int:
        line = settled(0, 10**6)
        gang = [line.gang((2, 1)) for _ in range(gangs)][-1]
        return lines_of(lambda: line.draw(gang))

    assert cost(200) < cost(10) + 2 * 200  # each gang's needs, and no more

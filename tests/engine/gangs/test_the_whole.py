"""A gang is one: a gang is admitted whole or not at all, by the same line, order and keeping as single creates."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Demand, Draw, GangError, Look, Parts, Policy, Refusal, Reservation, Selector
from tests.kit.timeline import NS, ONE, Timeline, amounts_of, refusals, settled, state_of, tickets


def test_a_gang_that_fits_is_granted_at_once_and_reserves_the_sum_of_its_parts() -> None:
    """Nothing is sent, and nothing is held: the room is set apart."""
    line, gang = settled(1, 10).with_gang((1, 2), (3, 1.5))
    assert (gang.undrawn, gang.drawn, gang.whole) == ([1, 3], 0, True)
    assert line.ceiling() == {"limited": 10 * ONE, "used": ONE, "held": 0, "headroom": round(2.5 * ONE)}
    assert line.reserved() == 6.5
    assert not tickets(effect for _, effect in line.log)


def test_where_quotas_are_watched_the_end_of_a_pod_has_none_read_for_a_gang() -> None:
    """The watch tells of the room."""
    line = settled(3, 10)
    request = line.reserve((8, 1))
    line.controller.hint_release(NS, line.now)
    line.later(1)
    assert state_of(request) == "waiting"
    assert not any(isinstance(effect, Look) for _, effect in line.log)


def test_a_gang_waits_as_one_until_the_whole_fits() -> None:
    """Room for seven of eight admits none of them."""
    line = settled(3, 10)
    request = line.reserve((8, 1))
    assert state_of(request) == "waiting"
    assert line.waiting() == 1
    assert line.reserved() == 0
    line.observe(2, 10, then=0.1)
    assert line.granted() == [request]
    assert line.reserved() == 8


def test_parts_that_fit_apart_only_wait_for_room_for_their_sum() -> None:
    """Six and four do not fit eight."""
    line = settled(2, 10)
    request = line.reserve((3, 2), (4, 1))
    assert state_of(request) == "waiting"
    line.observe(0, 10, then=0.1)
    assert line.granted() == [request]
    assert line.reserved() == 10


def test_a_gang_takes_no_room_that_is_kept_for_one_ahead_of_it() -> None:
    """It waits behind a single create that was overtaken too often."""
    line = settled(4, 8, Policy(overtakes_max=1, overtaken_for_max=0))
    large = line.submit(6)
    line.created(line.ticket_of(line.submit(1)))
    line.observe(5, 8, then=0.1)
    gang = line.reserve((3, 1))
    assert state_of(gang) == "waiting"
    line.observe(2, 8, then=0.1)
    assert (state_of(large), line.granted()) == ("sent", [])


def test_a_gang_waits_while_a_quota_is_paused() -> None:
    """A limit of zero is no verdict."""
    line = settled(0, 8)
    line.observe(0, 0)
    request = line.reserve((4, 1))
    assert state_of(request) == "waiting"
    line.observe(0, 8, then=0.1)
    assert line.granted() == [request]


def test_what_is_reserved_is_nobodys_room() -> None:
    """A single create beside a gang that has drawn nothing waits, and is admitted once the gang gives back."""
    line, gang = settled(0, 10).with_gang((8, 1))
    assert state_of(line.submit(2)) == "sent"
    single = line.submit(1)
    assert state_of(single) == "waiting"
    line.give_back(gang)
    assert state_of(single) == "sent"
    assert line.reserved() == 0


def test_a_gang_stands_in_line_by_priority_and_age() -> None:
    """Of two gangs that wait, the one with the higher priority goes first, though it came later."""
    line = settled(8, 8)
    low, high = line.reserve((4, 2)), line.reserve((2, 4), priority=1)
    line.observe(0, 8, then=0.1)
    assert line.granted() == [high]
    assert state_of(low) == "waiting"


def test_a_gang_is_overtaken_as_one_and_then_room_is_kept_for_it() -> None:
    """Small ones pass it ``overtakes_max`` times, then no more, until the whole fits."""
    line = settled(6, 8, Policy(overtakes_max=2, overtaken_for_max=0))
    request = line.reserve((4, 1))
    for _ in range(2):
        small = line.submit(1)
        line.created(line.ticket_of(small))
        line.observe(7, 8)
        line.observe(6, 8, then=0.1)
    assert request.overtaken == 2
    assert state_of(line.submit(1)) == "waiting"
    line.observe(4, 8, then=0.1)
    assert line.granted() == [request]


def test_a_gang_overtakes_as_one_and_its_draws_overtake_nobody() -> None:
    """A gang of four that passes a large create counts once, and its four members not at all."""
    line = settled(4, 8, Policy(overtakes_max=32))
    large = line.submit(6)
    gang = line.gang((4, 1))
    assert large.overtaken == 1
    for _ in range(4):
        line.store(gang)
    assert large.overtaken == 1


def test_equal_gangs_wait_in_one_row() -> None:
    """Their parts are equal: they are admitted one after the other, first come first served."""
    line = settled(8, 8)
    first, second = line.reserve((4, 1)), line.reserve((4, 1))
    line.observe(4, 8, then=0.1)
    assert line.granted() == [first]
    line.observe(0, 8, then=0.1)
    assert line.granted() == [first, second]


def test_a_gang_whose_sum_is_above_the_limit_never_fits_and_is_told_which_part_asks_most() -> None:
    """Each of its parts alone would fit: the error says the sum, and the part."""
    line = settled(0, 8)
    request = line.reserve((1, 1), (4, 2))
    (refusal,) = refusals(effect for _, effect in line.log)
    assert (refusal.request, refusal.reason) == (request, "never-fits")
    assert refusal.detail == "the gang asks cpu=9 (4 x 2 by part 2), but quota compute allows 8 in all"
    assert refusal.never == ("compute", "cpu", 9 * ONE, 0, 8 * ONE)


def test_a_gang_with_a_member_that_never_fits_is_refused_for_that_member() -> None:
    """It asks more alone than the quota allows."""
    line = settled(0, 8)
    line.reserve((2, 9), (1, 1))
    (refusal,) = refusals(effect for _, effect in line.log)
    assert refusal.detail == "a member of part 1 asks cpu=9, but quota compute allows 8 in all"


def test_the_sum_under_a_quota_of_one_scope_names_the_part_that_asks_most_there() -> None:
    """The part with the larger amounts is not charged by that quota."""
    line = Timeline()
    line.observe(0, 100)
    line.observe(0, 3, quota="gold", selector=Selector([(True, frozenset({"gold"}))]))
    line.watching()
    line.later(1)
    parts = Parts([(Demand(amounts_of(10)), 5), (Demand(amounts_of(2), ["gold"]), 2)])
    line.controller.of(NS).reserve(Reservation("a", NS, parts), line.now)
    (refusal,) = refusals(line.advance())
    assert refusal.detail == "the gang asks cpu=4 (2 x 2 by part 2), but quota gold allows 3 in all"


def test_a_gang_that_waits_is_refused_when_the_quota_shrinks_below_its_sum() -> None:
    """Once that was so for ``never_confirm``: not sooner, and then by itself."""
    line = settled(8, 8, Policy(never_confirm=2))
    request = line.reserve((4, 2))
    line.observe(4, 7, then=1.9)
    assert state_of(request) == "waiting"
    line.later(0.2)
    assert state_of(request) == "over"
    assert [effect.reason for _, effect in line.log if isinstance(effect, Refusal)] == ["never-fits"]


def test_a_gang_outlives_a_quota_that_is_below_its_sum_for_a_moment() -> None:
    """Somebody edits the quota twice: each time counts by itself, and the gang is granted in the end."""
    line = settled(8, 8, Policy(never_confirm=2))
    request = line.reserve((4, 2))
    for _ in range(3):
        line.observe(4, 7, then=1.5)
        line.observe(8, 8, then=1.5)
    assert state_of(request) == "waiting"
    line.observe(0, 8, then=0.1)
    assert line.granted() == [request]


def test_a_cancelled_wait_leaves_nothing() -> None:
    """Neither a place in line nor anything reserved, and those behind it are admitted."""
    line = settled(6, 8, Policy(overtakes_max=0, overtaken_for_max=0))
    request = line.reserve((4, 1))
    behind = line.submit(1)
    assert state_of(behind) == "waiting"
    line.withdraw(request)
    assert (state_of(request), state_of(behind)) == ("over", "sent")
    assert (line.waiting(), line.reserved()) == (0, 0)


def test_a_gang_waits_no_longer_than_anybody() -> None:
    """``wait_max`` holds for it, too."""
    line = settled(8, 8, Policy(wait_max=30))
    request = line.reserve((4, 1))
    line.later(31)
    (refusal,) = refusals(effect for _, effect in line.log)
    assert (refusal.request, refusal.reason) == (request, "waited-too-long")


def test_one_more_gang_than_may_wait_is_refused() -> None:
    """A gang counts as one waiter; equal to one that waits or not."""
    line = settled(8, 8, Policy(waiters_max=1))
    line.reserve((4, 1))
    for members in ((4, 1.0), (3, 1.0)):
        line.reserve(members)
    assert [r.reason for r in refusals(effect for _, effect in line.log)] == ["too-many-waiting"] * 2


def test_parts_under_different_scopes_are_charged_where_each_belongs() -> None:
    """A quota for one scope class weighs only the members of that class."""
    line = Timeline()
    line.observe(0, 10)
    line.observe(0, 3, quota="gold", selector=Selector([(True, frozenset({"gold"}))]))
    line.watching()
    line.later(1)
    plain, gold = Demand(amounts_of(1)), Demand(amounts_of(1), ["gold"])
    fits = Reservation("a", NS, Parts([(plain, 5), (gold, 3)]))
    line.controller.of(fits.namespace).reserve(fits, line.now)
    line.advance()
    assert line.granted() == [fits]
    assert (line.reserved(), line.reserved(quota="gold")) == (8, 3)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], "a gang has 1 to 16 parts, not 0"),
        ([(Demand(amounts_of(1)), 1)] * 17, "a gang has 1 to 16 parts, not 17"),
        (
            [(Demand(amounts_of(1)), 1), (Demand(amounts_of(2)), 0)],
            r"part 2 \(cpu=2\) has 1 to 100000 .* not 0",
        ),
        ([(Demand({}), -1)], r"part 1 \(no charge\) has 1 to 100000 members"),
        ([(Demand(amounts_of(1)), True)], "not True"),
        ([(Demand(amounts_of(1)), 1.5)], r"not 1\.5"),
        ([(Parts([(Demand(amounts_of(1)), 1)]), 1)], "part 1 is a gang itself"),
    ],
)
def test_parts_that_make_no_sense_are_an_error_at_once(parts: list[tuple[Demand, int]], said: str) -> None:
    """It names the part, what it asks for and what is wrong."""
    with pytest.raises(GangError, match=said):
        Parts(parts)


def test_the_gang_has_no_such_part() -> None:
    """A draw of a part that is not there is an error."""
    gang = settled(0, 8).gang((1, 1))
    for part in (-1, 1):
        with pytest.raises(GangError, match="has 1 parts"):
            Draw("d", gang, part)

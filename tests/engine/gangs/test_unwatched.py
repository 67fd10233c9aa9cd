"""Gangs where quotas are not watched: a read takes the place of a probe; where none can be read, the policy decides."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Look, Policy, PolicyError
from tests.kit.timeline import NS, Timeline, refusals, state_of


def looks(line: Timeline) -> list[float]:
    """List when quotas were to be read."""
    return [at for at, effect in line.log if isinstance(effect, Look)]


def read(line: Timeline, used: float, limited: float) -> None:
    """Answer a read of the quotas that was sent a moment ago."""
    sent = line.now
    line.now += 0.005
    line.controller.observe_quota(NS, "compute", line.quota(used, limited), line.now, sent)
    line.looked(True)


def test_a_gang_waits_for_a_read_of_the_quotas() -> None:
    """Nothing is known: it is read at once, and the gang is granted if it fits."""
    line = Timeline()
    request = line.reserve((4, 1))
    assert state_of(request) == "waiting"
    assert looks(line) == [0]
    why = line.controller.explain(request, 0)
    assert why is not None
    assert why.reason == "first-contact"
    read(line, 4, 8)
    assert line.granted() == [request]


def test_a_gang_that_was_read_to_find_no_room_reads_again_at_the_pace_of_a_block() -> None:
    """With back-off from base to cap, never two reads at once; the first one that shows room lets it in."""
    line = Timeline(Policy(base=1, cap=8))
    request = line.reserve((4, 1))
    gaps = []
    for _ in range(6):
        read(line, 8, 8)
        before, at = len(looks(line)), line.now
        while len(looks(line)) == before:
            line.until(line.controller.next_deadline() or 0)
        assert len(looks(line)) == before + 1
        gaps.append(line.now - at)
    assert all(0 < gap <= 8 for gap in gaps)
    assert max(gaps[:2]) < 4 < max(gaps)
    read(line, 4, 8)
    line.later(0.1)
    assert line.granted() == [request]
    line.later(60)
    assert line.now - looks(line)[-1] >= 60


def test_a_read_in_vain_backs_off_though_the_one_before_let_a_gang_in() -> None:
    """Else the quotas would be read again at once, and again."""
    line = Timeline(Policy(base=1, cap=8))
    line.reserve((4, 1))
    read(line, 0, 8)
    line.later(20)
    line.reserve((8, 1))
    before = len(looks(line))
    read(line, 4, 8)
    line.later(0.4)
    assert len(looks(line)) == before
    line.later(2)
    assert len(looks(line)) > before


def test_old_facts_admit_no_gang() -> None:
    """A refusal or a read of a moment ago says there is room: the gang is weighed by a read of its own all the same."""
    line = Timeline()
    first = line.reserve((2, 1))
    read(line, 0, 8)
    assert line.granted() == [first]
    line.later(0.1)
    second = line.reserve((2, 1))
    assert state_of(second) == "waiting"
    assert len(looks(line)) == 2
    read(line, 7, 8)
    assert state_of(second) == "waiting"


def test_an_own_pod_that_ended_brings_the_next_read_forward() -> None:
    """It is a hint of room."""
    line = Timeline(Policy(base=20, cap=20))
    line.reserve((4, 1))
    read(line, 8, 8)
    line.controller.hint_release(NS, line.now)
    at = line.now
    line.until(at + 0.05)
    assert len(looks(line)) == 2


def test_a_read_that_failed_is_made_again_and_not_at_once() -> None:
    """It says nothing about the next."""
    line = Timeline(Policy(base=1, cap=8))
    line.reserve((4, 1))
    for _ in range(4):
        line.looked(None)
        line.later(8)
    assert 4 <= len(looks(line)) <= 5
    assert looks(line)[1] > 0


def test_a_read_that_nobody_ends_is_made_again() -> None:
    """After ``ticket_max`` its end is no longer expected."""
    line = Timeline(Policy(ticket_max=120))
    line.reserve((4, 1))
    line.later(119)
    assert len(looks(line)) == 1
    line.later(30)
    assert len(looks(line)) == 2


def test_where_a_watch_begins_the_gang_is_admitted_on_news() -> None:
    """No more reads, and never before the first list."""
    line = Timeline()
    request = line.reserve((4, 1))
    line.observe(8, 8)
    line.watching()
    line.looked(True)
    line.later(100)
    assert len(looks(line)) == 1
    assert state_of(request) == "waiting"
    line.observe(4, 8, then=0.1)
    assert line.granted() == [request]


def test_the_namespace_of_a_gang_that_waits_for_reads_is_one_to_watch() -> None:
    """As one with a block is."""
    line = Timeline()
    line.reserve((4, 1))
    assert line.controller.take_blocked() == [NS]


def test_one_by_one_sends_the_largest_first_and_the_next_after_its_answer() -> None:
    """The gang is granted, but said not to be whole; nothing is reserved."""
    line = Timeline(Policy(gang_blind="one_by_one"))
    request = line.reserve((2, 1), (1, 4))
    line.looked(False)
    gang = line.gang_of(request)
    assert not gang.whole
    small = line.draw(gang, 0)
    line.refused(line.ticket_of(small), 4, 4)
    other, large = line.draw(gang, 0), line.draw(gang, 1)
    assert [state_of(draw) for draw in (small, other, large)] == ["waiting"] * 3
    order = []
    for _ in range(3):
        ticket = line.next_ticket()
        order.append(ticket.request)
        assert sum(state_of(draw) == "sent" for draw in (small, other, large)) == 1
        line.created(ticket)
    assert order[0] is large
    assert gang.end == "complete"


def test_one_by_one_means_one_in_flight_also_where_nothing_is_known_to_be_full() -> None:
    """The namespace may have many creates in flight, and no quota has refused any."""
    line = Timeline(Policy(gang_blind="one_by_one"))
    for _ in range(4):
        line.created(line.ticket_of(line.submit(1)))
    request = line.reserve((3, 1))
    line.looked(False)
    gang = line.gang_of(request)
    draws = [line.draw(gang) for _ in range(3)]
    assert [state_of(draw) for draw in draws] == ["sent", "waiting", "waiting"]
    assert state_of(line.submit(1)) == "sent"  # others go meanwhile
    line.created(line.ticket_of(draws[0]))
    assert [state_of(draw) for draw in draws] == ["over", "sent", "waiting"]


def test_the_policy_knows_two_ways() -> None:
    """Another is an error that names them."""
    with pytest.raises(PolicyError, match='gang_blind must be "refuse" or "one_by_one", not'):
        Policy(gang_blind="hope")  # type: ignore[arg-type]


def test_a_draw_without_room_is_a_probe_where_nobody_reports_room() -> None:
    """Its gang lacks room by a read; at the pace of the block one member is sent to see."""
    line = Timeline(Policy(base=1, cap=8))
    request = line.reserve((4, 1))
    read(line, 4, 8)
    gang = line.gang_of(request)
    line.later(1)
    first = line.draw(gang)
    line.refused(line.ticket_of(first), 8, 8)
    others = [line.draw(gang) for _ in range(3)]
    ticket = line.next_ticket()
    assert ticket.probe
    assert ticket.request in (first, *others)
    assert sum(state_of(draw) == "sent" for draw in (first, *others)) == 1
    line.created(ticket)
    assert gang.drawn >= 1


def test_who_came_while_all_room_was_reserved_is_a_probe_once_the_gang_is_complete() -> None:
    """Before, the server would have stored it in the gang's room; after it, nobody else says that there is room."""
    line = Timeline(Policy(base=1, cap=8))
    request = line.reserve((4, 1))
    read(line, 4, 8)
    line.later(0.1)
    gang = line.gang_of(request)
    other = line.submit(1)
    for _ in range(4):
        assert state_of(other) == "waiting"
        line.store(gang)
    assert gang.end == "complete"
    line.later(8)
    assert line.ticket_of(other).probe


def test_reads_that_nobody_needed_for_long_begin_again_at_the_first_step() -> None:
    """The back-off of a crowded hour is forgotten, step by step, as that of a block."""
    line = Timeline(Policy(base=1, cap=8))
    request = line.reserve((4, 1))
    for _ in range(6):
        read(line, 8, 8)
        before = len(looks(line))
        while len(looks(line)) == before:
            line.until(line.controller.next_deadline() or 0)
    read(line, 8, 8)
    line.controller.of(request.namespace).withdraw(request, line.now)
    line.later(100)
    line.reserve((4, 1))
    read(line, 8, 8)
    line.later(2.1)
    assert looks(line)[-1] > line.now - 2.1


def test_a_read_lapses_so_long_after_it_was_asked_for_not_after_it_was_due() -> None:
    """Nobody needed it when it was due."""
    line = Timeline(Policy(base=8, cap=8, ticket_max=20))
    request = line.reserve((4, 1))
    read(line, 8, 8)
    line.later(0.01)
    line.controller.of(request.namespace).withdraw(request, line.now)
    line.later(11)
    second = line.reserve((4, 1))
    assert looks(line)[-1] == line.now
    line.later(19.9)
    read(line, 0, 8)
    line.later(0.01)
    assert line.granted() == [second]


def test_the_end_of_a_read_that_is_told_twice_counts_once() -> None:
    """The second is no news."""
    line = Timeline(Policy(base=1, cap=8))
    line.reserve((4, 1))
    line.controller.gangs_of(NS).looked(line.now, readable=None)
    line.controller.gangs_of(NS).looked(line.now, readable=None)
    line.looked(False)
    assert not refusals(effect for _, effect in line.log)


@pytest.mark.parametrize("late", [True, False, None])
def test_the_late_end_of_a_read_that_was_given_up_says_nothing_of_the_next(late: bool | None) -> None:
    """The next one has been read, and what it found settles: the gang is weighed by that."""
    line = Timeline(Policy(ticket_max=5))
    request = line.reserve((4, 1))
    while len(looks(line)) < 2:
        line.until(line.controller.next_deadline() or 0)
    read(line, 8, 8)
    line.later(4)
    read(line, 4, 8)
    line.looked(late)
    line.later(0.1)
    assert line.granted() == [request]


def test_a_standing_gang_goes_one_by_one_where_quotas_cannot_be_read() -> None:
    """Nothing tells what it lacks."""
    line = Timeline(Policy(gang_blind="one_by_one"))
    line.reserve((4, 1))
    line.looked(False)
    gang = line.gang_of(line.reserve((4, 1), standing=True))
    assert not gang.whole
    assert [state_of(line.draw(gang)) for _ in range(2)] == ["sent", "waiting"]


def test_a_read_whose_news_settle_for_longer_than_a_ticket_lasts_counts_all_the_same() -> None:
    """It lapses meanwhile; the gang is admitted once its room counts."""
    line = Timeline(Policy(settle_time=10, settle_max=10, ticket_max=1))
    line.controller.observe_quota(NS, "compute", line.quota(8, 8), line.now)
    line.later(1)
    request = line.reserve((4, 1))
    read(line, 0, 8)
    assert line.granted() == []
    line.later(30)
    assert line.granted() == [request]


def test_the_end_of_a_read_in_a_namespace_that_nobody_knows_is_no_error() -> None:
    """It was forgotten meanwhile."""
    line = Timeline()
    line.controller.gangs_of("nowhere").looked(line.now, readable=True)
    assert line.advance() == []

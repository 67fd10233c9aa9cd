"""What strangers take of a gang's room: its deficit, for which room is kept; no two halves wait for each other."""

from __future__ import annotations

from backoff_ctrl.engine import Policy, Ticket
from tests.kit.timeline import ONE, Timeline, refusals, settled, state_of


def lacks(line: Timeline) -> list[float]:
    """Return the deficit of each admitted gang, in CPUs, by their order in line."""
    gangs = line.seen().gangs
    return [sum(gang.lacks.values()) / ONE for gang in gangs]


def test_a_draw_is_sent_as_long_as_what_is_reserved_is_backed_by_room() -> None:
    """A stranger takes five of ten: five of the eight members go, three wait."""
    line, gang = settled(0, 10).with_gang((8, 1))
    line.observe(5, 10)
    draws = [line.draw(gang) for _ in range(8)]
    assert [state_of(draw) for draw in draws] == ["sent"] * 5 + ["waiting"] * 3
    assert lacks(line) == [3]
    why = line.why(draws[-1])
    assert (why.reason, why.quota, why.asked) == ("quota", "compute", ONE)


def test_room_that_comes_free_is_the_gangs_first() -> None:
    """A single create that waits behind it, and one that comes, get nothing before the gang has what it lacks."""
    line, gang = settled(0, 8).with_gang((8, 1))
    behind = line.submit(1)
    line.observe(5, 8)
    for _ in range(3):
        line.store(gang)
    line.observe(8, 8)
    assert lacks(line) == [5]
    for used in (7, 6):
        line.observe(used, 8, then=0.1)
        assert state_of(line.submit(1)) == state_of(behind) == "waiting"
    assert lacks(line) == [3]
    line.observe(3, 8, then=0.1)
    assert lacks(line) == [0] or not lacks(line)
    assert state_of(behind) == "waiting"
    for _ in range(5):
        line.store(gang)
    assert gang.end == "complete"
    assert not refusals(effect for _, effect in line.log)


def test_an_elder_for_whom_room_is_kept_goes_before_the_gangs_deficit() -> None:
    """Room is kept at the gang's place in line, not before it."""
    line = settled(4, 8, Policy(overtakes_max=1, overtaken_for_max=0))
    elder = line.submit(6)
    line.gang((4, 1))
    assert elder.overtaken == 1
    line.observe(6, 8)  # a stranger takes two
    line.later(0.01)
    assert lacks(line) == [2]
    line.observe(5, 8, then=0.01)
    assert lacks(line) == [2]
    line.observe(0, 8, then=0.1)
    assert state_of(elder) == "sent"
    assert lacks(line) == [2]


def test_keeping_for_a_gang_pauses_until_something_was_drawn() -> None:
    """Nothing grows for ``keep_stalled``: others pass. Once a member lives, room is kept for the rest all the time."""
    policy = Policy(keep_stalled=10)
    line = settled(0, 8, policy)
    line.gang((8, 1), limit=1000)
    line.observe(7, 8, then=11)
    line.observe(8, 8)
    line.observe(7, 8)  # no more room than there was
    line.later(0.1)
    small = line.submit(1)
    assert state_of(small) == "sent"

    line, gang = settled(0, 8, policy).with_gang((8, 1), limit=1000)
    line.store(gang)
    line.observe(7, 8, then=11)
    line.observe(8, 8)
    line.observe(7, 8, then=0.1)
    assert state_of(line.submit(1)) == "waiting"
    assert state_of(line.draw(gang)) == "sent"


def test_two_halves_never_wait_for_each_other() -> None:
    """Strangers leave room for five of eight: the elder gang gets all four of it, the younger waits for the rest."""
    line = settled(0, 8)
    elder, younger = line.gang((4, 1)), line.gang((4, 1))
    line.observe(3, 8)
    ours = [line.draw(younger), line.draw(elder)]
    assert lacks(line) == [0, 3]
    assert [state_of(draw) for draw in ours] == ["sent", "sent"]
    more = [line.draw(elder) for _ in range(3)]
    assert [state_of(draw) for draw in more] == ["sent"] * 3
    late = line.draw(younger)
    assert state_of(late) == "waiting"
    line.created(*[effect for _, effect in line.log if isinstance(effect, Ticket) and not effect.ended])
    assert elder.end == "complete"
    line.observe(8, 8)
    line.observe(5, 8, then=0.1)
    assert state_of(late) == "sent"


def test_an_elder_gang_that_comes_back_from_the_server_takes_from_the_younger() -> None:
    """A draw of the elder was not stored while strangers took the room: the younger one gives up what it had."""
    from backoff_ctrl.engine import Failed  # noqa: PLC0415 - used once

    line = settled(0, 8)
    elder, younger = line.gang((4, 1)), line.gang((4, 1))
    draw = line.draw(elder)
    line.observe(2, 8)
    line.settle(line.ticket_of(draw), Failed())
    line.later(0.01)
    assert lacks(line) == [0, 2]
    assert younger.deficits


def test_a_standing_gang_is_granted_without_waiting_and_lacks_what_there_is_not() -> None:
    """After a restart: what lives already needs the rest, room or not; it comes before those who wait."""
    line = settled(6, 8)
    request = line.reserve((4, 1), standing=True)
    gang = line.gang_of(request)
    line.later(0.01)
    assert lacks(line) == [2]
    assert state_of(line.submit(1)) == "waiting"
    assert [state_of(line.draw(gang)) for _ in range(3)] == ["sent", "sent", "waiting"]


def test_a_deficit_ends_with_the_gang() -> None:
    """What was kept for it is everybody's again."""
    line, gang = settled(0, 8).with_gang((8, 1))
    line.store(gang)
    line.observe(8, 8)
    waiting = line.submit(1)
    line.observe(7, 8, then=0.1)
    assert state_of(waiting) == "waiting"
    line.give_back(gang)
    assert state_of(waiting) == "sent"


def test_a_quota_that_grows_or_shrinks_or_goes_is_counted_afresh() -> None:
    """A change of structure recounts what is reserved, and loses nothing of it."""
    line = settled(0, 10)
    line.gang((4, 2))
    line.observe(0, 20)
    assert line.reserved() == 8
    line.controller.forget_quota("team-a", "compute", line.now)
    line.advance()
    line.observe(0, 12)
    assert line.reserved() == 8
    assert line.ceiling()["headroom"] == 4 * ONE
    line.observe(0, 6, then=0.01)
    assert (line.reserved(), lacks(line)) == (6, [2])


def test_once_the_younger_gang_has_given_up_all_the_older_one_gives_up_the_rest() -> None:
    """Strangers come one after the other; what comes free again is the older one's first."""
    line = settled(0, 8)
    line.gang((4, 1))
    line.gang((4, 1))
    for used, lacking in ((4, [0, 4]), (6, [2, 4]), (12, [4, 4]), (5, [1, 4]), (3, [0, 3])):
        line.observe(used, 8, then=0.1)
        assert lacks(line) == lacking


def test_a_draw_that_waits_for_its_gangs_room_is_overtaken_by_nobody() -> None:
    """What it lacks is kept for its gang, or not at all: it is no waiter with a count of its own."""
    line, gang = settled(0, 8, Policy(keep_stalled=10)).with_gang((4, 2), limit=1000)
    line.observe(7, 8)
    draw = line.draw(gang)
    line.later(15)
    line.observe(8, 8)
    line.observe(7, 8)  # no more room than there was: it stays everybody's
    line.later(0.1)
    assert state_of(line.submit(1)) == "sent"
    assert (state_of(draw), draw.overtaken) == ("waiting", 0)


def test_of_two_gangs_the_one_with_the_higher_priority_is_completed_though_it_was_admitted_later() -> None:
    """Who gives up is told by the place in line, as for all who wait."""
    line = settled(0, 8)
    low, high = line.gang((4, 1)), line.gang((4, 1), priority=1)
    line.observe(3, 8, then=0.01)
    assert [sum(gang.deficits.values()) / ONE for gang in (low, high)] == [3, 0]

"""Wakes on news: a recount of the quota controller may lack what was created a moment before; a charge is complete."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Demand, ObservedQuota, Selector, Ticket
from backoff_ctrl.engine.facts.entries import MISSED_FOR
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, amounts_of, tickets

ANSWER = 0.01
LAG = 1.5 * ANSWER
"""How long a recount is doubted, with answers that take so long."""


def report(line: Timeline, used: float, *, recounted: bool) -> list[Ticket]:
    """Report the quota of four, and who changed ``used`` last."""
    four, by = amounts_of(4), frozenset({"cpu"} if recounted else ())
    seen = ObservedQuota(four, four, amounts_of(used), Selector(), by)
    line.controller.observe_quota(NS, QUOTA, seen, line.now)
    return tickets(line.advance())


def full(created: int, cpu: float = 1, took: float = ANSWER) -> Timeline:
    """Return a watched quota of four that ``created`` creates of ours have just filled, with five more in line."""
    line = Timeline()
    report(line, 4 - created * cpu, recounted=False)
    line.watching()
    sent = [line.ticket_of(line.submit(cpu)) for _ in range(created)]
    line.crowd(5)
    line.later(took)
    report(line, 4, recounted=False)
    line.created(*sent)
    line.later(0.0025)
    assert line.waiting() == 5
    return line


@pytest.mark.parametrize(
    ("created", "falls_to", "at_once"),
    [
        pytest.param(2, 3, 0, id="perhaps one of ours is missed"),
        pytest.param(2, 2, 0, id="perhaps both are"),
        pytest.param(2, 1, 1, id="one more has ended, whatever is missed"),
        pytest.param(4, 0, 0, id="perhaps all are"),
    ],
)
def test_room_of_a_recount_is_doubted_as_far_as_it_may_lack_our_creates(
    created: int, falls_to: int, at_once: int
) -> None:
    """Room beyond that is used once it has settled, the rest once a recount cannot lack them any more."""
    line = full(created)
    answered_at = line.now - 0.0025
    report(line, falls_to, recounted=True)
    early = tickets(line.later(0.0025))
    late = tickets(line.until(answered_at + LAG - 0.0001))
    then = tickets(line.until(answered_at + LAG + 0.0001))

    assert (len(early), len(late), len(then)) == (at_once, 0, 4 - falls_to - at_once)


def test_room_that_the_next_recount_takes_back_was_never_given_away() -> None:
    """The next recount finds what the last one lacked, and nothing was admitted into that room."""
    line = full(3)
    report(line, 1, recounted=True)
    line.later(0.01)
    report(line, 4, recounted=True)

    assert tickets(line.later(1)) == []


def test_room_of_a_charge_counts_as_soon_as_it_has_settled() -> None:
    """Admission charges on top of the newest state: if ``used`` is lower then, something has ended."""
    line = full(3)
    report(line, 2, recounted=False)

    assert len(tickets(line.later(0.0025))) == 2


def test_older_creates_raise_no_doubt() -> None:
    """The controller has seen them by then."""
    line = full(3)
    line.later(LAG)
    report(line, 2, recounted=True)

    assert len(tickets(line.later(0.0025))) == 2


def test_a_large_create_raises_no_more_doubt_than_there_is_room() -> None:
    """Three at once may be missing, one is freed: that one is doubted, and counts later."""
    line = full(1, cpu=3)
    answered_at = line.now - 0.0025
    report(line, 3, recounted=True)

    assert line.controller.next_deadline() == pytest.approx(answered_at + LAG)  # nothing settles sooner
    assert line.later(0.0025) == []
    assert len(tickets(line.later(LAG))) == 1


def test_no_server_is_so_slow_that_a_recount_is_doubted_for_more_than_a_second() -> None:
    """Answers may take half a minute for other reasons, such as a webhook."""
    line = full(3, took=10.0)
    report(line, 2, recounted=True)

    assert tickets(line.later(MISSED_FOR - 0.01)) == []
    assert len(tickets(line.later(0.1))) == 2


def test_only_creates_of_the_same_ceiling_raise_doubt() -> None:
    """What has just been created asked for memory only: the room that a recount finds on cpu is room."""
    line = Timeline()

    def observe(cpu: int, memory: int) -> list[Ticket]:
        hard, used = dict.fromkeys(("cpu", "memory"), 4 * ONE), {"cpu": cpu * ONE, "memory": memory * ONE}
        seen = ObservedQuota(hard, hard, used, Selector(), frozenset({"cpu"}))
        line.controller.observe_quota(NS, QUOTA, seen, line.now)
        return tickets(line.advance())

    observe(4, 0)
    line.watching()
    line.submit(1)
    sent = [line.ticket_of(line.submit(demand=Demand({"memory": ONE}))) for _ in range(2)]
    line.later(ANSWER)
    observe(4, 2)
    line.created(*sent)
    line.later(0.0025)
    observe(3, 2)

    assert len(tickets(line.later(0.0025))) == 1

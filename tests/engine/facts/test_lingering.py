"""A create that ends while a recount is in doubt may be one that it lacked; only the next recount frees its room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine.facts.ceilings import Ceiling
from backoff_ctrl.engine.facts.entries import LINGERS_FOR, MISSED_FOR
from backoff_ctrl.engine.facts.living import SHORT, Living
from backoff_ctrl.engine.facts.quotas import Context, Quota, Settling
from tests.kit.followed import SETTLED, Followed, full
from tests.kit.timeline import NS, ONE, tickets

YOUNG = (SHORT + MISSED_FOR) / 2


def doubted(age: float = YOUNG) -> Followed:
    """A full quota with five in line; a recount has just lacked two of four creates, which are ``age`` seconds old."""
    line = full()
    line.later(age - SETTLED)
    assert line.count_again(2) == []
    return line


def test_a_create_that_ends_in_doubt_frees_no_room_before_the_next_recount() -> None:
    """The next recount finds it again if the controller has not seen its end."""
    line = doubted()
    for name in "abcd":
        assert line.end(name) == []
    assert line.cpu().used == 4 * ONE

    assert line.count_again(4) == []
    assert len(line.count_again(1)) == 3


def test_a_report_of_a_charge_frees_nothing() -> None:
    """Only a recount counts what exists."""
    line = doubted()
    line.end("c")
    line.end("d")
    line.observe(3, 4)

    assert tickets(line.later(SETTLED)) == []


def test_a_repeated_report_frees_nothing() -> None:
    """A list begun again, or a change of something else, repeats who wrote the amount last."""
    line = doubted()
    line.end("c")
    line.end("d")

    assert line.count_again(2) == []


def test_a_create_that_lingers_after_a_recount_has_its_own_time() -> None:
    """What the recount has ended is no reason to end it sooner."""
    living, ceiling = Living(followed=True), Ceiling("q", "cpu", 4, 0)
    for name in "abc":
        life = living.begin(name, 0.0)
        assert life is not None
        life.count(Quota("q", Context(Settling(), 1.0)), ((ceiling, 1),))
    living.end("a", 0.2)
    ceiling.observe(4, 1, recounted=True)
    assert (ceiling.lingers, ceiling.doubt) == (0, 1)
    living.end("b", 0.39)

    assert living.look([ceiling], 0.2 + LINGERS_FOR) is False
    assert (ceiling.lingers, living.look_at) == (1, 0.39 + LINGERS_FOR)
    assert living.look([ceiling], living.look_at) is True


def test_every_fall_counts_as_a_recount() -> None:
    """Objects without managedFields do not show who wrote them."""
    line = doubted()
    line.end("c")
    line.end("d")
    line.observe(1, 4)

    assert len(tickets(line.later(SETTLED))) == 2  # two live


def test_a_recount_that_lowers_the_doubt_admits_though_it_counts_more() -> None:
    """Creates it found again are used; those it did not find are room, once that has settled."""
    line = doubted()
    for name in "bcd":
        line.end(name)

    assert len(line.count_again(3)) == 1


def test_where_nothing_changes_a_create_lingers_only_for_a_moment() -> None:
    """A recount that finds what the last one found writes nothing."""
    line = doubted()
    line.end("c")
    line.later(LINGERS_FOR / 2)
    line.end("d")
    assert tickets(line.later(LINGERS_FOR / 2 - 0.001)) == []

    assert len(tickets(line.later(0.002))) == 2
    assert (line.cpu().used, line.cpu().held) == (2 * ONE, 2 * ONE)


@pytest.mark.parametrize("age", [SHORT, MISSED_FOR], ids=["as good as at once", "long ago"])
def test_a_create_that_no_recount_can_find_again_frees_room_at_once(age: float) -> None:
    """The controller sees begin and end of a short life at once; of a long one it had seen the begin."""
    line = doubted(age)

    assert len(line.end("c")) == 1


def test_on_a_slow_server_too_creates_linger() -> None:
    """Its controller sees begin and end of a life apart, however slow its answers: 46 creates too many were seen."""
    line = Followed()
    line.fill(answered_after=0.3)
    line.later(0.2)
    line.count_again(2)
    assert tickets(line.later(0.05)) == []  # room settles later on such a server

    assert line.end("c") == []


def test_a_look_is_due_when_a_create_has_lingered_long_enough() -> None:
    """With a doubt or without."""
    living, ceiling = Living(followed=True), Ceiling("q", "cpu", 4, 0)
    life = living.begin("a", 0.0)
    assert life is not None
    life.count(Quota("q", Context(Settling(), 1.0)), ((ceiling, 1),))
    living.look([ceiling], 0.0)
    living.end("a", 0.2)
    assert living.look_at == 0.2 + LINGERS_FOR
    assert living.look([ceiling], 0.2) is False
    assert living.look_at == 0.2 + LINGERS_FOR
    ceiling.observe(4, 1, recounted=False)
    assert ceiling.doubt == 0
    assert living.look([ceiling], 0.3) is False
    assert living.look_at == 0.2 + LINGERS_FOR

    assert living.look([ceiling], living.look_at) is True
    assert living.look_at == float("inf")


def test_a_refusal_with_less_used_than_lingers_is_doubted_too() -> None:
    """It gives the same count."""
    ceiling = Ceiling("q", "cpu", 4, 0)
    ceiling.live(2)
    ceiling.linger(2, 1.0)
    ceiling.learn(4, 1, 0.0)

    assert (ceiling.living, ceiling.lingers, ceiling.doubt, ceiling.room) == (2, 2, 1, 2)


def test_without_a_doubt_nothing_lingers() -> None:
    """A create that the last recount contains is not one it lacked: a report of a charge frees its room, too."""
    line = full()
    line.later(YOUNG)
    line.end("a")
    line.observe(3, 4)
    assert len(tickets(line.later(SETTLED))) == 1


def test_where_ends_are_no_longer_reported_nothing_lingers() -> None:
    """All that was known of lives and ends is forgotten."""
    line = full()
    line.later(YOUNG)
    assert line.count_again(0) == []
    for name in "abcd":
        assert line.end(name) == []
    line.controller.ends_told(NS, line.now, told=False)

    assert len(tickets(line.advance())) == 4


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["charge", "recount", "begin", "end", "linger", "leave", "limit", "refusal"]), st.integers(0, 9)
    ),
    max_size=30,
)


@given(CHANGES)
def test_the_amounts_of_a_ceiling_add_up(changes: list[tuple[str, int]]) -> None:
    """Every unit of the limit is used, held, doubted, settling or free."""
    ceiling = Ceiling("q", "cpu", 20, 2)
    alive = [3, 2, 1]
    ceiling.live(6)
    for what, amount in changes:
        left = ceiling.left
        if what == "charge":
            ceiling.observe(ceiling.limited, ceiling.used + amount, recounted=False)
        elif what == "recount":
            _, gained = ceiling.observe(ceiling.limited, amount, recounted=True)
            assert gained == ceiling.left - left
        elif what == "refusal":
            ceiling.learn(20, amount, 0.0)
        elif what == "limit":
            ceiling.observe(10 + amount, ceiling.used, recounted=False)
        elif what == "begin":
            alive.append(amount)
            ceiling.live(amount)
        elif what == "leave":
            ceiling.stop_lingering()
        elif alive:
            over = alive.pop()
            ceiling.live(-over) if what == "end" else ceiling.linger(over, 1.0)

        assert ceiling.limited == ceiling.charged + ceiling.room
        assert ceiling.doubt == max(0, sum(alive) + ceiling.lingers - ceiling.used)

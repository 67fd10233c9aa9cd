"""Law 8: what ends while a recount is in doubt may be what that lacked; only the next recount gives it back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine.ceilings import Ceiling
from backoff_ctrl.engine.living import LINGERS_MAX, SHORT, TRAILS_MAX, Living
from tests.followed import SETTLED, Followed, full
from tests.timeline import NS, ONE, QUOTA, tickets

YOUNG = (SHORT + TRAILS_MAX) / 2


def doubted(age: float = YOUNG) -> Followed:
    """A full quota with five in line, of which a recount has just lacked two of four, which are so old."""
    line = full()
    line.later(age - SETTLED)
    assert line.count_again(2) == []
    return line


def test_what_ends_in_doubt_is_no_room_until_the_next_recount() -> None:
    """That finds it again, if the controller has not heard of the end."""
    line = doubted()
    for name in "abcd":
        assert line.end(name) == []
    assert line.cpu().used == 4 * ONE

    assert line.count_again(4) == []
    assert len(line.count_again(1)) == 3


def test_news_of_charges_gives_nothing_back() -> None:
    """Only a recount looks at what is there."""
    line = doubted()
    line.end("c")
    line.end("d")
    line.observe(3, 4)

    assert tickets(line.later(SETTLED)) == []


def test_the_same_news_told_again_gives_nothing_back() -> None:
    """A list begun anew, or a change of something else: who wrote the amount last is no news."""
    line = doubted()
    line.end("c")
    line.end("d")

    assert line.count_again(2) == []


def test_what_lingers_after_a_recount_does_so_for_its_own_moment() -> None:
    """What that recount has ended is no reason to end it sooner."""
    living, ceiling = Living(told=True), Ceiling("q", "cpu", 4, 0)
    for name in "abc":
        life = living.begin(name, 0.0)
        assert life is not None
        life.count(((ceiling, 1),))
    living.end("a", 0.2)
    ceiling.observe(4, 1, recounted=True)
    assert (ceiling.lingers, ceiling.doubt) == (0, 1)
    living.end("b", 0.39)

    assert living.look([ceiling], 0.2 + LINGERS_MAX) is False
    assert (ceiling.lingers, living.look_at) == (1, 0.39 + LINGERS_MAX)
    assert living.look([ceiling], living.look_at) is True


def test_a_fall_is_a_recount_whoever_wrote_it() -> None:
    """Objects without managedFields do not tell."""
    line = doubted()
    line.end("c")
    line.end("d")
    line.observe(1, 4)

    assert len(tickets(line.later(SETTLED))) == 2  # two live


def test_a_recount_that_leaves_less_to_doubt_lets_somebody_in_though_it_counts_more() -> None:
    """What it found again is used; what it did not find is room, once that has settled."""
    line = doubted()
    for name in "bcd":
        line.end(name)

    assert len(line.count_again(3)) == 1


def test_where_nothing_changes_it_lingers_for_a_moment_only() -> None:
    """A recount that finds what the last one found writes nothing."""
    line = doubted()
    line.end("c")
    line.later(LINGERS_MAX / 2)
    line.end("d")
    assert tickets(line.later(LINGERS_MAX / 2 - 0.001)) == []

    assert len(tickets(line.later(0.002))) == 2
    assert (line.cpu().used, line.cpu().held) == (2 * ONE, 2 * ONE)


@pytest.mark.parametrize("age", [SHORT, TRAILS_MAX], ids=["as good as at once", "long ago"])
def test_what_no_recount_finds_again_makes_room_at_once(age: float) -> None:
    """Of a short life the controller hears all at once; a long one it had heard of."""
    line = doubted(age)

    assert len(line.end("c")) == 1


def test_on_a_slow_server_too_what_ends_in_doubt_is_waited_for() -> None:
    """Its controller hears of both ends of a life apart, however slow its answers: 46 creates too many were seen."""
    line = Followed()
    line.fill(answered_after=0.3)
    line.later(0.2)
    line.count_again(2)
    assert tickets(line.later(0.05)) == []  # news settles later on such a server

    assert line.end("c") == []


def test_whoever_looks_is_asked_to_when_it_has_lingered_for_long_enough() -> None:
    """With a doubt or without."""
    living, ceiling = Living(told=True), Ceiling("q", "cpu", 4, 0)
    life = living.begin("a", 0.0)
    assert life is not None
    life.count(((ceiling, 1),))
    living.look([ceiling], 0.0)
    living.end("a", 0.2)
    assert living.look_at == 0.2 + LINGERS_MAX
    assert living.look([ceiling], 0.2) is False
    assert living.look_at == 0.2 + LINGERS_MAX
    ceiling.observe(4, 1)
    assert ceiling.doubt == 0
    assert living.look([ceiling], 0.3) is False
    assert living.look_at == 0.2 + LINGERS_MAX

    assert living.look([ceiling], living.look_at) is True
    assert living.look_at == float("inf")


def test_a_refusal_that_says_less_than_lingers_is_doubted_too() -> None:
    """It speaks of the same count."""
    ceiling = Ceiling("q", "cpu", 4, 0)
    ceiling.live(2)
    ceiling.linger(2, 1.0)
    ceiling.believe(4, 1)

    assert (ceiling.living, ceiling.doubt, ceiling.room) == (0, 1, 2)


def test_without_a_doubt_nothing_lingers() -> None:
    """What the last recount contains it does not lack."""
    line = full()
    line.later(YOUNG)
    line.end("a")
    assert line.controller._handlers[NS].knowledge.quotas[QUOTA].ceilings["cpu"].lingers == 0
    assert len(line.count_again(3)) == 1


def test_where_ends_are_no_longer_told_nothing_lingers() -> None:
    """What was known of ends is forgotten as a whole."""
    line = full()
    line.later(YOUNG)
    assert line.count_again(0) == []
    for name in "abcd":
        assert line.end(name) == []
    line.controller.ends_told(NS, line.now, told=False)

    assert len(tickets(line.advance())) == 4


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["charge", "recount", "begin", "end", "linger", "leave", "limit", "refusal"]), st.integers(0, 9)
    ),
    max_size=30,
)


@given(DEEDS)
def test_the_books_of_a_ceiling_balance(deeds: list[tuple[str, int]]) -> None:
    """Nothing is lost or made of nothing: what is limited is used, held, doubted, settling or free."""
    ceiling = Ceiling("q", "cpu", 20, 2)
    alive = [3, 2, 1]
    ceiling.live(6)
    for what, amount in deeds:
        left, heard = ceiling.left, ceiling.heard
        if what == "charge":
            ceiling.observe(ceiling.limited, ceiling.heard + amount)
        elif what == "recount":
            freed = ceiling.observe(ceiling.limited, amount, recounted=True)
            assert ceiling.left - left <= freed  # else nobody would look at it
            if amount >= heard:
                assert freed == max(0, ceiling.left - left)
        elif what == "refusal":
            ceiling.believe(20, amount)
        elif what == "limit":
            ceiling.observe(10 + amount, ceiling.heard)
        elif what == "begin":
            alive.append(amount)
            ceiling.live(amount)
        elif what == "leave":
            ceiling.leave()
        elif alive:
            over = alive.pop()
            ceiling.live(-over) if what == "end" else ceiling.linger(over, 1.0)

        assert ceiling.limited == ceiling.heard + ceiling.held + ceiling.doubt + ceiling.unsettled + ceiling.room
        assert ceiling.doubt == max(0, sum(alive) + ceiling.lingers - ceiling.heard)
        assert ceiling.unsettled >= 0

"""Some random days of each kind, and what ``python -m tests.engine.days`` makes of many."""

from __future__ import annotations

from typing import Final

import pytest

from tests.engine.days.__main__ import main, show
from tests.engine.days.kinds import KINDS, Tally, at_most, cause_of

pytestmark = pytest.mark.no_cover

WORLDS, DAYS = 24, 300
"""``make days`` plays 2,000 of each kind, and a workflow 20,000 every night. A world takes as long as 20 other days."""
QUIET_DAYS: Final = (200, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_some_days_of_each_kind_break_no_bound(kind: str) -> None:
    """Where any fault ends the day, none of these does; else their faults are no more than usual."""
    tally = KINDS[kind].days(0, WORLDS if KINDS[kind].counted else DAYS)

    assert KINDS[kind].broken(tally) == []
    assert KINDS[kind].counted or not tally.failed
    assert tally.created > tally.days


@pytest.mark.long
def test_quiet_days_give_no_room_of_members_away() -> None:
    """No strangers, no cuts, no lies: all that the engine has to know it is told, some of it late."""
    tally = KINDS["quiet"].days(*QUIET_DAYS)

    assert tally.gave_away == 0


def test_two_days_of_a_seed_are_the_same() -> None:
    """So a fault that is found once is found again."""
    for kind in KINDS.values():
        one, two = kind.days(7, 3), kind.days(7, 3)
        one.seconds = two.seconds = 0.0
        assert one == two


def test_the_command_prints_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A row a kind."""
    assert main(["--seeds", "2", "--from", "5", "--kind", "usual", "--kind", "lying", "--jobs", "2"]) == 0

    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if "│" in line]
    assert [row[:3] for row in rows] == [["usual", "2", "0"], ["lying", "2", "0"]]


def test_a_broken_bound_is_named_and_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    """With its figures, the causes, and the first seeds of each."""
    tally = Tally(days=20_000, gave_away=40_000, failed={"gave away": list(range(7, 17))})

    assert show({"lying": tally}, shown=3) == 1

    printed = capsys.readouterr().out
    assert "10 days, gave away: 7, 8, 9, ..." in printed
    assert "worse than its bound: lying, gave away: 40000, at most" in printed


def test_what_the_engine_raises_in_a_world_is_an_error() -> None:
    """No bound permits it."""
    assert KINDS["lying"].broken(Tally(days=20_000, failed={"KeyError 'u1'": [3]})) == ["KeyError 'u1'"]


def test_few_days_may_be_worse_by_chance() -> None:
    """By three standard deviations of a count; of a bound of 0 none may."""
    assert at_most(20_000, 4) == 4 + 3 * 2
    assert at_most(0, 4) == 0


def test_causes_of_equal_days_are_equal() -> None:
    """The numbers of one day are no part of the cause; an assertion without a text is known by its line."""
    assert cause_of(AssertionError("more than fits of cpu: 3 live at 2.5")) == "more than fits of cpu"
    assert cause_of(AssertionError("wakes without end at 12.5")) == "wakes without end at N"
    with pytest.raises(AssertionError) as raised:
        raise AssertionError
    assert cause_of(raised.value) == "AssertionError at `raise AssertionError`"

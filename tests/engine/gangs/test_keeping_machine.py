"""Gangs that keep their room, on random days: ``tests.kit.keeping_day`` says what must hold at every moment.

More days, and those of other kinds: ``tests/engine/days``.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.adding_up import add_up
from tests.kit.examples import examples
from tests.kit.keeping_day import USUAL, Day, play, play_seed
from tests.kit.timeline import NS

pytestmark = pytest.mark.no_cover


@settings(max_examples=examples(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=False), steps=st.integers(5, 80))
def test_any_day(dice: random.Random, steps: int) -> None:
    """Found by hypothesis."""
    play(dice, steps)


@pytest.mark.parametrize("block", range(2))
def test_many_random_days_keep_every_room(block: int) -> None:
    """The same ones in every run."""
    for seed in range(block * 100, block * 100 + examples(100)):
        play_seed(seed)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            6100,
            id="a pod of a gang that is over leaves its charge unclaimed",
        ),
    ],
)
def test_days_that_failed_once(seed: int) -> None:
    """Each by a bug that is mended."""
    play_seed(seed)


class AddedUp(Day):
    """A day on which all sums are added up afresh at each step."""

    def check(self) -> None:
        """Add up what the engine counts, too."""
        super().check()
        add_up(self.line.controller, NS)


@pytest.mark.parametrize("block", range(2))
def test_on_random_days_each_sum_is_that_of_its_entries(block: int) -> None:
    """No term is left over, or taken twice."""
    for seed in range(block * 60, block * 60 + examples(60)):
        day = AddedUp(random.Random(seed), USUAL)
        for _ in range(30 + seed % 90):
            day.step()
        day.night()

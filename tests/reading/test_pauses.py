"""The pauses between tries: uniform(0, d), where d doubles with each failure in a row, up to the longest."""

from __future__ import annotations

import asyncio
from random import Random

from backoff_ctrl.k8s.kube.pauses import Pauses
from backoff_ctrl.k8s.lab.replay.virtual_time import run_virtual


class Longest(Random):
    """Draws the upper end of what it may."""

    def uniform(self, a: float, b: float) -> float:
        return b


async def waited(pauses: Pauses, at_least: float = 0.0) -> float:
    began = asyncio.get_running_loop().time()
    await pauses.after_failure(at_least)
    return round(asyncio.get_running_loop().time() - began, 6)


def test_pauses_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    async def main() -> list[float]:
        pauses = Pauses(0.1, 1.0, Longest())
        long = [await waited(pauses) for _ in range(6)]
        pauses.reset()
        return [*long, await waited(pauses)]

    assert run_virtual(main()) == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.1]


def test_a_pause_lasts_as_long_as_the_server_asks_for() -> None:
    async def main() -> list[float]:
        pauses = Pauses(0.1, 1.0, Longest())
        return [await waited(pauses, 5.0), await waited(pauses, 0.05)]

    assert run_virtual(main()) == [5.0, 0.2]


def test_pauses_of_many_are_spread_over_the_whole_time() -> None:
    async def main() -> list[float]:
        return [await waited(Pauses(8.0, 8.0)) for _ in range(400)]

    drawn = run_virtual(main())
    assert min(drawn) < 1.0
    assert 7.0 < max(drawn) <= 8.0

"""The gate on a real server: all of the demo's workload is created, with few refusals and no time lost."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import pytest

from tests.cluster.control_plane.servers import Server
from tests.cluster.gating.gated_workload import run_gated, slice_of_the_trace

pytestmark = pytest.mark.long

PODS = 400
SEED = 1  # the first of the seeds whose median ``make figures`` prints
LEARNING = 2.5  # refusals per pod
OBSERVING = 5 / 1000  # refusals per pod, rounded up to a whole refusal
LATER = 1.05  # makespan as a multiple of the reference's
FACTORS = (120.0, 40.0, 15.0)
"""Divisors of all durations, tried until a run meets the bars: in a slower run a slow server matters less."""


@pytest.mark.parametrize(
    ("user", "bar", "with_threads"),
    [
        pytest.param("learner", LEARNING, False, id="learning-async"),
        pytest.param("learner", LEARNING, True, id="learning-sync", marks=pytest.mark.scheduled),
        pytest.param("creator", OBSERVING, False, id="observing-async", marks=pytest.mark.scheduled),
        pytest.param("creator", OBSERVING, True, id="observing-sync", marks=pytest.mark.scheduled),
    ],
)
async def test_the_whole_workload_is_created(
    kubernetes: Server, say: Callable[[str], None], user: str, bar: float, with_threads: bool
) -> None:
    """Every pod exactly once, with at most the promised refusals, and about as early as with knowledge of the quota."""
    workload = slice_of_the_trace(PODS, SEED)
    missed: list[str] = []
    for factor in FACTORS:
        figures = await run_gated(kubernetes, user, workload, factor, with_threads=with_threads)
        line = figures.line(f"{user}, {'sync' if with_threads else 'async'}, {factor:.0f} times as fast")
        say(line)

        assert figures.stored == {pod.name: 1 for pod in workload.pods}
        assert figures.answers["201"] == PODS
        assert figures.failed_open == 0
        if figures.refused <= ceil(bar * PODS) and figures.makespan <= LATER * figures.reference:
            return
        missed.append(line)
    raise AssertionError("\n".join(["no run met the bars:", *missed]))

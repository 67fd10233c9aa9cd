"""The gate on a real server: the demo's workload gets in whole, with few refusals and no time lost."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import pytest

from tests.cluster.gating.gated_workload import run_gated, slice_of_the_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.control_plane.servers import Server

pytestmark = pytest.mark.long

PODS = 400
SEED = 1  # the first of those that ``make figures`` takes the median of
LEARNING = 2.5  # refusals per pod
OBSERVING = 5 / 1000  # rounded up to a whole refusal
LATER = 1.05  # of the reference's makespan
FACTORS = (120.0, 40.0, 15.0)
"""What durations are divided by, until a run meets the bars: a slow server's own time weighs less in a slower run."""


@pytest.mark.parametrize("with_threads", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("user", "bar"), [("learner", LEARNING), ("creator", OBSERVING)], ids=["learning", "observing"]
)
async def test_the_workload_gets_in_whole(
    kubernetes: Server, say: Callable[[str], None], user: str, bar: float, with_threads: bool
) -> None:
    """Every pod exactly once, within the refusals promised, and about as soon as one who knows the quota could."""
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
    raise AssertionError("\n".join(["all runs missed the bars:", *missed]))

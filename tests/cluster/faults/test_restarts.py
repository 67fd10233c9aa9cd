"""The API server restarts under gangs, creates and tasks that wait: what it denies at first ends none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.faults.restarts import restarted
from tests.cluster.faults.storm import hung_up

RESTARTS = 2
"""Room comes before the one, and during the other; ``python -m tests.cluster.faults.restarts`` has five."""


@pytest.mark.scheduled
@pytest.mark.long
async def test_none_that_waits_is_refused_by_a_server_that_restarts(binaries: Binaries, tmp_path: Path) -> None:
    """Each is the first that its user sends in its namespace, and users have their rights by roles."""
    with Bed(binaries, kcm_qps=500) as bed:
        told = await restarted(bed, tmp_path, RESTARTS)
        await hung_up()
    assert told.good, told

"""Callers that hang up around the send of their create and ask again: each gets its own object, none is made twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.faults.storm import hung_up
from tests.cluster.proxying.hang_ups import KINDS, hang_up

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane.servers import Server

CALLERS = 40
"""Of each kind; ``python -m tests.cluster.proxying.hang_ups`` runs 500."""


@pytest.mark.long
async def test_who_hangs_up_at_a_random_moment_and_asks_again_gets_his_own_object(
    kubernetes: Server, tmp_path: Path
) -> None:
    """Right after the request, within the time of an answer, while the proxy stands still, while the create is held."""
    told = [each async for each in hang_up(kubernetes, tmp_path, CALLERS, seed=1)]
    assert [each.kind for each in told] == [*KINDS]
    assert all(each.good for each in told), "\n".join(map(str, told))
    await hung_up()

"""Pools whose manager is killed with SIGKILL: the service's own count never passes a limit, and no token is left."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from .counted_jobs import Limits, killed_again_and_again

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_killed_manager_neither_loses_a_token_nor_gives_one_away_twice(tmp_path: Path) -> None:
    """The next one counts them anew from the store, where a job may run of which its predecessor heard nothing."""
    proof = await killed_again_and_again(tmp_path, tasks=60, projects=3, limits=Limits(6, 4, 3), kills=3)
    assert proof.jobs.passed == []
    assert proof.jobs.most == 6
    assert proof.phases == Counter({("Success", 0): 60})
    assert len(proof.jobs.jobs) == 60
    assert proof.left == {"tokens": "0"}
    assert proof.kills == 3

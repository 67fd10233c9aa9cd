"""kubectl and a client-go program at a full quota: nobody overtakes them as they pause, and no restart fails them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.proxying.newcomers import raced
from tests.cluster.proxying.restarting import restarted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane.binaries import Binaries
    from tests.cluster.control_plane.go_programs import GoPrograms
    from tests.cluster.control_plane.servers import Server


@pytest.mark.long
async def test_nobody_overtakes_who_pauses_as_told(kubernetes: Server, binaries: Binaries, tmp_path: Path) -> None:
    """Each pauses after every second; ``python -m tests.cluster.proxying.newcomers`` has more of them."""
    account = await raced(kubernetes, binaries.kubectl, tmp_path, hold=1.0, waiting=3, newcomers=5)
    assert len(account.went_in) == 8, account
    assert not account.failed, account
    assert len(account.overtakings) <= 1, f"one at the most, where the machine stands still for a second: {account}"


@pytest.mark.long
async def test_no_restart_fails_or_doubles_a_create(
    kubernetes: Server, binaries: Binaries, creators: GoPrograms, tmp_path: Path
) -> None:
    """``python -m tests.cluster.proxying.restarting`` has ten restarts."""
    account = await restarted(kubernetes, binaries.kubectl, tmp_path, times=2)
    assert account.good, account

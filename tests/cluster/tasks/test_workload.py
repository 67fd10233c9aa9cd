"""The trace as tasks of four types at once, on a real API server, with a manager that is killed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from backoff_ctrl.k8s.lab.replay.workload import make_workload, read_trace
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.tasks.workload.four_types import made_for
from tests.tasks.workload.running import run_workload

pytestmark = [pytest.mark.long, pytest.mark.scheduled]


async def test_all_succeed_and_none_is_made_twice(binaries: Binaries, tmp_path: Path) -> None:
    """40 tasks, two kills; what others make (Jobs' pods, an operator's) counts, too."""
    workload = make_workload(read_trace(), pods=40).faster(30)
    with Bed(binaries, kcm_qps=500) as bed:
        out = await run_workload(bed, workload, tmp_path, kills=2)
    assert out.phases == {"Success": 40}, out
    most = made_for(workload)  # the server does not count answers that nobody took, since the manager was killed
    assert all(most[kind] - 2 <= made <= most[kind] for kind, made in out.made.items()), out
    assert out.attempts == 0, out
    assert out.refused_by.total() - out.refused_operator - out.refused_jobs <= 2, out  # the manager's own

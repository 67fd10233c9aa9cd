"""The benchmark of `make wake` works: a short run of every part, on its own control plane."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.cluster.control_plane.binaries import Binaries

pytestmark = [pytest.mark.long, pytest.mark.scheduled]

ROOT = Path(__file__).parents[3]


async def test_a_quick_run_measures_everything(binaries: Binaries, tmp_path: Path) -> None:
    """All figures exist, for the gate and for the bare loop; waiting cost no calls."""
    out = tmp_path / "wake.json"
    command = [sys.executable, "-m", "benchmarks.wake", "--quick", "--only", "500", "--out", str(out)]
    ran = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    said, _ = await ran.communicate()

    assert ran.returncode == 0
    assert b"admissions that each need a release" in said
    found = {each["name"]: each["value"] for each in json.loads(out.read_text())["500"]["figures"]}
    for who in ("gate", "bare loop"):
        assert 0 <= found[f"wake latency at 10/s for 1 s, {who}, p50"] < 5000
        assert found[f"admissions that each need a release, {who}"] > 0
    assert found["50 waiting, nothing changes: calls"] == 0
    assert 0 <= found["wake latency of 3 releases at 10/s, where only pods may be watched, p50"] < 5000

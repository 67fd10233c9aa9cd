"""What test_builds.py runs: tests that need a build, before and behind one that needs none."""

from __future__ import annotations

from tests.cluster.control_plane.binaries import Binaries


def test_that_runs_kubectl(binaries: Binaries) -> None:
    """It is there."""
    assert binaries.kubectl.is_file()


def test_that_runs_nothing() -> None:
    """It needs no program."""

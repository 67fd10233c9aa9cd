"""Prometheus and promtool of the tests: found again once built, and never skipped in silence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.control_plane.go_programs import ProgramsError
from tests.kit.patience import PATIENCE
from tests.monitoring.prometheus.programs import PROMETHEUS

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("processes", ["0", "1"], ids=["in this process", "in workers"])
def test_without_its_programs_a_run_fails_and_says_so(tmp_path: Path, processes: str) -> None:
    """Not one test runs, the exit code is not 0, and the last words name what is missing and what runs without it."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "--no-cov", "-p", "no:cacheprovider"]
    environment = {**os.environ, "BACKOFF_TEST_PROMETHEUS": str(tmp_path)}
    done = subprocess.run(
        [*command, "tests/monitoring/test_alerts.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode in {pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.INTERRUPTED}, said
    if "cannot send to <Channel" not in said:  # xdist itself fails where its worker is gone before it is given tests
        assert f"BACKOFF_TEST_PROMETHEUS names a folder without {tmp_path}/promtool" in said
        assert "nothing was tested; `make test-quick` runs what needs no Prometheus" in said
    assert not re.search(r"\d (passed|skipped)", done.stdout)


def test_a_compiler_that_fails_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own words; nothing half-written is left."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        '#!/bin/sh\nif [ "$1" = version ]; then echo "go version go99.1.2"; exit; fi\necho "no room"; exit 1\n'
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BACKOFF_TEST_PROMETHEUS", raising=False)
    with pytest.raises(ProgramsError, match="promtool can't be built: `go build` says:\nno room"):
        PROMETHEUS.build(lambda _: None)
    assert [path.name for path in PROMETHEUS.folder.iterdir()] == [".lock"]

"""A run of tests leaves no process behind: not at its end, and not after Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE

ROOT = Path(__file__).parents[2]
SAMPLE = "tests/running/sample.py"
COMMAND = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "leaves", SAMPLE]

pytestmark = [
    pytest.mark.scheduled,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets one adopt orphans"),
]


@pytest.mark.parametrize("shared", ["-n0", "-n1"], ids=["alone", "shared"])
def test_ctrl_c_leaves_no_process(tmp_path: Path, shared: str) -> None:
    """Ctrl-C goes to the run's own processes, as a terminal sends it: servers in other sessions are ended as well."""
    code, said = interrupted(tmp_path / "note", shared)
    assert code == pytest.ExitCode.INTERRUPTED, said
    assert "left behind by the tests, and ended: " in said
    assert "sleep 600" in said


@pytest.mark.parametrize("shared", ["-n0", "-n1"], ids=["alone", "shared"])
def test_ctrl_c_does_not_wait_for_a_teardown_that_lasts(tmp_path: Path, shared: str) -> None:
    code, said = interrupted(tmp_path / "note", shared, BACKOFF_TEST_CLINGS="1")
    assert code != 0, said


def interrupted(note: Path, shared: str, **environment: str) -> tuple[int, str]:
    """Return how a run ended, and what it said, after Ctrl-C in a test that hangs; none of its processes lives."""
    given = {**os.environ, "BACKOFF_TEST_NOTE": str(note), "BACKOFF_TEST_HANGS": "1", **environment}
    with subprocess.Popen(
        [*COMMAND, shared], cwd=ROOT, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as run:  # fmt: skip
        pids = left_behind(note)
        os.killpg(run.pid, signal.SIGINT)
        said, _ = run.communicate(timeout=PATIENCE)
    assert not any(map(lives, pids))
    return run.returncode, said


def test_the_end_of_a_run_leaves_no_process(tmp_path: Path) -> None:
    """It is told which ones it had to end, and ends as it would have without them."""
    note = tmp_path / "note"
    environment = {**os.environ, "BACKOFF_TEST_NOTE": str(note)}
    done = subprocess.run(
        [*COMMAND, "-n0", "-W", "ignore"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert not any(map(lives, left_behind(note)))
    assert done.returncode == 0, done
    assert done.stderr.count("left behind by the tests, and ended: ") == 2


def left_behind(note: Path) -> list[int]:
    deadline = time.monotonic() + PATIENCE
    while not (note.exists() and len(note.read_text().split()) == 2):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [int(pid) for pid in note.read_text().split()]


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

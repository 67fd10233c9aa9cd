"""What failed beside other tests is run again alone: a test of a group, too, whose name pytest-xdist extends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pathlib
import pytest

pytestmark = pytest.mark.xdist_group("tests/of a group.py")

@pytest.mark.parametrize("address", ["a@b", "plain"])
def test_that_fails_once(address):
    seen = pathlib.Path(address)
    if not seen.exists():
        seen.touch()
        pytest.fail("not yet")

def test_without_parameters():
    test_that_fails_once("none")

def test_that_fails_always():
    assert not pathlib.Path("broken").exists()
"""


def run(folder: Path, *arguments: str) -> int:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode


@pytest.mark.scheduled
@pytest.mark.parametrize("broken", [False, True])
def test_a_test_of_a_group_is_run_again(tmp_path: Path, broken: bool) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_sample.py").write_text(TESTS)
    if broken:
        (tmp_path / "broken").touch()
    assert run(tmp_path, "pytest", "-n", "1", "--dist", "loadgroup") == pytest.ExitCode.TESTS_FAILED
    assert run(tmp_path, "tools.flaky") == (pytest.ExitCode.TESTS_FAILED if broken else pytest.ExitCode.OK)

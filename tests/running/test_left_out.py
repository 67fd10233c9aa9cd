"""A run says at its end which tests it left out, and what runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.left_out import REMEDIES

ROOT = Path(__file__).parents[2]
SAMPLE = "tests/running/sample.py"


@pytest.mark.scheduled
@pytest.mark.parametrize("shared", ["-n0", "-n2"])
def test_what_is_skipped_and_what_a_mark_leaves_out_is_named(tmp_path: Path, shared: str) -> None:
    """With its reason; where several processes share the tests, once."""
    place = tmp_path / "left-out.txt"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", shared, "-m", "not go", SAMPLE]
    done = subprocess.run(
        [*command, "--deselect", f"{SAMPLE}::test_that_leaves_a_server_behind"],
        cwd=ROOT,
        env={**os.environ, "BACKOFF_TEST_LEFT_OUT": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = (
        "not run:\n"
        f"  1 test: it needs {REMEDIES['go'][0]}: `make test-go` runs it\n"
        f"  1 test of {SAMPLE}: there is no moon tonight\n"
    )
    assert place.read_text() == expected, done
    assert expected in done.stdout

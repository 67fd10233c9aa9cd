"""docs/sandbox.md promises exactly what the conformance suite tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_page_matches_the_suite() -> None:
    """The page generated from the docstrings of tests/cluster equals the one in docs."""
    checked = subprocess.run(
        [sys.executable, "docs/sandbox_page.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_page_names_cases_that_run_on_both() -> None:
    """It has cases of each kind: plain HTTP, kubectl, informers."""
    page = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")

    for line in ("Get shows pods as a table.", "Informers see the same sequence.", "## What it does not promise"):
        assert line.removeprefix("#") in page

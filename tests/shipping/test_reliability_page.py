"""docs/reliability.md has a row for each tested fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_page_has_a_row_for_each_fault_and_no_other() -> None:
    """Each row has its test's words, and shows nothing created twice and no request left waiting."""
    checked = subprocess.run(
        [sys.executable, "docs/reliability_page.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_missing_row_is_named(tmp_path: Path) -> None:
    """Without the page, the check fails and names the fault."""
    copy = tmp_path / "docs"
    copy.mkdir()
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (copy / "reliability_page.py").write_text((ROOT / "docs" / "reliability_page.py").read_text())
    checked = subprocess.run(
        [sys.executable, "docs/reliability_page.py", "--check"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 1
    assert "no row for 'The API server is killed and started again'" in checked.stderr

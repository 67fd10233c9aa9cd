"""ARCHITECTURE.md shows what is there: the engine's tables, and every module of the engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "ARCHITECTURE.md"


def test_the_diagrams_are_those_of_the_tables() -> None:
    """Drawn anew from ``BLOCKS`` and ``REQUESTS`` they are the same."""
    checked = subprocess.run(
        [sys.executable, "docs/diagrams.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_map_names_every_module_of_the_engine() -> None:
    """A newcomer finds each of them in the table, and nothing that is gone."""
    table = PAGE.read_text(encoding="utf-8").split("## The engine, module by module")[1].split("## ")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {name.strip(" `") for cell in cells for name in cell.split(",")}
    modules = {path.stem for path in (ROOT / "backoff_ctrl" / "engine").glob("*.py")} - {"__init__"}

    assert named == modules

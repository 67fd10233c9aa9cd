"""ARCHITECTURE.md shows what is there: the engine's tables, and every module of the engine."""

from __future__ import annotations

import re
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


def test_the_table_of_rooms_has_a_line_for_every_folder_of_code() -> None:
    """A newcomer finds each of them there, and none that is gone."""
    rooms = PAGE.read_text(encoding="utf-8").split("## Rooms")[1].split("## ")[0]
    named = re.findall(r"^\| `([a-z0-9_/]+)/` \| \S", rooms, re.MULTILINE)
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for top in ("backoff_ctrl", "k8s", "api")
        for path in (ROOT / top).rglob("*.py")
    }
    assert sorted(named) == sorted(folders - {"k8s", "k8s/replay/clients"})

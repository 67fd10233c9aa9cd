"""ARCHITECTURE.md matches the code: its list of engine modules, its rooms and its walks."""

from __future__ import annotations

import re
from pathlib import Path

from tools.pages import walks

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "ARCHITECTURE.md"


def test_the_map_names_every_module_of_the_engine() -> None:
    """The table has every engine module, and none that no longer exists."""
    table = PAGE.read_text(encoding="utf-8").split("## The engine, module by module")[1].split("## ")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {name.strip(" `") for cell in cells for name in cell.split(",")}
    modules = {path.stem for path in (ROOT / "backoff_ctrl" / "engine").rglob("*.py")} - {"__init__"}

    assert named == modules


def test_the_table_of_rooms_has_a_line_for_every_folder_of_code() -> None:
    """A newcomer finds each of them there, and none that is gone."""
    doors = PAGE.read_text(encoding="utf-8").split("## Seven doors")[1].split("## ")[0]
    cells = re.findall(r"^\| (`[a-z0-9_/`, ]+/`) \| \S", doors, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([a-z0-9_/]+)/`", cell)]
    folders = {
        path.parent.relative_to(ROOT).as_posix()
        for top in ("backoff_ctrl", "k8s", "api")
        for path in (ROOT / top).rglob("*.py")
    }
    assert set(named) == folders


def test_the_page_has_five_walks() -> None:
    """Each is a trace (tools/pages/walks.py); `make pages` writes them, and a test of its own compares them."""
    assert [*walks.WALKS] == ["create", "sidecar", "task", "quota", "status"]
    text = PAGE.read_text(encoding="utf-8")
    for name in walks.WALKS:
        shown = text.split(f"<!-- table: walk-{name}")[1].split("<!-- end: ")[0]
        assert len(re.findall(r"`[a-z_]+`", shown)) > 10

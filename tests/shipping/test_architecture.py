"""ARCHITECTURE.md matches the code: its list of engine modules and its rooms; the walks stay short."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import calls

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.parametrize(
    ("walk", "functions", "modules"),
    [
        pytest.param(calls.free_create, 125, 29, id="create"),
        pytest.param(lambda: asyncio.run(calls.sidecar_create()), 310, 43, id="sidecar"),
        pytest.param(lambda: asyncio.run(calls.task_create()), 525, 60, id="task"),
        pytest.param(lambda: sum(asyncio.run(calls.job_let_in()), calls.Calls()), 910, 80, id="job"),
        pytest.param(lambda: asyncio.run(calls.admitting_event()), 160, 27, id="quota"),
        pytest.param(calls.status_request, 115, 21, id="status"),
    ],
)
def test_a_walk_stays_short(walk: Callable[[], calls.Calls], functions: int, modules: int) -> None:
    """A trace calls no more functions of ours, in no more modules: lower the bounds where a way gets shorter.

    Where two watches and an answer meet, their order is the machine's. The shortest of five traces counts.
    """
    called = walk()
    for _ in range(4):
        if called.total() > functions:
            called = min(called, walk(), key=calls.Calls.total)
    assert called.total() <= functions
    assert len({module for module, _ in called}) <= modules

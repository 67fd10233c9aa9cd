"""`make node` plays all that is in this folder, and no other target plays any of it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.node.__main__ import PARTS

HERE = Path(__file__)


def _modules() -> dict[str, ast.Module]:
    others = [each for each in HERE.parent.glob("test_*.py") if each != HERE]
    return {each.stem.removeprefix("test_"): ast.parse(each.read_text()) for each in others}


def test_each_module_is_a_part() -> None:
    assert sorted(_modules()) == sorted(PARTS)


def test_each_module_is_marked() -> None:
    for name, module in _modules().items():
        (marks,) = [ast.unparse(each.value) for each in module.body
                    if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark"]  # fmt: skip
        assert "pytest.mark.node" in marks, name


def _played(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.node", *arguments]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, cwd=HERE.parents[2], env=environment, capture_output=True, text=True, check=False)


def test_a_machine_that_cannot_have_a_node_is_told_why() -> None:
    """Here it lacks programs, and perhaps root; it must not pass for a run in which all went well."""
    done = _played(path="/nonexistent")
    assert done.returncode == 1
    assert done.stderr.startswith("make node can't run here, and nothing was played: ")
    assert any(word in done.stderr for word in ("apt-get install", "root", "Linux"))


def test_a_part_that_is_none_is_refused() -> None:
    done = _played("helmet", path=os.environ["PATH"])
    assert done.returncode == 2
    assert "readme, helm" in done.stderr

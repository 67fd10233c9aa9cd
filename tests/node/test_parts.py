"""`make node` plays all that is in this folder, and no other target plays any of it."""

from __future__ import annotations

import ast
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

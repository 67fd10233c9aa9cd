"""The amounts of a ceiling, and the entries behind them, have one writer each."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import backoff_ctrl.engine
from backoff_ctrl.engine.facts.ceilings import Ceiling
from backoff_ctrl.engine.facts.entries import Fall, Left, Pending, Rise
from backoff_ctrl.engine.gangs.gang import Gang

pytestmark = pytest.mark.no_cover

ENGINE = Path(backoff_ctrl.engine.__file__).parent
ELSEWHERE = {"seen", "members", "limited", "answered", "quota", "at", "gang", "life", "facts"}
"""Names that others have as well: ``handler.seen``, ``knowledge.members``. A review of their writers found none."""
OWNERS = {
    "facts/ceilings.py": set(Ceiling.__slots__) - ELSEWHERE,
    "gangs/gang.py": set(Gang.__slots__) & {"returning", "covered", "needs", "undrawn", "alive", "drawn"},
}
ENTRIES = {name for entry in (Pending, Rise, Left, Fall) for name in entry.__slots__} - ELSEWHERE


def written(path: Path) -> set[str]:
    """Return the attributes of other objects that a module assigns, as they are or by one of their items."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                inner = part.value if isinstance(part, ast.Subscript) else part
                if isinstance(inner, ast.Attribute) and not (
                    isinstance(inner.value, ast.Name) and inner.value.id == "self"
                ):
                    found.add(inner.attr)
    return found


@pytest.mark.parametrize("owner", OWNERS)
def test_no_other_module_writes_what_a_module_owns(owner: str) -> None:
    """``room`` is right if each sum is: it is computed where they are written."""
    for path in ENGINE.rglob("*.py"):
        if path != ENGINE / owner:
            assert not written(path) & OWNERS[owner], path


def test_entries_are_written_by_themselves_and_by_their_quota() -> None:
    """What an entry is about changes together with the sums of its ceilings."""
    writers = {str(path.relative_to(ENGINE)) for path in ENGINE.rglob("*.py") if written(path) & ENTRIES}
    assert writers <= {"facts/entries.py", "facts/quotas.py"}


def test_a_writer_is_seen(tmp_path: Path) -> None:
    """Plain, augmented, as one of several, and by an item."""
    module = tmp_path / "module.py"
    module.write_text("a.room = 1\nb.c.used += 2\nx, d.fresh = 3, 4\ngang.returning[e] = 5\nself.kept = 6\n")
    assert written(module) == {"room", "used", "fresh", "returning"}

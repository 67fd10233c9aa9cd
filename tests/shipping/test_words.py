"""tools/words.py: it counts prose, not code, names the worst lines, and fails above its ceiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools import words

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MODULE = '''"""Nobody is told of this.

Second line: whatever was said.
"""
nothing = said = "none"  # a name, and a string that is one
text = "somebody came, it said" if nothing else 'told "so"'
'''


def _checkout(root: Path, ceiling: float) -> None:
    """Write a checkout of one module and one page, 8 lines in all."""
    (root / "k8s" / "gate").mkdir(parents=True)
    (root / "k8s" / "gate" / "sample.py").write_text(MODULE)
    (root / "README.md").write_text("None is Python's. | none |\nFor whoever reads.\n")
    (root / "pyproject.toml").write_text(f"[tool.words]\nceiling = {ceiling}\n")


def test_prose_counts_and_code_does_not(tmp_path: Path) -> None:
    """Docstrings, comments and texts count; names, strings that are names and Python's None do not."""
    _checkout(tmp_path, 0)
    page, module = words.counted(tmp_path)
    assert [(page.name, page.lines, [each[:2] for each in page.hits])] == [("README.md", 2, [(2, ("whoever",))])]
    assert [each[:2] for each in module.hits] == [
        (1, ("nobody", "told")),
        (3, ("whatever", "said")),
        (6, ("somebody", "said", "told")),
    ]
    assert (module.name, module.words) == ("k8s/gate/sample.py", 7)
    assert words.per_thousand([page, module]) == 1000.0


def test_it_fails_above_the_ceiling_and_names_the_worst_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line with the most such words comes first."""
    _checkout(tmp_path, 999.9)
    assert words.main(["--root", str(tmp_path)]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("k8s/gate/sample.py:6: text = ")
    assert last == "1000.0 such words per 1,000 lines, the ceiling is 999.9: name the subject and the object"


def test_it_passes_at_the_ceiling_and_says_when_to_lower_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has the rate of each folder, the worst first."""
    _checkout(tmp_path, 1000.5)
    assert words.main(["--root", str(tmp_path), "--report", "--lines", "README"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1166.7     7 k8s/gate",
        " 500.0     1 .",
        "told 2, said 2, whoever 1, nobody 1, whatever 1, somebody 1",
        "README.md:2: For whoever reads.",
        "1000.0 such words per 1,000 lines: lower the ceiling, 1000.5",
    ]

"""Puts a generated table between two marks of a page, or says that the page is not current."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_table(page: Path, marks: tuple[str, str], table: str, script: str) -> int:
    """Write the page, or with ``--check`` compare it; return the exit code. ``marks``: the lines around the table."""
    start, end = marks
    present = page.read_text(encoding="utf-8")
    head, rest = present.split(start)
    wanted = f"{head}{start}{table}{end}{rest.split(end)[1]}"
    if "--check" not in sys.argv[1:]:
        page.write_text(wanted, encoding="utf-8")
    elif present != wanted:
        sys.stderr.write(f"docs/{page.name} is not current: run python {script}\n")
        return 1
    return 0

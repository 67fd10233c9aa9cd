"""Draws the state machines of ARCHITECTURE.md from the engine's tables: ``python docs/diagrams.py [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parent.parent))  # also where nothing is installed

from backoff_ctrl.engine.blocks import BLOCKS
from backoff_ctrl.engine.requests import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = Path(__file__).parent.parent / "ARCHITECTURE.md"
TABLES: Final[dict[str, tuple[Mapping[str, Mapping[str, str]], str]]] = {
    "blocks": (BLOCKS, "shut"),
    "requests": (REQUESTS, "new"),
}


def diagram(name: str) -> str:
    """Draw one table as a Mermaid state diagram."""
    table, first = TABLES[name]
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    for state, events in table.items():
        by_target: dict[str, list[str]] = {}
        for event, target in events.items():
            by_target.setdefault(target, []).append(event)
        lines += [f"    {state} --> {target}: {', '.join(found)}" for target, found in by_target.items()]
        if not events:
            lines.append(f"    {state} --> [*]")
    return "\n".join([*lines, "```"])


def drawn(page: str) -> str:
    """Return the page with every diagram drawn anew between its markers."""
    for name in TABLES:
        start, end = f"<!-- table: {name} -->\n", f"\n<!-- end: {name} -->"
        head, rest = page.split(start)
        _, tail = rest.split(end)
        page = f"{head}{start}{diagram(name)}{end}{tail}"
    return page


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    page = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        if drawn(page) != page:
            sys.stderr.write("ARCHITECTURE.md does not show the engine's tables: run python docs/diagrams.py\n")
            return 1
        return 0
    PAGE.write_text(drawn(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

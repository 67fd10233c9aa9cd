"""The examples of docs/clients.md, as code that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def example(title: str) -> dict[str, Any]:
    """Run the example below this heading; return what it defines."""
    text = PAGE.read_text("utf-8")
    found = re.search(rf"^### {title}\n+```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/clients.md has no example of {title}"
    defined: dict[str, Any] = {}
    exec(compile(found[1], f"docs/clients.md: {title}", "exec"), defined)
    return defined

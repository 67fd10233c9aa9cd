"""Write the table of values in the chart's README anew, from the comments of values.yaml; ``--check`` only compares.

A comment that begins with ``# --`` describes the value below it. A value without one is an error.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

import yaml

CHART: Final = Path(__file__).parents[1] / "helm" / "backoff-ctrl"
_TABLE: Final = re.compile(r"(<!-- values -->\n).*?(<!-- end: values -->)", re.DOTALL)
_SAID: Final = re.compile(r"^\s*# -- (.+)$")
_COLUMNS: Final = "| value | what it does | default |\n|---|---|---|\n"


def rows(text: str) -> list[tuple[str, str, str]]:
    """Return path, description and default of each value. Raises ``ValueError`` for one that is not described."""
    lines = text.splitlines()
    found: list[tuple[str, str, str]] = []

    def walk(node: yaml.MappingNode, path: str) -> None:
        for key, value in node.value:
            name = f"{path}{key.value}"
            said = _SAID.match(lines[key.start_mark.line - 1])
            if said:
                default = yaml.safe_load(yaml.serialize(value))
                found.append((name, said[1], json.dumps(default)))
            elif isinstance(value, yaml.MappingNode) and value.value:
                walk(value, f"{name}.")
            else:
                raise ValueError(f"{name} in values.yaml has no comment that begins with '# --' above it")

    document = yaml.compose(text)
    if not isinstance(document, yaml.MappingNode):
        raise TypeError("values.yaml must be a mapping")
    walk(document, "")
    return found


def page(readme: str, values: str) -> str:
    """Return the README with the table of these values."""
    table = "".join(f"| `{name}` | {_cell(said)} | `{_cell(default)}` |\n" for name, said, default in rows(values))
    return _TABLE.sub(lambda found: f"{found[1]}{_COLUMNS}{table}{found[2]}", readme)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write, or compare. Returns the exit code."""
    readme = CHART / "README.md"
    present = readme.read_text(encoding="utf-8")
    wanted = page(present, (CHART / "values.yaml").read_text(encoding="utf-8"))
    if "--check" not in sys.argv[1:]:
        readme.write_text(wanted, encoding="utf-8")
        return 0
    if present != wanted:
        sys.stderr.write(f"{readme.name} of the chart is not current: run python docs/chart_page.py\n")
    return int(present != wanted)


if __name__ == "__main__":
    sys.exit(main())

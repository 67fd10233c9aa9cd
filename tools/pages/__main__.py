"""Writes what is generated of the pages: ``python -m tools.pages [--check] [--faults]``.

``--check`` writes nothing and says what is not current. docs/reliability.md takes a run of `make faults` on a real
Kubernetes: it is written with ``--faults`` alone, and checked for what needs no run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from backoff_ctrl.k8s.tasks.cluster.schema import written

from . import reliability, sandbox, tables

ROOT: Final = Path(__file__).parents[2]
DEFINITION: Final = "helm/backoff-ctrl/files/tasks.yaml"
"""The chart's copy of the kind Task."""
WRITTEN: Final[Mapping[str, Callable[[str], str]]] = {
    **tables.PAGES, sandbox.PAGE: sandbox.page, DEFINITION: lambda _: written()
}  # fmt: skip
"""The pages, by their paths in the checkout: each is written from its present text."""


def main() -> int:
    """Do as the command line says. Returns the exit code."""
    reader = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__)
    reader.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is not current")
    reader.add_argument("--faults", action="store_true", help="write docs/reliability.md from the last `make faults`")
    asked = reader.parse_args()
    problems = []
    for name, page in WRITTEN.items():
        path = ROOT / name
        present = path.read_text(encoding="utf-8")
        wanted = page(present)
        if not asked.check:
            path.write_text(wanted, encoding="utf-8")
        elif wanted != present:
            problems.append(f"{name} is not current: run `make pages`")
    path = ROOT / reliability.PAGE
    if asked.faults and not asked.check:
        path.write_text(reliability.page(reliability.records()), encoding="utf-8")
    problems += reliability.wrong(path.read_text(encoding="utf-8"))
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

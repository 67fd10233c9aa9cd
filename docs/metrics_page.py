"""Writes the table of docs/metrics.md from the catalogue of metrics: ``python docs/metrics_page.py [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))  # also where nothing is installed

from backoff_ctrl.k8s.status.catalogue import METRICS, SERIES_MAX, Metric

PAGE: Final = Path(__file__).parent / "metrics.md"
START: Final = "<!-- table: metrics, written by docs/metrics_page.py -->\n"
END: Final = "<!-- end: metrics -->"


def row(metric: Metric) -> str:
    """Write one metric as a row of the table."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.unit} | {metric.help} |"


def table() -> str:
    """Write the table, and the default limit of series."""
    rows = ["| metric | type | labels | unit | meaning |", "|---|---|---|---|---|", *map(row, METRICS)]
    return "\n".join([*rows, "", f"At most {SERIES_MAX:,} series are exposed by default.", ""])


def main() -> int:
    """Write the page, or with --check say whether it is up to date."""
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(START)
    _, tail = rest.split(END)
    written = f"{head}{START}{table()}{END}{tail}"
    if "--check" in sys.argv[1:]:
        if written != page:
            sys.stderr.write("docs/metrics.md does not show the catalogue: run python docs/metrics_page.py\n")
            return 1
        return 0
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

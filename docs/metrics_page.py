"""Writes the table of docs/metrics.md from the catalogue of metrics: ``python docs/metrics_page.py [--check]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))  # also where nothing is installed

from backoff_ctrl.k8s.status.catalogue import METRICS, SERIES_MAX, Metric
from docs.tables import write_table

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


if __name__ == "__main__":
    sys.exit(write_table(PAGE, (START, END), table(), "docs/metrics_page.py"))

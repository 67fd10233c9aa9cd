"""Write the dashboards, the alerts and the recording rules, or check that they are current.

``python -m dashboards [--check] [--out FOLDER] [--grafana URL] [--runbooks URL]``. The files in this folder are those
for no particular Grafana: their alerts link to a dashboard by its path, and to a runbook by its place in docs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .files import files


def main() -> int:
    """Do as the command line says. Returns the exit code."""
    reader = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    reader.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    reader.add_argument("--out", type=Path, default=Path(__file__).parent, help="where to write")
    reader.add_argument("--grafana", default="", metavar="URL", help="where Grafana is, for the links of alerts")
    reader.add_argument("--runbooks", default="", metavar="URL", help="where docs/operations.md can be read")
    asked = reader.parse_args()
    stale = []
    for name, text in files(grafana=asked.grafana.rstrip("/"), runbooks=asked.runbooks).items():
        path = asked.out / name
        if asked.check:
            stale += [] if path.is_file() and path.read_text(encoding="utf-8") == text else [name]
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"{', '.join(stale)} in dashboards/ not current: run python -m dashboards\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

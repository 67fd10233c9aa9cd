"""The figures of the fault tests, kept for docs/reliability.md: one file per test, from its newest run."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.cluster.faults.storm import Account

FOLDER: Final = Path(__file__).parents[3] / "build" / "reliability"


def record(test: str, account: Account, *, recovery: float | None, noted: str = "") -> None:
    """Keep the figures of a test. ``recovery``: seconds from the end of the fault to the next successful create."""
    once = sum(1 for pods in account.stored.values() if pods == 1)
    figures = {
        "test": test,
        "creates": account.creates,
        "once": once,
        "twice": len(account.twice),
        "lost": len(account.lost),
        "forgotten": len(account.left_over),
        "recovery": recovery,
        "seconds": account.seconds,
        "sent": account.sent,
        "refused": dict(account.refused),
        "noted": noted,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{test}.json").write_text(json.dumps(figures, indent=1) + "\n")

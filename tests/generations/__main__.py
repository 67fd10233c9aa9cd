"""``make test-clients``: our tests of the gate on every minor version of the official clients.

Each version has a process of its own. ``tests/gating`` runs on all of them, and the gate on a real Kubernetes on three.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Final

from tests.generations.overlays import MINORS, OLDEST, Clients

GATING: Final = ("tests/gating", "-m", "not real")
REAL: Final = tuple(f"tests/cluster/gating/test_{name}.py" for name in ("gate_workload", "observers", "events"))
ON_REAL: Final = (OLDEST, MINORS[3], MINORS[5])
LAST_WORDS: Final = 60
"""Lines of a failed run that are shown."""


def main(chosen: list[str]) -> int:
    """Run them all, or those whose title has one of the words; print a line each and a table. Returns the exit code."""
    rows: list[tuple[str, str, str, str]] = []
    for clients in MINORS:
        if chosen and not any(word in clients.title for word in chosen):
            continue
        rows.append(_row(clients, "sandbox", *GATING))
        if clients in ON_REAL:
            rows.append(_row(clients, "Kubernetes", "-m", "real", *REAL))
    print("\n| clients | server | outcome | tests |\n|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    if not rows:
        print(f"no version is called {' or '.join(chosen)}", file=sys.stderr)
        return 2
    return 0 if all(outcome == "passed" for _, _, outcome, _ in rows) else 1


def _row(clients: Clients, server: str, *tests: str) -> tuple[str, str, str, str]:
    print(f"{clients.title}, on {server} ... ", end="", flush=True)
    began = time.monotonic()
    processes = str(2 * (os.cpu_count() or 1))
    try:
        done = clients.run_tests("-n", processes, "--dist", "loadgroup", *tests)
    except RuntimeError as error:  # of pip
        print(error, flush=True)
        return clients.title, server, "failed", "not installed"
    counted = [*re.finditer(r"^\d+ (?:passed|failed).*(?= in )", done.stdout, re.MULTILINE)]
    said = counted[-1][0] if counted else "nothing ran"
    print(f"{said} in {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode:
        print("\n".join([*done.stdout.splitlines()[-LAST_WORDS:], done.stderr]), flush=True)
    return clients.title, server, "failed" if done.returncode else "passed", said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``python -m tests.refusing``: what every command says to each fault, as a table in Markdown. It runs the tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.refusing.commands import commands

COLUMNS: Final = {
    "wrong kubeconfig": ("absent",),
    "wrong context": ("unknown_context",),
    "not an API server, or no gate": ("a web page", "gate: a web page"),
    "port in use": ("--listen in use", "--port in use", "--probe-listen in use", "--admin in use"),
    "no rights": ("no rights", "gate: no rights"),
}
"""The columns, by the faults of the tests that they show: the first one that a command knows."""


def table(said: dict[tuple[str, str], str]) -> str:
    """Return the sentences of all commands; "-": the command has no such fault."""
    lines = ["| command | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for command in commands():
        cells = [
            next((said[command.name, each] for each in faults if (command.name, each) in said), "-")
            for faults in COLUMNS.values()
        ]
        lines.append(" | ".join((f"| `{command.name}`", *map(_plain, cells))) + " |")
    return "\n".join(lines)


def _plain(said: str) -> str:
    """Return a sentence without the folders and ports of a run."""
    return re.sub(r"(127\.0\.0\.1:|port )\d{5}", r"\1PORT", re.sub(r"/\S*/test_[^/]*/", "", said)).replace("|", "/")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentences"
        tests = [sys.executable, "-m", "pytest", "tests/refusing", "--no-cov", "-q", *sys.argv[1:]]
        done = subprocess.run(
            tests, env={**os.environ, "BACKOFF_TEST_TABLE": str(file)}, stdout=sys.stderr, check=False
        )
        rows = [json.loads(each) for each in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    print(table({(command, fault): said.removeprefix("backoff-ctrl: ") for command, fault, said in rows}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

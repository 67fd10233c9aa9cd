"""Runs the tests again that the last run saw fail, alone: ``python -m tools.flaky``, as ``make test`` does.

Eight processes on four cores run tests that talk to real servers in real time, and a machine that is busy with other
work can fail one of them. Such a test counts as passed if it passes alone, but it is named: it is a defect, of the test
or of the product. More than ``FEW`` failures are never put down to the machine, and nothing is run again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import pytest

FEW: Final = 5
LAST_FAILED: Final = Path(".pytest_cache", "v", "cache", "lastfailed")


def main() -> int:
    """Return 0 if each of the few tests that failed passes alone."""
    failed = sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not failed:
        print("no test failed: look above for what else ended the run", file=sys.stderr)
        return 1
    if len(failed) > FEW:
        print(f"{len(failed)} tests failed: none of them is run again", file=sys.stderr)
        return 1
    print(f"\nrun again, alone: {', '.join(failed)}", file=sys.stderr, flush=True)
    result = pytest.main(["-n", "0", "-p", "no:cacheprovider", *failed])
    if result == pytest.ExitCode.OK:
        print("FLAKY, passed alone; please find out why they failed:", *failed, sep="\n  ", file=sys.stderr)
    return int(result)


if __name__ == "__main__":
    sys.exit(main())

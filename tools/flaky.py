"""Runs the tests again that the last run saw fail, alone: ``python -m tools.flaky``, as ``make test`` does.

Eight processes on four cores run tests that talk to real servers in real time, and a machine that is busy with other
work can fail one of them. Such a test counts as passed if it passes alone, but it is named: it is a defect, of the test
or of the product. More than ``FEW`` failures are never put down to the machine, and nothing is run again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

import pytest

FEW: Final = 5
LAST_FAILED: Final = Path(".pytest_cache", "v", "cache", "lastfailed")


def main() -> int:
    """Return 0 if each of the few tests that failed passes alone."""
    failed = sorted(map(_alone, json.loads(LAST_FAILED.read_text()))) if LAST_FAILED.exists() else []
    if not failed:
        _say("no test failed: look above for what else ended the run")
        return 1
    if len(failed) > FEW:
        _say(f"{len(failed)} tests failed: none of them is run again")
        return 1
    _say("run again, alone:", *failed)
    os.environ["BACKOFF_TEST_LEFT_OUT"] = os.devnull  # what the whole run left out is still to be printed
    result = pytest.main(["-n", "0", "-p", "no:cacheprovider", *failed])
    if result == pytest.ExitCode.OK:
        _say("FLAKY, passed alone; please find out why they failed:", *failed)
    return int(result)


def _alone(name: str) -> str:
    """Return the name of a test without that of its group, which pytest-xdist writes behind an ``@``."""
    test, _, group = name.rpartition("@")
    return name if not test or "]" in group else test


def _say(*lines: str) -> None:
    sys.stderr.write("\n  ".join(lines) + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())

"""Runs tests many times beside load, and counts: ``python -m tools.repeated --times 200 --load 2 TEST ...``.

What fails once in a hundred runs shows on a busy machine. The load is processes that do nothing but count, at a lower
priority, as many as ``--load`` says; they are ended with the run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUSY: Final = [sys.executable, "-c", "import os\nos.nice(5)\nwhile os.getppid() != 1: pass"]


class Repeated:
    """A plugin of pytest that runs each test so many times, and counts how each run ended."""

    def __init__(self, times: int) -> None:
        """Run each test so many times."""
        self._times = times
        self.passed = 0
        self.failed = 0

    @pytest.fixture(autouse=True)
    def run_of_many(self, request: pytest.FixtureRequest) -> int:
        """Return the number of this run."""
        return int(request.param)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test of each run."""
        metafunc.parametrize("run_of_many", range(self._times), indirect=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the run itself, and what fails before or after it."""
        self.passed += report.when == "call" and report.passed
        self.failed += report.failed


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep the machine busy with so many processes."""
    running = [subprocess.Popen(_BUSY) for _ in range(processes)]  # noqa: S603 - our own
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def main() -> int:
    """Return 0 if no run failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.repeated", description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--load", type=int, default=2)
    parser.add_argument("tests", nargs="+", help="what to run, and options of pytest")
    asked, options = parser.parse_known_args()
    runs = Repeated(asked.times)
    with load(asked.load):
        result = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *options, *asked.tests], plugins=[runs])
    sys.stdout.write(f"{runs.passed} runs passed, {runs.failed} failed, beside {asked.load} busy processes\n")
    return int(result)


if __name__ == "__main__":
    sys.exit(main())

"""Says at the end of a run which tests it left out, and why: those that were skipped, and those that `-m` left out.

The same lines go to ``build/left-out.txt``, which ``make test`` prints last.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

REMEDIES: Final[Mapping[str, tuple[str, str]]] = {
    "go": (
        "Helm, Prometheus, Kubernetes' own suite, programs on client-go, kubectl on both servers, wheel or image",
        "make test-go",
    ),
    "node": ("a node with real containers", "make node"),
    "scheduled": ("minutes", "make test-scheduled"),
    "real": ("a Kubernetes server", "make test"),
    "long": ("a second or more", "make test"),
}
"""What tests with a mark need, and what runs them; the first mark that a test has counts."""


class LeftOut:
    """The plugin of pytest, in each process; the one that shares the tests out adds up."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._marked: Counter[str] = Counter()
        self._skipped: Counter[tuple[str, str]] = Counter()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Count what `-m` leaves out; what `-k` leaves out, or a name, its caller knows."""
        if not self._config.option.markexpr:
            return
        for item in items:
            mark = next((each for each in REMEDIES if item.get_closest_marker(each)), None)
            if mark is not None:
                self._marked[mark] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
            file, _, reason = report.longrepr
            path = Path(file)
            place = path.relative_to(self._config.rootpath) if path.is_relative_to(self._config.rootpath) else path
            self._skipped[str(place), reason.removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take what a process of xdist has left out: all collect the same, so that one of them counts."""
        told = getattr(node, "workeroutput", {}).get("left_out")
        if told:
            self._marked = Counter(told)

    def pytest_sessionfinish(self) -> None:
        """In a process of xdist: tell the one that shares the tests out."""
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["left_out"] = dict(self._marked)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._config.option.collectonly:
            return
        lines = [f"{_tests(count)} {REMEDIES[mark][0]}: `{REMEDIES[mark][1]}` runs {_them(count)}"
                 for mark, count in self._marked.items()]  # fmt: skip
        lines += [
            f"{_tests(count, '')} of {place}: {reason}" for (place, reason), count in sorted(self._skipped.items())
        ]
        text = "\n  ".join(["not run:", *lines]) if lines else "every test was run"
        terminalreporter.write_line(text)
        place = Path(os.environ.get("BACKOFF_TEST_LEFT_OUT") or self._config.rootpath / "build" / "left-out.txt")
        place.parent.mkdir(exist_ok=True)
        place.write_text(text + "\n")


def _tests(count: int, verb: str = "need") -> str:
    if not verb:
        return "1 test" if count == 1 else f"{count} tests"
    return "1 test: it needs" if count == 1 else f"{count} tests: they need"


def _them(count: int) -> str:
    return "it" if count == 1 else "them"

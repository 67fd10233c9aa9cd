"""``--cpu-seconds`` prints what a run costs by folder: of its processes, and of all that they started and waited for.

Seconds of a processor compare between machines that are busy with other work; minutes do not. A server counts where it
ends: the one that a process has for the whole run, in a row of its own.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_COLLECTING, _SERVERS = "collecting, and between tests", "servers of the whole run"


class CpuSeconds:
    """The plugin of pytest, in each process; the one that shares the tests out adds up."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._last = 0.0

    def _count(self, what: str, fields: int = 4) -> None:
        """Count what was spent since the last call: by this process, and with 4 ``fields`` by what it waited for."""
        now = sum(os.times()[:fields])
        self._spent[what] += now - self._last
        self._last = now

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        self._count(_COLLECTING)
        result = yield
        place = "/".join(item.path.relative_to(self._config.rootpath).parts[: 3 if "cluster" in item.path.parts else 2])
        self._count(_SERVERS if nextitem is None else place)
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        shares_out = self._config.pluginmanager.hasplugin("dsession")
        self._count(_COLLECTING, 2 if shares_out else 4)  # the processes with which it shares count themselves
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["cpu_seconds"] = dict(self._spent)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        for what, seconds in getattr(node, "workeroutput", {}).get("cpu_seconds", {}).items():
            self._spent[what] += seconds

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("seconds of a processor")
        rows = sorted(self._spent.items(), key=lambda row: -row[1])
        for what, seconds in [*rows, ("in all", sum(self._spent.values()))]:
            terminalreporter.write_line(f"{seconds:8.0f}  {what}")

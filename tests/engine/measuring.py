"""Coverage of the engine by its own tests alone: all others run as fast as without it, which is twice as fast.

A line of the engine that only a test of something else happens to run is not tested, so it does not count. Searches
that run for seconds are marked `no_cover`: the examples beside them reach every branch.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from coverage import Coverage

import backoff_ctrl

if TYPE_CHECKING:
    from collections.abc import Generator

OWN: Final = Path(__file__).parent


class EngineCoverage:
    """Stops a bare ``--cov`` wherever no test of the engine runs; ``--cov=ANYTHING`` measures all, as ever."""

    _measuring: Any = None  # pytest-cov's controller

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """Measure the loading of the engine, which happens once, but not that of the tests."""
        plugin = session.config.pluginmanager.get_plugin("_cov")
        self._measuring = plugin.cov_controller if plugin and plugin.options.cov_source is None else None
        if self._measuring:
            for place in backoff_ctrl.__path__:
                for module in pkgutil.iter_modules([f"{place}/engine"], "backoff_ctrl.engine."):
                    importlib.import_module(module.name)
            self._pause()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure the engine's own tests; pytest-cov leaves out what is marked `no_cover`, and goes on after it."""
        if not self._measuring or OWN not in item.path.parents:
            return (yield)
        if not item.get_closest_marker("no_cover"):
            self._measuring.resume()
        try:
            return (yield)
        finally:
            self._pause()

    def _pause(self) -> None:
        """Stop it, and what it is stacked upon: in a process of pytest-xdist there are two, one of them unused."""
        self._measuring.pause()
        while running := Coverage.current():
            running.stop()

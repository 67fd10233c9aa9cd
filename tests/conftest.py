"""Profiles of the property tests: the same examples everywhere, more of them on demand; reports always written."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.engine.measuring import EngineCoverage

if TYPE_CHECKING:
    from collections.abc import Generator

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's `&` has it ignored, by what tests start as well
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A property that fails must fail again: examples are derived from the test, not from the clock.
settings.register_profile(
    "default", max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=20)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=5_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    """Let `--cov` measure the engine's own tests."""
    config.pluginmanager.register(EngineCoverage())


gc.disable()  # until all is collected: to look for garbage then costs a third as much as collecting


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Where several processes share the tests: one of them runs all that share a fixture of their module.

    What is `long` is spread over the first half, groups first: begun last, each would run on alone, and side by side
    they would all wait at the same time.
    """
    for item in items:
        if isinstance(item, pytest.Function) and "module" in _scopes(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    yield
    long = [item for item in items if item.get_closest_marker("long")]
    short = [item for item in items if not item.get_closest_marker("long")]
    long.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
    apart = len(short) // (2 * len(long)) if long else 0
    items.clear()
    for item in long:
        items += [item, *short[:apart]]
        del short[:apart]
    items += short


def _scopes(item: pytest.Function) -> set[str]:
    """Return how long each of a test's fixtures lives."""
    return {each[-1].scope for each in item._fixtureinfo.name2fixturedefs.values()}


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and thousands of collected tests: they stay until the end."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let nothing be collected while a report is written: a task that dies there logs a traceback of its own.

    To write a traceback Python parses source, and some CPythons fail on parsing within parsing: a SystemError that
    ends the run without a word of the tests that failed (https://github.com/python/cpython/issues/106905).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def _a_ledger_per_server() -> Generator[None]:
    """Forget the ledgers that the process shared: the port of an ended sandbox comes again, with another cluster."""
    yield
    process = sys.modules.get("backoff_ctrl.k8s.sharing.process")
    if process is not None:
        process.forget_unused()

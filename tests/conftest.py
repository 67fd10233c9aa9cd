"""Profiles of the property tests: the same examples everywhere, more of them on demand; reports always written."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import reaching
from tests.building import Building
from tests.engine.measuring import EngineCoverage
from tests.farewells import Loop, use_everywhere

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Generator, Mapping

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
    """Let `--cov` measure the engine's own tests, and build what the others run."""
    config.pluginmanager.register(EngineCoverage())
    config.pluginmanager.register(Building(config), "building")
    config.pluginmanager.register(reaching, "reaching")
    use_everywhere()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"farewells": Loop}


gc.disable()  # until all is collected: to look for garbage then costs a third as much as collecting


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Where several processes share the tests: one of them runs all that share a fixture of their module.

    What needs no program that is not built yet goes first, and the rest in the order in which programs are built.
    """
    building = config.pluginmanager.get_plugin("building")
    assert isinstance(building, Building)
    for item in items:
        if isinstance(item, pytest.Function) and "module" in _scopes(item):
            after = building.after(item)
            item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{after}" if after else item.path.stem))
    yield
    turns: dict[int, list[pytest.Item]] = {}
    for item in items:
        turns.setdefault(building.after(item), []).append(item)
    items[:] = [item for _, some in sorted(turns.items()) for item in _spread(some)]


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spread what is `long` over the first half, groups first.

    Begun last, each would run on alone, and side by side they would all wait at the same time.
    """
    long = [item for item in items if item.get_closest_marker("long")]
    short = [item for item in items if not item.get_closest_marker("long")]
    long.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
    apart = len(short) // (2 * len(long)) if long else 0
    spread: list[pytest.Item] = []
    for number, item in enumerate(long):
        spread += [item, *short[number * apart : (number + 1) * apart]]
    return spread + short[len(long) * apart :]


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

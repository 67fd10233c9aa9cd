"""Profiles of the property tests: the same examples everywhere, more of them on demand; reports always written."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.engine.measuring import EngineCoverage
from tests.kit import reaching
from tests.kit.building import Building, asks_for_kubernetes
from tests.kit.cpu_seconds import CpuSeconds
from tests.kit.farewells import Loop, use_everywhere
from tests.kit.left_out import LeftOut
from tests.kit.survivors import go_on_in_a_child

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-seconds", action="store_true", help="print what the run costs, by folder")


def pytest_configure(config: pytest.Config) -> None:
    """Let `--cov` measure the engine's own tests, build what the others run, and leave no process behind."""
    if not (hasattr(config, "workerinput") or config.option.collectonly or config.option.usepdb):
        go_on_in_a_child()
    config.pluginmanager.register(EngineCoverage())
    config.pluginmanager.register(Building(config), "building")
    config.pluginmanager.register(reaching, "reaching")
    config.pluginmanager.register(LeftOut(config), "left-out")
    if config.option.cpu_seconds:
        config.pluginmanager.register(CpuSeconds(config), "cpu-seconds")
    use_everywhere()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"farewells": Loop}


gc.disable()  # until all is collected: to look for garbage then costs a third as much as collecting


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Where several processes share the tests: one of them runs all that share a fixture of their module.

    Every second process alone starts a Kubernetes server for the whole run: each costs a core some seconds to start,
    and again for each kind that is defined on it.

    What needs no program that is not built yet goes first, and the rest in the order in which programs are built.
    """
    building = config.pluginmanager.get_plugin("building")
    assert isinstance(building, Building)
    for item in items:
        if group := _group(item, config.rootpath):
            after = building.after(item)
            item.add_marker(pytest.mark.xdist_group(f"{group}-{after}" if after else group))
    yield
    _check_groups(config, items)
    turns: dict[int, list[pytest.Item]] = {}
    for item in items:
        turns.setdefault(building.after(item), []).append(item)
    items[:] = [item for _, some in sorted(turns.items()) for item in _spread(some)]


def _group(item: pytest.Item, root: Path) -> str:
    """Name what a test shares with others; nothing, if it may run anywhere."""
    if not isinstance(item, pytest.Function):
        return ""
    place = item.path.relative_to(root).as_posix()
    if asks_for_kubernetes(item):
        servers = max(1, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) // 2)
        return f"kubernetes-{crc32(place.encode()) % servers}"
    return place if "module" in _scopes(item) else ""


def _check_groups(config: pytest.Config, items: list[pytest.Item]) -> None:
    """End a run whose groups fall apart: each of their tests would start the module's servers anew.

    pytest-xdist reads a group from the end of a test's name, which it writes into a private attribute of pytest's.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    lost = [each.nodeid for each in items if each.get_closest_marker("xdist_group") and "@" not in each.nodeid]
    if lost:
        pytest.exit(f"pytest {pytest.__version__} and pytest-xdist lose the groups of {len(lost)} tests", returncode=3)


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
    process = sys.modules.get("backoff_ctrl.k8s.gate.sharing.process")
    if process is not None:
        process.forget_unused()

"""Prometheus and promtool for the tests that ask them; such a test is `real`."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import pytest

from tests.monitoring.prometheus.programs import Programs, ProgramsError, build, wanted

WHY_NOT = pytest.StashKey[str]()
"""Why there is no Prometheus."""


def _needs_programs(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "programs" in item.fixturenames


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs these programs as `real`, before `-m` looks at the marks."""
    for item in items:
        if _needs_programs(item):
            item.add_marker("real")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the selected tests need, here where no test's time limit runs; end the run where that fails."""
    if session.config.option.collectonly or not any(_needs_programs(item) for item in session.items):
        return
    capture = session.config.pluginmanager.get_plugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(f"\n{line}", end="", file=sys.stderr, flush=True)  # noqa: T201

    try:
        build(wanted(), say)
    except ProgramsError as error:
        reason = f"{error}\n(nothing was tested; `make test-quick` runs what needs no Prometheus)"
        if not hasattr(session.config, "workerinput"):
            pytest.exit(reason, returncode=pytest.ExitCode.INTERNAL_ERROR)
        session.config.stash[WHY_NOT] = reason  # a worker of xdist that exits here is a riddle


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Let a worker of xdist that can't have its programs run nothing: it says why, and ends the whole run."""
    if why := session.config.stash.get(WHY_NOT, ""):
        session.shouldstop = why
        return True
    return None


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Return Prometheus and promtool."""
    return wanted()

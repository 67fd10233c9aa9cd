"""Prometheus and promtool for the tests that ask them; such a test is `real`."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms, ProgramsPlugin
from tests.monitoring.prometheus.programs import PROMETHEUS

_PLUGIN = ProgramsPlugin(PROMETHEUS, "programs")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs these programs as `real`."""
    _PLUGIN.mark(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build them before the first test."""
    _PLUGIN.build(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run nothing where they can't be had."""
    return _PLUGIN.runs_nothing(session)


@pytest.fixture(scope="session")
def programs() -> GoPrograms:
    """Return Prometheus and promtool."""
    return PROMETHEUS

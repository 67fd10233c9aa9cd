"""Prometheus and promtool for the tests that ask them; such a test is `real`."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms, ProgramsPlugin
from tests.monitoring.prometheus.programs import PROMETHEUS


def pytest_configure(config: pytest.Config) -> None:
    """Mark what runs these programs as `real`, and build before the first test."""
    config.pluginmanager.register(ProgramsPlugin(PROMETHEUS, "programs"))


@pytest.fixture(scope="session")
def programs() -> GoPrograms:
    """Return Prometheus and promtool."""
    return PROMETHEUS

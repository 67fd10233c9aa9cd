"""Prometheus and promtool for the tests that ask them; such a test is `real`."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms
from tests.monitoring.prometheus.programs import PROMETHEUS


@pytest.fixture(scope="session")
def programs() -> GoPrograms:
    """Return Prometheus and promtool."""
    return PROMETHEUS

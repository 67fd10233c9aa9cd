"""Helm for the tests that run it; such a test is `real`."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms, ProgramsPlugin
from tests.cluster.shipping.helm.programs import HELM


def pytest_configure(config: pytest.Config) -> None:
    """Mark what runs helm as `real`, and build before the first test."""
    config.pluginmanager.register(ProgramsPlugin(HELM, "helm_program"))


@pytest.fixture(scope="session")
def helm_program() -> GoPrograms:
    """Helm, built."""
    return HELM

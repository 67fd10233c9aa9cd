"""Helm for the tests that run it; such a test is `real`."""

from __future__ import annotations

from typing import Final

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms, ProgramsPlugin
from tests.cluster.shipping.helm.programs import HELM

_PLUGIN: Final = ProgramsPlugin(HELM, "helm_program")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs helm as `real`."""
    _PLUGIN.mark(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build it before the first test."""
    _PLUGIN.build(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run nothing where it can't be had."""
    return _PLUGIN.runs_nothing(session)


@pytest.fixture(scope="session")
def helm_program() -> GoPrograms:
    """Helm, built."""
    return HELM

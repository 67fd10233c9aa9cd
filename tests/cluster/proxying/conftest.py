"""Go programs for the tests that run them through the proxy; such a test is `real`."""

from __future__ import annotations

from typing import Final

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms, ProgramsPlugin
from tests.cluster.proxying.conformance.suite import SUITE
from tests.cluster.proxying.programs.creators import CREATORS

_PLUGINS: Final = (ProgramsPlugin(CREATORS, "creators"), ProgramsPlugin(SUITE, "conformance"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs these programs as `real`."""
    for each in _PLUGINS:
        each.mark(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build them before the first test."""
    for each in _PLUGINS:
        each.build(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run nothing where they can't be had."""
    return next((True for each in _PLUGINS if each.runs_nothing(session)), None)


@pytest.fixture(scope="session")
def creators() -> GoPrograms:
    """Return the client-go program, the operator and the kubelet."""
    return CREATORS


@pytest.fixture(scope="session")
def conformance() -> GoPrograms:
    """Return Kubernetes' own end-to-end suite."""
    return SUITE

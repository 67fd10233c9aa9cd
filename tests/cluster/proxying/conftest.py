"""Go programs for the tests that run them through the proxy; such a test is `real`."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.proxying.conformance.suite import SUITE
from tests.cluster.proxying.programs.creators import CREATORS


@pytest.fixture(scope="session")
def creators() -> GoPrograms:
    """Return the client-go program, the operator and the kubelet."""
    return CREATORS


@pytest.fixture(scope="session")
def conformance() -> GoPrograms:
    return SUITE

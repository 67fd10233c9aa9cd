"""What test_reaching.py looks at: tests that run a program which nothing builds for them."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane import binaries as control_plane
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.shipping.helm.programs import HELM


class Shell:
    """A helper that finds kubectl by itself."""

    def __init__(self) -> None:
        self.command = [wanted().kubectl]


def shell() -> Shell:
    return Shell()


def test_on_the_sandbox(sandbox: Server) -> None:
    """It runs kubectl on the sandbox."""
    assert sandbox.kind == "sandbox"
    assert wanted().kubectl.is_file()


def through_a_module() -> bool:
    return control_plane.wanted().kubectl.is_file()


def with_another_set() -> bool:
    return HELM.path("helm").is_file()


def at_run_time(request: pytest.FixtureRequest) -> object:
    return request.getfixturevalue("binaries")

"""The user of a node that ``make node`` has started; and the list of what was played, at the end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.release import installed
from tests.node.user import User


@pytest.fixture(scope="session")
def user() -> User:
    folder = os.environ.get("BACKOFF_TEST_NODE")
    assert folder, "these tests need a node: `make node` starts one and runs them"
    return User(Path(folder))


@pytest.fixture(scope="session")
def release(user: User) -> None:
    """The chart with operator and page besides injection."""
    installed(user, "operator", "serve")


@pytest.fixture
def namespace(user: User, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, gone when it ends."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:50].strip("-")
    user.kubectl("create", "namespace", name)
    user.until(f"the account of namespace {name}", lambda: user.find("serviceaccount", "default", name))
    yield name
    user.kubectl("delete", "namespace", name, "--wait=false")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    played = [each for each in terminalreporter.getreports("passed") if each.when == "call"]
    told = [(dict(each.user_properties).get("played"), each.duration) for each in played]
    lines = [f"{seconds:6.0f} s  {what}" for what, seconds in told if what]
    if lines:
        terminalreporter.write_line("\n  ".join(["played on a real node:", *lines]))


@pytest.fixture(autouse=True)
def _played(request: pytest.FixtureRequest, record_property: Any) -> None:
    """Have the first sentence of a test's docstring, with its parameters, in the list."""
    if not request.node.get_closest_marker("node"):
        return
    what = (request.function.__doc__ or request.node.name).splitlines()[0]
    given = request.node.name.partition("[")[2].removesuffix("]")
    part = request.path.stem.removeprefix("test_")
    record_property("played", f"{part}: {what} ({given})" if given else f"{part}: {what}")

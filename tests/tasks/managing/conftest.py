"""A sandbox with a namespace, and a manager of small plugins on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox
from tests.tasks.bench import Bench


@pytest.fixture
def sandbox() -> Iterator[BackgroundSandbox]:
    """An API server with a namespace ``team`` that has no quota yet."""
    with running_sandbox(seed=3) as running:
        running.create_namespace("team")
        yield running


@pytest.fixture
async def bench(sandbox: BackgroundSandbox) -> AsyncIterator[Bench]:
    """A manager on it, and plain requests beside."""
    async with Bench(sandbox.url) as bench:
        yield bench

"""A sandbox for each test, and a plain HTTP session with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from backoff_ctrl.k8s.lab.sandbox import Sandbox
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A fresh server with the namespace ``team``; watchers see every change at once."""
    async with Sandbox(seed=7, late_events=0) as running:
        running.create_namespace("team")
        yield running


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with the sandbox's URL as its base."""
    async with aiohttp.ClientSession(sandbox.url, timeout=aiohttp.ClientTimeout(total=PATIENCE)) as made:
        yield made

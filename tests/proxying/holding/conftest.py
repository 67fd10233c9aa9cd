"""Virtual time: a test of minutes takes a moment, and nothing but its own doing changes anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from backoff_ctrl.k8s.lab.replay.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop}

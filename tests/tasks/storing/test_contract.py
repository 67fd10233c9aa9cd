"""The store in a file keeps the contract of all stores; that in an API server: ``tests/cluster/tasks``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import Store
from tests.tasks.store_contract import CONTRACT


@pytest.mark.parametrize("promise", CONTRACT, ids=lambda each: each.__name__)
async def test_the_file_keeps(tmp_path: Path, promise: Callable[[Store, Store, str], Awaitable[None]]) -> None:
    """With two processes at the same file."""
    async with SqliteStore(tmp_path / "t.db") as here, SqliteStore(tmp_path / "t.db") as there:
        await promise(here, there, "team")

"""Runs a reconciler over a real store and the small cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.reconciler import Reconciler
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import Stored, Wish
from tests.tasks.reconciling.small_cluster import SmallCluster, SmallManager
from tests.tasks.tasks_written import until

CONFIG = K8sPluginConfig()


@asynccontextmanager
async def reconciling(
    store: SqliteStore, cluster: SmallCluster, *, clock: Callable[[], float] | None = None, **more: Any
) -> AsyncIterator[Reconciler]:
    """Carry out until the end of the block; each attempt is looked at again and again, as if there were news."""
    more |= {} if clock is None else {"clock": clock}
    reconciler = Reconciler(store, SmallManager(cluster), lambda: CONFIG, rng=random.Random(1), **more)
    work = asyncio.create_task(reconciler.run())
    waking = asyncio.create_task(news(reconciler))
    try:
        yield reconciler
    finally:
        for each in (work, waking):
            each.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def news(reconciler: Reconciler) -> None:
    while True:
        for task in reconciler.tasks():
            if task.status.plugin_state is not None:
                reconciler.wake((task.uid, task.status.attempt))
        await asyncio.sleep(0.002)


async def all_over(store: SqliteStore) -> list[Stored]:
    """Wait until nothing is unfinished; return all tasks."""

    async def over() -> bool:
        return not await store.list(unfinished=True)

    await until(over)
    return await store.list(limit=100_000)


async def carried_out(file: Path, cluster: SmallCluster, wishes: Sequence[Wish]) -> dict[str, Stored]:
    """Create these tasks, and carry them out to their ends."""
    async with SqliteStore(file) as store:
        await store.create(wishes)
        async with reconciling(store, cluster):
            return {task.name: task for task in await all_over(store)}

"""What is followed can be forgotten by somebody else before its end was told here: that ends the waiting for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from backoff_ctrl.api.commands.tasks.running import Run
from backoff_ctrl.api.commands.tasks.showing import View
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.tasks.documents import item
from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.platform import Platform
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.tasks.tasks_written import NAMESPACE, wish


async def test_a_task_that_is_forgotten_is_followed_no_longer(tmp_path: Path) -> None:
    """It ended and was deleted between two looks."""
    running = Run(tmp_path / "t.db", find_place("http://127.0.0.1:9", None, None, None), Platform(None))
    async with SqliteStore(tmp_path / "t.db") as store:
        ((task, _),) = await store.create([wish()])
        since = await store.revision()
        running.items[task.uid] = item(task)
        await store.set_status(task.uid, 0, TaskStatus(phase="Success"), open_=False)
        await store.delete(NAMESPACE, "train")
        async with asyncio.timeout(10):
            await running._show(store, since, View())
    assert not running.items[task.uid].unfinished

"""Tasks as tests write them; and waiting until a store says something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.store import Wish

NAMESPACE = "team"


def manifest(name: str = "train", **spec: Any) -> dict[str, Any]:
    """A task of one container, as YAML gives it."""
    container = {"image": "busybox", "command": ["true"]}
    return {
        "apiVersion": "backoff-ctrl.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "container", "container": container, **spec},
    }


def wish(name: str = "train", **spec: Any) -> Wish:
    """What the store is given for a task that is written like this."""
    return wish_of(read_task(manifest(name, **spec)))


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - it may be written by another process
            await asyncio.sleep(0.01)

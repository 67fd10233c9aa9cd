"""Tasks as tests write them; and waiting until a store says something."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.store import Wish
from tests.kit.patience import PATIENCE, pause_after

NAMESPACE = "team"
WITHOUT_CONTAINER = {
    "sleep",
    "signal",
    "job",
    "jobset",
    "pod",
    "sidecar",
    "dask",
    "mpi",
    "pytorch",
    "ray",
    "spark",
    "tensorflow",
}


def manifest(name: str = "train", **spec: Any) -> dict[str, Any]:
    """A task of one container, as YAML gives it, or of what ``spec`` says."""
    reads = spec.get("type", "container") not in WITHOUT_CONTAINER
    container = {"image": "busybox", "command": ["true"]} if reads else None
    return {
        "apiVersion": "backoff-ctrl.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"type": "container", "container": container, **spec},
    }


def wish(name: str = "train", **spec: Any) -> Wish:
    """What the store is given for a task that is written like this."""
    return wish_of(read_task(manifest(name, **spec)))


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while True:
            begun = time.monotonic()
            if await holds():
                return
            await asyncio.sleep(pause_after(time.monotonic() - begun))

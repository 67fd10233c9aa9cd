"""What tasks in flight cost: a quota for half of them, all pods running or waiting; the sandbox is another process."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
import tracemalloc
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubernetes.client import Configuration

from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins
from tests.kit.watch_script import until
from tests.tasks.sandbox_process import sandbox_process
from tests.tasks.tasks_written import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLED: Final = 3.0
"""Seconds in which nothing is to happen, before anything is measured."""
ROUNDS: Final = 5
QUOTA: Final = """
apiVersion: v1
kind: ResourceQuota
metadata: {{name: q, namespace: team}}
spec: {{hard: {{pods: "{pods}"}}}}
"""


async def in_flight(count: int) -> dict[str, float]:
    """Return CPU microseconds a step, reads of the API server and writes of the store a step, and bytes a task."""
    config = K8sPluginConfig()
    wishes = [wish_of(read_task(manifest(f"t{number}"))) for number in range(count)]
    with tempfile.TemporaryDirectory() as folder, sandbox(Path(folder), count // 2) as url:
        make = through_plugins(registry(), Configuration(host=url))
        async with SqliteStore(Path(folder) / "t.db") as store:
            manager = Manager(store, make, lambda: config)
            work = asyncio.create_task(manager.run())
            await until(lambda: manager.reconciler is not None)
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            await store.create(wishes)
            halves = {"Running": count // 2, "WaitingForResources": count - count // 2}
            await until(lambda: manager.reconciler is not None and manager.reconciler.phases() == halves)
            await asyncio.sleep(SETTLED)
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before) / count
            tracemalloc.stop()
            found = await measured(manager, url, count)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    return {"tasks": count, **found, "bytes_per_task": each}


async def measured(manager: Manager, url: str, count: int) -> dict[str, float]:
    """Wake all tasks several times, and see what that costs here and at the server."""
    reconciler = manager.reconciler
    assert reconciler is not None
    reads = gets(url)
    writes, steps, begun = reconciler.counts.writes, reconciler.counts.steps, time.process_time()
    for _ in range(ROUNDS):
        target = reconciler.counts.steps + count
        for task in reconciler.tasks():
            reconciler.wake((task.uid, task.status.attempt))
        await until(lambda target=target: reconciler.counts.steps >= target)  # type: ignore[misc]
    taken, made = time.process_time() - begun, reconciler.counts.steps - steps
    return {
        "us_per_step": 1e6 * taken / made,
        "reads_per_step": (gets(url) - reads) / made,
        "writes_per_step": (reconciler.counts.writes - writes) / made,
    }


def gets(url: str) -> int:
    """Return how many objects and lists the sandbox was asked for."""
    with urllib.request.urlopen(f"{url}/sandbox/counters", timeout=10) as answer:
        requests = json.load(answer)["requests"]
    return int(requests.get("get", 0)) + int(requests.get("list", 0))


@contextmanager
def sandbox(folder: Path, pods: int) -> Iterator[str]:
    """Run the sandbox, whose pods run until they are deleted."""
    quota = folder / "quota.yaml"
    quota.write_text(QUOTA.format(pods=pods), encoding="utf-8")
    with sandbox_process(folder, "sandbox", "--port", "0", "--quota-file", str(quota)) as url:
        yield url

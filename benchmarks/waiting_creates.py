"""What a create that waits at a gated client costs in memory. Prints a JSON object; ``bench.py`` runs it.

Arguments: ``threads``, ``async_req`` or ``asyncio``, and how many creates wait.

Creates wait under a full quota of the embedded API server, one way at a time: blocking in threads, with ``async_req``,
and on asyncio. ``tracemalloc`` counts every block of memory that lives once they all wait. The gate's part are the
blocks allocated in our code; the client's own part are its copies of the body and its arguments,
the caller's task or thread object included. A thread's stack is in neither: that is the caller's choice.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubernetes import client
from kubernetes.aio import client as aio

import backoff_ctrl
from backoff_ctrl.k8s.gate.aio import AsyncGate, Gate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.lab.sandbox.cluster import running_sandbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.gate.any_gate import AnyGate

WARM = 50
"""Creates that wait before the count begins: the first of a process fills caches."""
FRAMES = 16
SPEC = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}
POD: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}, "spec": SPEC}
OURS = f"{Path(backoff_ctrl.__file__).parent}/"
SANDBOX = f"{OURS}k8s/lab/sandbox/"


def until_waiting(gate: AnyGate, count: int) -> None:
    """Return once so many creates wait; one of them may be testing for room."""
    while gate.counts.waiting < count - 1:
        time.sleep(0.05)


def blocks() -> tuple[int, int]:
    """Return the bytes of living blocks allocated since the first call: the client's, the gate's."""
    gc.collect()
    if not tracemalloc.is_tracing():  # only now: it slows down imports a hundredfold
        tracemalloc.start(FRAMES)
    found = {"gate": 0, "client": 0}
    for each in tracemalloc.take_snapshot().statistics("traceback"):
        files = [frame.filename for frame in each.traceback]
        if not any(name.startswith(SANDBOX) for name in files):
            found[whose(files)] += each.size
    return found["client"], found["gate"]


def whose(files: list[str]) -> str:
    """Say whose call it was, by the files of a traceback, innermost last. The standard library works for its caller."""
    for name in reversed(files):
        if name.startswith(OURS):
            return "gate"
        if "site-packages" in name:
            break
    return "client"


def cost(before: tuple[int, int], count: int) -> dict[str, float]:
    """Return the growth since ``before`` for each create."""
    theirs, ours = (after - earlier for after, earlier in zip(blocks(), before, strict=True))
    return {"gate": ours / count, "client": theirs / count}


def on_threads(url: str, creates: int, *, async_req: bool) -> dict[str, float]:
    """Measure the client for threads. Without ``async_req`` each create blocks a thread of its own."""
    api = GatedApiClient(client.Configuration(host=url), gate=Gate())
    core: Any = client.CoreV1Api(api)
    results: list[Any] = []
    threads: list[threading.Thread] = []

    def one() -> None:
        try:
            core.create_namespaced_pod("team", POD)
        except Exception:  # noqa: BLE001 - cancelled at the end
            return

    def start(count: int) -> None:
        for _ in range(count):
            if async_req:
                results.append(core.create_namespaced_pod("team", POD, async_req=True))
            else:
                threads.append(threading.Thread(target=one, daemon=True))
                threads[-1].start()
        until_waiting(api.gate, len(results) + len(threads))

    start(WARM)
    before = blocks()
    start(creates)
    found = cost(before, creates)
    api.close()
    for thread in threads:
        thread.join()
    return found


def on_asyncio(url: str, creates: int) -> dict[str, float]:
    """Measure the client for asyncio: one task for each create."""

    async def run() -> dict[str, float]:
        async with AsyncGatedApiClient(aio.Configuration(host=url), gate=AsyncGate()) as api:
            core: Any = aio.CoreV1Api(api)
            tasks: list[asyncio.Future[Any]] = []

            async def start(count: int) -> None:
                tasks.extend(asyncio.ensure_future(core.create_namespaced_pod("team", POD)) for _ in range(count))
                await asyncio.to_thread(until_waiting, api.gate, len(tasks))

            await start(WARM)
            before = blocks()
            await start(creates)
            found = cost(before, creates)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return found

    return asyncio.run(run())


WAYS: dict[str, Callable[[str, int], dict[str, float]]] = {
    "threads": lambda url, creates: on_threads(url, creates, async_req=False),
    "async_req": lambda url, creates: on_threads(url, creates, async_req=True),
    "asyncio": on_asyncio,
}


def main(way: str, creates: int) -> dict[str, float]:
    """Fill a quota, then let creates wait for it."""
    logging.disable()  # closing lists the creates that still wait
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "full", {"pods": "1"})
        with client.ApiClient(client.Configuration(host=sandbox.url)) as plain:
            client.CoreV1Api(plain).create_namespaced_pod("team", POD)
        return WAYS[way](sandbox.url, creates)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))

"""Measures the sandbox's creates per second, with two quotas, a watcher, many stored objects and a client process.

Usage: python benchmarks/sandbox_throughput.py [--creates 5000] [--stored 100000] [--connections 16] [--json]
Prints creates per second on one core (the server process is pinned to one core where the system allows it), and the
share of that core that the server used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import time
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

NAMESPACE = "measured"
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "p-", "labels": {"app": "bench"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "500m", "memory": "64Mi"},
                                                                 "limits": {"memory": "128Mi"}}}
        ],
    },
}  # fmt: skip


def serve(pipe: Connection, stored: int) -> None:
    """The server process: fill the store, send its URL, then report CPU time, memory and creates on request."""
    from backoff_ctrl.k8s.lab.sandbox import Sandbox  # noqa: PLC0415 - in this process only

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    async def run() -> None:
        async with Sandbox(seed=1) as sandbox:
            for number in range(10):
                sandbox.create_namespace(f"old-{number}")
            for number in range(stored):
                body = json.loads(json.dumps(POD))
                sandbox.create(sandbox.kind("pods"), f"old-{number % 10}", body)
            sandbox.create_namespace(NAMESPACE)
            sandbox.create_quota(NAMESPACE, "counts", {"pods": "1000000", "count/pods": "1000000"})
            sandbox.create_quota(
                NAMESPACE, "compute", {"requests.cpu": "1000000", "requests.memory": "1Pi", "limits.memory": "1Pi"}
            )
            pipe.send(sandbox.url)
            loop = asyncio.get_running_loop()
            while True:
                question = await loop.run_in_executor(None, pipe.recv)
                if question == "stop":
                    return
                usage = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send((usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, sandbox.counters.creates.created))

    asyncio.run(run())


async def load(url: str, creates: int, connections: int) -> tuple[float, int]:
    """Create pods over this many connections, with a watcher; return the seconds it took and the events received."""
    body = json.dumps(POD).encode()
    headers = {"Content-Type": "application/json"}
    left = iter(range(creates))
    seen = 0
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as session:

        async def watch() -> None:
            nonlocal seen
            address = f"/api/v1/namespaces/{NAMESPACE}/pods?watch=true&resourceVersion=0"
            async with session.get(address, timeout=aiohttp.ClientTimeout(total=None)) as answer:
                async for chunk in answer.content.iter_any():
                    seen += chunk.count(b"\n")

        async def create() -> None:
            for _ in left:
                async with session.post(f"/api/v1/namespaces/{NAMESPACE}/pods", data=body, headers=headers) as answer:
                    assert answer.status == 201, await answer.text()
                    await answer.read()

        watching = asyncio.create_task(watch())
        started = time.perf_counter()
        await asyncio.gather(*(create() for _ in range(connections)))
        took = time.perf_counter() - started
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return took, seen


def measure(creates: int, stored: int, connections: int) -> dict[str, float]:
    """Run the benchmark once; return its figures."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, stored))
    process.start()
    theirs.close()  # else the end of a failed server would go unnoticed here
    try:
        url = ours.recv()
        asyncio.run(load(url, 200, connections))  # warm up
        ours.send("report")
        busy_before = ours.recv()[0]
        took, seen = asyncio.run(load(url, creates, connections))
        ours.send("report")
        busy_after, megabytes, created = ours.recv()
        ours.send("stop")
    finally:
        process.join(timeout=20)
        if process.is_alive():
            process.terminate()
    return {
        "creates": creates,
        "stored_before": stored,
        "connections": connections,
        "creates_per_s": creates / took,
        "server_us_per_create": (busy_after - busy_before) / creates * 1e6,
        "server_core_share": (busy_after - busy_before) / took,
        "watch_events": seen,
        "server_megabytes": megabytes,
        "created_at_server": created,
    }


def main() -> None:
    """Parse the options, measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--creates", type=int, default=5000)
    parser.add_argument("--stored", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.creates, options.stored, options.connections)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['creates_per_s']:,.0f} creates/s with {options.stored:,} stored objects, two quotas and a watcher "
          f"(server: {found['server_us_per_create']:.0f} us of CPU per create, {found['server_core_share']:.0%} of a "
          f"core, {found['server_megabytes']:.0f} MB)")  # fmt: skip


if __name__ == "__main__":
    main()

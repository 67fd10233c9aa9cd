"""``python -m benchmarks.web_reads``: 10,000 jobs of a local service, read within 30 a second and 300 at once.

Prints how far the reads stayed below 300 + 30 t, the age of the job that was read longest ago, and what the manager
took of the processor and of memory. It takes about eight minutes: two rounds of all jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from pathlib import Path
from typing import Final

import click

from tests.tasks.webapi.jobs_service import JobsService
from tests.tasks.webapi.web_bench import context, web_bench

QPS: Final = 30
BURST: Final = 300


def memory() -> float:
    """Return the bytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


async def measure(jobs: int, seconds: float) -> None:
    """Follow so many jobs for so long."""
    service = JobsService()
    for number in range(jobs):
        service.jobs[f"job-{number}/0"] = {"id": f"job-{number}/0", "state": "RUNNING"}
    state = {"version": 1, "core": "webapi", "plugin": "jobs", "stage": "ResourcesCreated", "phase": 3}
    tasks = [context(f"job-{number}") for number in range(jobs)]
    store = {(each.metadata.uid, 0): (each, {**state, "meta": {"id": f"{each.metadata.uid}/0"}}) for each in tasks}
    loop = asyncio.get_running_loop()
    async with service.running() as url, web_bench(url, store=store) as bench:
        before, start = memory(), loop.time()
        for each in tasks:
            await bench.step(each)
        took, grown = loop.time() - start, memory() - before
        cpu, ages = time.process_time(), []
        refresher = bench.plugin._services["jobs"].origins.own.refresher  # type: ignore[attr-defined]  # noqa: SLF001
        while loop.time() < start + seconds:
            await asyncio.sleep(1)
            if len(service.times) >= jobs:
                ages.append(refresher.stalest())
        cpu = (time.process_time() - cpu) / seconds
    over = max(number - BURST - QPS * (at - start) for number, (at, _, _) in enumerate(service.times, 1))
    click.echo(f"{jobs:,} jobs, taken in within {took:.1f} s, {grown / jobs / 1024:.2f} KiB each, all of the manager's")
    click.echo(f"{len(service.times):,} reads in {seconds:.0f} s; at most {over:+.1f} beside {BURST} + {QPS} t")
    if ages:
        bound = 1.1 * jobs / QPS
        click.echo(f"the stalest was {max(ages):.0f} s old; 1.1 x {jobs:,} / {QPS} s = {bound:.0f} s")
    click.echo(f"{100 * cpu:.1f} % of one core, the service's own answers among it")


def main() -> None:
    """Read the jobs of one service at its pace for a while, and print how old what is known of them gets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=480)
    given = parser.parse_args()
    asyncio.run(measure(given.jobs, given.seconds))


if __name__ == "__main__":
    main()

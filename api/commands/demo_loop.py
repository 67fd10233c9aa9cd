"""``backoff-ctrl demo --keep-going``: replay one workload after another through the gate, with a live table."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from backoff_ctrl.engine.quantities import format_quantity
from backoff_ctrl.k8s.replay.over_http import HttpCluster, get_ready, make_client
from backoff_ctrl.k8s.replay.runs import replay
from backoff_ctrl.k8s.replay.sandboxed import sandbox_process
from backoff_ctrl.k8s.replay.workload import in_nano, make_workload

if TYPE_CHECKING:
    from backoff_ctrl.k8s.replay.trace import Trace
    from backoff_ctrl.k8s.replay.workload import Workload

FACTOR: Final = 100.0
REFRESH: Final = 0.5  # seconds
CLIENT: Final = "gate_observing"


@dataclass(slots=True)
class Totals:
    """Counts over all rounds so far."""

    rounds: int = 0
    creates: int = 0
    refused: int = 0
    admitted: int = 0


def keep_replaying(trace: Trace, pods: int, seed: int) -> None:
    """Replay slices of the trace, from ``seed`` on, each in a new sandbox, until Ctrl-C."""
    totals = Totals()
    waiting: list[int] = [0]
    console = Console()
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                workload = make_workload(trace, pods=pods, seed=seed + totals.rounds)
                hard = {namespace: workload.hard(namespace) for namespace in workload.quotas}
                with sandbox_process(hard, seed=workload.seed) as url:
                    asyncio.run(_round(url, workload, totals, live, waiting))
    except KeyboardInterrupt:
        click.echo(
            f"Stopped: {totals.admitted:,} pods were created and {totals.refused:,} creates rejected in "
            f"{totals.rounds} complete rounds; {waiting[0]} pods were still waiting."
        )


async def _round(url: str, workload: Workload, totals: Totals, live: Live, waiting: list[int]) -> None:
    loop = asyncio.get_running_loop()
    async with HttpCluster(url) as cluster:
        began = loop.time()
        before = (totals.creates, totals.refused, totals.admitted)

        async def count() -> None:
            creates = await cluster.creates()
            totals.creates = before[0] + creates["seen"]
            totals.refused = before[1] + creates["refused"]
            totals.admitted = before[2] + len(cluster.admitted_at)

        async def refresh() -> None:
            while True:
                await count()
                elapsed = (loop.time() - began) * FACTOR
                table, waiting[0] = _table(workload, cluster, elapsed, totals)
                live.update(table, refresh=True)
                await asyncio.sleep(REFRESH)

        cluster.record_usage()
        cluster.spawn(refresh())
        client = make_client(CLIENT, cluster, seed=workload.seed, factor=FACTOR)
        await get_ready(client, cluster)
        began = loop.time()
        await replay(workload.faster(FACTOR), client)
        await count()
    totals.rounds += 1


def _table(workload: Workload, cluster: HttpCluster, elapsed: float, totals: Totals) -> tuple[Table, int]:
    """Return the table of all namespaces, and the total number of waiting pods."""
    table = Table(
        title=f"seed {workload.seed}, {elapsed:,.0f} s into the workload (at {FACTOR:.0f} times its speed)   "
        f"creates sent {totals.creates:,}, refused {totals.refused:,}, admitted {totals.admitted:,}",
        title_justify="left",
    )
    for heading in ("namespace", "resource", "used", "limited", "arrived", "created", "waiting"):
        table.add_column(heading, justify="left" if heading in ("namespace", "resource") else "right")
    latest = {namespace: used for _, namespace, used in cluster.usage}
    all_waiting = 0
    for namespace in workload.quotas:
        pods = [pod for pod in workload.pods if pod.namespace == namespace]
        arrived = sum(pod.arrival <= elapsed for pod in pods)
        placed = sum(pod.name in cluster.admitted_at for pod in pods)
        all_waiting += max(0, arrived - placed)
        numbers = [str(arrived), str(placed), str(max(0, arrived - placed))]
        for resource, limited in in_nano(workload.quotas[namespace]).items():
            used = latest.get(namespace, {}).get(resource, 0)
            binary = resource.endswith("memory")
            amounts = [format_quantity(amount, binary=binary) for amount in (used, limited)]
            table.add_row(namespace if numbers else "", resource, *amounts, *numbers)
            numbers = []
        table.add_section()
    return table, all_waiting

"""``backoff-ctrl demo --keep-going``: replay one workload after another through the gate, with a live table."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from backoff_ctrl.engine.quantities import format_quantity
from backoff_ctrl.k8s.replay.clients.gated import Gated
from backoff_ctrl.k8s.replay.over_http import HttpCluster, get_ready, make_client
from backoff_ctrl.k8s.replay.runs import replay
from backoff_ctrl.k8s.replay.sandboxed import sandbox_process
from backoff_ctrl.k8s.replay.workload import in_nano, make_workload
from backoff_ctrl.k8s.status.serving import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    waiting: int = 0


def keep_replaying(trace: Trace, pods: int, seed: int) -> None:
    """Replay slices of the trace, from ``seed`` on, through one gate on one sandbox, until Ctrl-C."""
    totals = Totals()
    try:
        with sandbox_process({}, seed=seed) as url:
            asyncio.run(_keep_replaying(url, trace, pods, seed, totals))
    except KeyboardInterrupt:
        click.echo(
            f"Stopped: {totals.admitted:,} pods were created and {totals.refused:,} creates rejected in "
            f"{totals.rounds} complete rounds; {totals.waiting} pods were still waiting."
        )


async def _keep_replaying(url: str, trace: Trace, pods: int, seed: int, totals: Totals) -> None:
    console = Console()
    async with HttpCluster(url) as cluster:
        client = make_client(CLIENT, cluster, seed=seed, factor=FACTOR)
        assert isinstance(client, Gated)
        cluster.record_usage()
        await get_ready(client, cluster)
        with _page(url, client) as told, Live(console=console, auto_refresh=False) as live:
            console.print(told, soft_wrap=True)
            while True:
                workload = make_workload(trace, pods=pods, seed=seed + totals.rounds)
                await cluster.furnish({namespace: workload.hard(namespace) for namespace in workload.quotas})
                await _round(workload, cluster, client, totals, live)
                totals.rounds += 1
                await cluster.clear_away()


@contextmanager
def _page(url: str, client: Gated) -> Iterator[str]:
    """Serve the live page; yields a sentence that says where it is, or how to get it."""
    with ExitStack() as stack:
        try:
            from backoff_ctrl.api.status.beside import page_beside  # noqa: PLC0415 - imports FastAPI: 0.6 s
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("backoff_ctrl"):
                raise
            yield "For a live page in the browser: pip install 'backoff-ctrl[serve]'"
            return
        service = Service()
        stack.callback(service.close)
        service.add(client.gate.ledger, url)
        gate = service.serve("127.0.0.1:0")
        yield f"The live page is at {stack.enter_context(page_beside(url, gate.url))}"


async def _round(workload: Workload, cluster: HttpCluster, client: Gated, totals: Totals, live: Live) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    admitted = totals.admitted

    async def count() -> None:
        creates = await cluster.creates()
        totals.creates, totals.refused = creates["seen"], creates["refused"]
        totals.admitted = admitted + len(cluster.admitted_at)

    async def refresh() -> None:
        while True:
            await count()
            elapsed = (loop.time() - began) * FACTOR
            table, totals.waiting = _table(workload, cluster, elapsed, totals)
            live.update(table, refresh=True)
            await asyncio.sleep(REFRESH)

    refreshing = asyncio.ensure_future(refresh())
    try:
        await replay(workload.faster(FACTOR), client)
    finally:
        refreshing.cancel()
    await count()


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

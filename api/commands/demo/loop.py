"""``backoff-ctrl demo --keep-going``: replay one workload after another through the gate, with a live table."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from backoff_ctrl.engine.facts.quantities import format_quantity
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.paths import path_to
from backoff_ctrl.k8s.lab.replay.clients import Gated, make_client, replay
from backoff_ctrl.k8s.lab.replay.over_http import HttpCluster, reached, sandbox_process
from backoff_ctrl.k8s.lab.replay.virtual_time import Record
from backoff_ctrl.k8s.lab.replay.workload import QUOTA_NAME, Trace, Workload, in_nano, make_workload, quota_of
from backoff_ctrl.k8s.status.serving import Service

FACTOR: Final = 100.0
REFRESH: Final = 0.5  # seconds
CLIENT: Final = "gate_observing"


@dataclass(slots=True)
class Totals:
    """The sums of all slices so far."""

    rounds: int = 0
    waiting: int = 0
    record: Record = field(default_factory=Record)


def keep_replaying(trace: Trace, pods: int, seed: int) -> None:
    """Replay slices of the trace, from ``seed`` on, through one gate on one sandbox, until Ctrl-C."""
    totals = Totals()
    try:
        with sandbox_process({}, seed=seed) as url:
            asyncio.run(_keep_replaying(url, trace, pods, seed, totals))
    except KeyboardInterrupt:
        click.echo(
            f"Stopped: {totals.record.admitted.total():,} pods were created and {totals.record.refused:,} creates "
            f"rejected in {totals.rounds} complete rounds; {totals.waiting} pods were still waiting."
        )


async def _keep_replaying(url: str, trace: Trace, pods: int, seed: int, totals: Totals) -> None:
    console = Console()
    async with reached(find_place(url, None, None, None)) as cluster:
        client = make_client(CLIENT, cluster, seed=seed, factor=FACTOR)
        assert isinstance(client, Gated)
        totals.record = cluster.record
        cluster.record_usage()
        await cluster.until_observed(client)
        with _page(url, client) as told, Live(console=console, auto_refresh=False) as live:
            console.print(told, soft_wrap=True)
            while True:
                workload = make_workload(trace, pods=pods, seed=seed + totals.rounds)
                await _furnish(cluster, workload)
                await _round(workload, client, totals, live)
                totals.rounds += 1
                await _clear_away(cluster)


async def _furnish(cluster: HttpCluster, workload: Workload) -> None:
    """Give the sandbox the workload's namespaces and quotas."""
    for namespace, hard in workload.hard().items():
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await cluster.ask("POST", "/api/v1/namespaces", space)
        path = path_to("/api/v1", "resourcequotas", namespace=namespace)
        if not (await cluster.ask("POST", path, quota_of(hard))).ok:  # it is there, of an earlier workload
            await cluster.ask("PUT", f"{path}/{QUOTA_NAME}", quota_of(hard))


async def _clear_away(cluster: HttpCluster) -> None:
    """Delete the pods that have ended, and forget what was recorded."""
    cluster.record.admitted_at.clear()
    cluster.record.usage.clear()
    ended = await cluster.ask("GET", "/api/v1/pods?fieldSelector=status.phase%3DSucceeded")
    for pod in json.loads(ended.body)["items"]:
        where = path_to("/api/v1", "pods", namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"])
        await cluster.ask("DELETE", f"{where}?gracePeriodSeconds=0")


@contextmanager
def _page(url: str, client: Gated) -> Iterator[str]:
    """Serve the live page; yields a sentence that says where it is, or how to get it."""
    with ExitStack() as stack:
        try:
            from backoff_ctrl.api.status.listening import page_beside  # noqa: PLC0415 - imports FastAPI: 0.6 s
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


async def _round(workload: Workload, client: Gated, totals: Totals, live: Live) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def refresh() -> None:
        while True:
            table, totals.waiting = _table(workload, totals.record, (loop.time() - began) * FACTOR)
            live.update(table, refresh=True)
            await asyncio.sleep(REFRESH)

    refreshing = asyncio.ensure_future(refresh())
    try:
        await replay(workload.faster(FACTOR), client)
    finally:
        refreshing.cancel()


def _table(workload: Workload, record: Record, elapsed: float) -> tuple[Table, int]:
    """Return the table of all namespaces, and the total number of waiting pods."""
    table = Table(
        title=f"seed {workload.seed}, {elapsed:,.0f} s into the workload (at {FACTOR:.0f} times its speed)   "
        f"creates sent {record.creates:,}, refused {record.refused:,}, admitted {record.admitted.total():,}",
        title_justify="left",
    )
    for heading in ("namespace", "resource", "used", "limited", "arrived", "created", "waiting"):
        table.add_column(heading, justify="left" if heading in ("namespace", "resource") else "right")
    latest = {namespace: used for _, namespace, used in record.usage}
    all_waiting = 0
    for namespace in workload.quotas:
        pods = [pod for pod in workload.pods if pod.namespace == namespace]
        arrived = sum(pod.arrival <= elapsed for pod in pods)
        placed = sum(pod.name in record.admitted_at for pod in pods)
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

"""``python -m benchmarks.cluster_tasks``: 5,000 Tasks in a real API server, with a quota that lets none of them run.

Prints how long a manager takes from its start until it knows all tasks, what it takes of a processor once all wait, and
then, with a kubelet that ends the pods of the first ``--run`` of them, how often each status was written and how large
it became. The test bed's own server is started for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from statistics import quantiles
from typing import Any, Final

import click
from kubernetes import client, config

from backoff_ctrl.k8s.lab.sandbox.followed import Server as Upstream
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.cluster.owning import owning
from backoff_ctrl.k8s.tasks.cluster.schema import NAME, definition
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from backoff_ctrl.k8s.tasks.managing import carry_out
from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.reconciler import Reconciler
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.talking import MERGE, Api

NAMESPACE: Final = "tasks"
PATH: Final = f"/apis/backoff-ctrl.dev/v1alpha1/namespaces/{NAMESPACE}/tasks"
QUOTA: Final = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
AT_A_TIME: Final = 32


class Counted(ClusterStore):
    """A store that counts the writes of each status."""

    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        self.writes: Counter[str] = Counter()

    async def set_status(self, uid: str, version: int, status: TaskStatus, *, open_: bool) -> int:
        written = await super().set_status(uid, version, status, open_=open_)
        self.writes[uid] += 1
        return written


async def prepare(api: Api, tasks: int) -> None:
    """Create the kind, a full quota, and so many Tasks."""
    assert (await api.post(DEFINITIONS, definition())).status in {201, 409}
    await api.until(f"{DEFINITIONS}/{NAME}", is_established)
    assert (await api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})).status == 201
    body = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "0"}}}
    assert (await api.post(QUOTA, body)).status == 201
    await api.until(f"{QUOTA}/pods", lambda found: found.get("status", {}).get("hard") == {"pods": "0"})
    room = asyncio.Semaphore(AT_A_TIME)

    async def create(number: int) -> None:
        container = {
            "image": "busybox",
            "command": ["sh", "-c", "train --epochs 12"],
            "resources": {"requests": {"cpu": "1"}},
        }
        spec = {"type": "container", "container": container, "project": "vision", "retries": {"user": 2}}
        task = {"apiVersion": "backoff-ctrl.dev/v1alpha1", "kind": "Task", "metadata": {"name": f"train-{number}"},
                "spec": spec}  # fmt: skip
        async with room:
            reply = await api.post(PATH, task)
        assert reply.status == 201, reply.text

    await asyncio.gather(*map(create, range(tasks)))


@asynccontextmanager
async def manager(store: ClusterStore, configuration: Any) -> AsyncIterator[Reconciler]:
    """Carry out until the end of the block."""
    plugins, began = registry(), asyncio.get_running_loop().create_future()
    make = owning(through_plugins(plugins, configuration), store, plugins)
    settings = K8sPluginConfig()
    work = asyncio.create_task(carry_out(store, make, lambda: settings, begun=began.set_result))
    try:
        await asyncio.wait({work, began}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        yield await began
    finally:
        work.cancel()
        await asyncio.wait({work})


async def measure(server: Server, tasks: int, run: int, seconds: float) -> None:
    """Measure a manager of so many tasks."""
    configuration = client.Configuration()
    config.load_kube_config(str(server.kubeconfig()), client_configuration=configuration)
    async with Api(server) as api:
        begun = time.monotonic()
        await prepare(api, tasks)
        click.echo(f"{tasks:,} Tasks were created in {time.monotonic() - begun:.0f} s")
        begun = time.monotonic()
        async with Counted(configuration) as store, manager(store, configuration) as reconciler:
            await once(lambda: len(reconciler.tasks()) == tasks)
            click.echo(f"ready: it knew all of them after {time.monotonic() - begun:.1f} s")
            await once(lambda: reconciler.phases()["WaitingForResources"] == tasks)
            click.echo(f"all waited after {time.monotonic() - begun:.0f} s, with {store.writes.total():,} writes")
            written = -1
            while written != store.writes.total():
                written = store.writes.total()
                await asyncio.sleep(10)
            cpu = time.process_time()
            await asyncio.sleep(seconds)
            click.echo(f"idle: {100 * (time.process_time() - cpu) / seconds:.1f} % of a core, "
                       f"{store.writes.total() - written} writes in {seconds:.0f} s")  # fmt: skip
            await run_some(api, server, reconciler, run)
            await told(api, store, reconciler)


async def once(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the reconciler tells nobody
        await asyncio.sleep(0.1)


async def run_some(api: Api, server: Server, reconciler: Reconciler, run: int) -> None:
    """Let pods run and end, until so many tasks have ended."""
    headers = {"Authorization": f"Bearer {server.token('tester')}"}
    begun = time.monotonic()
    async with Kubelet(Upstream(server.url, headers, server.ssl()), namespace=NAMESPACE, finish_after=1.0):
        await api.patch(f"{QUOTA}/pods", {"spec": {"hard": {"pods": "100"}}}, MERGE)
        await once(lambda: reconciler.counts.ended.total() >= run)
    spent = time.monotonic() - begun
    click.echo(f"{reconciler.counts.ended} in {spent:.0f} s")


async def told(api: Api, store: Counted, reconciler: Reconciler) -> None:
    """Print how often statuses were written, and how large those of ended tasks are."""
    sizes: list[int] = []
    ended: list[int] = []
    query: dict[str, str] = {"limit": "500"}
    while True:
        page = (await api.get(PATH, params=query)).json
        for each in page["items"]:
            status = each.get("status", {})
            sizes.append(len(json.dumps(status, separators=(",", ":"))))
            if status.get("endedAt"):
                ended.append(store.writes[each["metadata"]["uid"]])
        if not (more := page["metadata"].get("continue")):
            break
        query["continue"] = more
    percent, often = quantiles(sizes, n=100), dict(sorted(Counter(ended).items()))
    click.echo(f"status: p50 {percent[49]:,.0f} bytes, p99 {percent[98]:,.0f}, most {max(sizes):,}")
    click.echo(f"writes of each of {len(ended):,} ended tasks: most {max(ended)}, tasks by writes: {often}")
    click.echo(f"steps that failed: {reconciler.counts.errors}; writes held back: {reconciler.counts.held_back:,}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure on a test bed of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--run", type=int, default=2000, help="tasks that run to their end")
    parser.add_argument("--idle", type=float, default=30, help="seconds for which the processor is measured")
    given = parser.parse_args(arguments)
    with Bed(wanted(), kcm_qps=500) as bed:
        asyncio.run(measure(bed.server, given.tasks, min(given.run, given.tasks), given.idle))


if __name__ == "__main__":
    main()

"""Runs the workload as tasks on a real API server, its manager in a process of its own that may be killed on the way."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from backoff_ctrl.k8s.lab.replay.workload import Workload
from backoff_ctrl.k8s.lab.sandbox.followed import Server as KubeletServer
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE
from tests.tasks.workload.fake_operators import FakeOperators
from tests.tasks.workload.four_types import (
    AT_ONCE,
    CLUSTERS,
    COUNTED,
    GROUP,
    SETTINGS,
    SIMULATIONS,
    definitions,
    tasks_of,
)

_CALLS: Final = re.compile(r"^apiserver_request_total\{([^}]*)\} (\d+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
KINDS: Final = ("pods", "jobs", SIMULATIONS, CLUSTERS)


@dataclass
class Outcome:
    """How it went."""

    tasks: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    made: Counter[str] = field(default_factory=Counter)
    """Objects that were created, by kind."""
    refused_by: Counter[str] = field(default_factory=Counter)
    """Refusals, by kind."""
    refused_operator: int = 0
    """Those of them that were the operator's."""
    refused_jobs: int = 0
    """Those of them that were the Job controller's."""
    attempts: int = 0
    kills: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rss_mb: float = 0.0

    def __str__(self) -> str:
        made, refused = self.made.total(), self.refused_by.total()
        return (
            f"{self.tasks} tasks, {self.kills} kills, {self.seconds:.0f} s: {dict(self.phases)}; {made} objects created, "
            f"{dict(self.made)}; {refused} refused ({1000 * refused / max(1, made):.1f} per 1,000), "
            f"{dict(self.refused_by)}, {self.refused_operator} of them the operator's and {self.refused_jobs} the Job "
            f"controller's; {self.attempts} attempts beyond the first; the manager took "
            f"{self.cpu_seconds:.1f} s of CPU and {self.rss_mb:.0f} MB"
        )


class ManagerProcess:
    """``backoff-ctrl serve --store`` as the manager; it may be killed and started again."""

    def __init__(self, server: Server, store: Path, folder: Path, user: str = "tester") -> None:
        settings = folder / "settings.yaml"
        settings.write_text(yaml.safe_dump(SETTINGS))
        self._command = [
            sys.executable, "-m", "backoff_ctrl", "serve", "--listen", "127.0.0.1:0", "--kubeconfig",
            str(server.kubeconfig(user)), "--store", str(store), "--config", str(settings),
        ]  # fmt: skip
        self._log = folder / "manager.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.cpu_seconds = 0.0
        self.rss_mb = 0.0

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def look(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        stat = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        self._cpu = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        self.rss_mb = max(self.rss_mb, int(stat[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20)

    def stop(self, how: signal.Signals) -> None:
        assert self._process is not None
        self.look()
        self.cpu_seconds += self._cpu
        self._process.send_signal(how)
        self._process.wait(timeout=PATIENCE)
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)


async def run_workload(bed: Bed, workload: Workload, folder: Path, *, kills: int = 0, within: float = 600) -> Outcome:
    """Create each task at its arrival, kill the manager so often on the way, and wait until all have ended."""
    server = bed.server
    out = Outcome(tasks=len(workload.pods), kills=kills)
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(server, "admin"))
        await prepare(api, workload, bed.renew_controllers)
        operators = await stack.enter_async_context(FakeOperators(api))
        headers = {"Authorization": f"Bearer {server.token('admin')}"}
        await stack.enter_async_context(Kubelet(KubeletServer(server.url, headers, server.ssl())))
        store = await stack.enter_async_context(SqliteStore(folder / "tasks.db"))
        manager = ManagerProcess(server, folder / "tasks.db", folder)
        stack.callback(manager.close)
        before = await calls(api)
        manager.start()
        begun = time.monotonic()
        arriving = asyncio.create_task(arrive(store, workload))
        await over(store, manager, workload, arriving, kills, within)
        await arriving
        out.seconds = time.monotonic() - begun
        manager.stop(signal.SIGTERM)
        out.cpu_seconds, out.rss_mb = manager.cpu_seconds, manager.rss_mb
        out.refused_operator = operators.refused
        await count(out, api, store, before)
    return out


async def over(
    store: SqliteStore, manager: ManagerProcess, workload: Workload, arriving: asyncio.Task[None], kills: int,
    within: float,
) -> None:  # fmt: skip
    """Wait until all tasks have ended; the manager is killed each time that as many more have."""
    total, killed = len(workload.pods), 0
    async with asyncio.timeout(within):
        while True:
            unfinished = len(await store.list(limit=100_000, unfinished=True))
            listed = await store.revision()
            done = 0 if not listed else len(await store.list(limit=100_000)) - unfinished
            if arriving.done() and done == total:
                return
            if killed < kills and done >= (killed + 1) * total // (kills + 2):
                manager.stop(signal.SIGKILL)
                manager.start()
                killed += 1
            manager.look()
            await asyncio.sleep(0.5)  # the manager is another process


async def prepare(api: Api, workload: Workload, renew: Callable[[], object]) -> None:
    """Make the kinds, the namespaces and their quotas, and wait until each counts.

    ``renew`` starts the controllers anew: the one of quotas looks for new kinds every half minute only.
    """
    for each in definitions():
        answer = await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each)
        assert answer.status in (201, 409), answer.text
    for plural in (SIMULATIONS, CLUSTERS):
        await api.until(f"/apis/{GROUP}/v1/{plural}", lambda found: "items" in found)
    renew()
    for namespace in workload.quotas:
        answer = await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        assert answer.status == 201, answer.text
        base = f"/api/v1/namespaces/{namespace}/resourcequotas"
        for name, hard in (("team", workload.hard()[namespace]), ("simulations", {COUNTED: str(AT_ONCE)})):
            answer = await api.post(base, {"metadata": {"name": name}, "spec": {"hard": hard}})
            assert answer.status == 201, answer.text
            await api.until(f"{base}/{name}", partial(counts, hard))


def counts(hard: Collection[str], quota: dict[str, Any]) -> bool:
    """Whether a quota says of each resource how much is used."""
    return set(hard) <= (quota.get("status", {}).get("used") or {}).keys()


async def arrive(store: SqliteStore, workload: Workload) -> None:
    """Create each task when its pod arrived in the trace."""
    begun = time.monotonic()
    for pod, manifest in zip(workload.pods, tasks_of(workload), strict=True):
        await asyncio.sleep(max(0.0, begun + pod.arrival - time.monotonic()))
        await store.create([wish_of(read_task(manifest))])


async def count(out: Outcome, api: Api, store: SqliteStore, before: Counter[tuple[str, str]]) -> None:
    """Count what the server has stored and refused, and how the tasks ended."""
    tasks = await store.list(limit=100_000)
    out.phases = Counter(task.status.phase for task in tasks)
    out.attempts = sum(task.status.attempt for task in tasks)
    out.refused_jobs = await refused_jobs(api)
    for (code, resource), number in (await calls(api) - before).items():
        if code == "201":
            out.made[resource] += number
        elif code == "403":
            out.refused_by[resource] += number


async def refused_jobs(api: Api) -> int:
    """Return how often the Job controller says that it could not make a pod."""
    events = (await api.get("/api/v1/events")).json["items"]
    return sum(each.get("count") or 1 for each in events if each["reason"] == "FailedCreate")


async def calls(api: Api) -> Counter[tuple[str, str]]:
    """Return how many creates the server has answered: by status, and pods, Jobs or custom objects."""
    text = (await api.get("/metrics", accept="text/plain")).text
    found: Counter[tuple[str, str]] = Counter()
    for labels, number in _CALLS.findall(text):
        named = dict(_LABEL.findall(labels))
        resource = named.get("resource", "")
        if named["verb"] == "POST" and resource in KINDS and not named.get("subresource"):
            found[named["code"], resource] += int(number)
    return found

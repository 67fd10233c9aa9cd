"""A manager in a process of its own, to be killed: ``python -m tests.tasks.webapi.pool_manager STORE URL LIMITS``.

It carries out the tasks of a store at a ``CountedJobs`` service; LIMITS are its pool's total, project and namespace.
It prints the URL of its status.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubernetes.client import Configuration

from backoff_ctrl.k8s.status.serving import SERVICE
from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, running, success
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.plugins.web_protocol import Created
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins

from .jobs_service import JobsPlugin

if TYPE_CHECKING:
    from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, StatusContext

FAST = {"qps": 10_000, "burst": 10_000}


class CountedPlugin(JobsPlugin):
    """It tells the service whose job it is. An answer to a create shows an end only if the job has ended by then."""

    async def create(self, context: CallContext) -> Created:
        about = context.task.metadata
        custom = context.task.spec["custom"]
        body = {"key": context.key, "project": about.project, "namespace": about.namespace, **custom}
        made = await self._ask("POST", "/jobs", body)
        return Created({"id": made["id"]}, made if made["state"] == "SUCCEEDED" else None)

    def status(self, context: StatusContext, resource: Any) -> PhaseInfo:
        return success() if resource["state"] == "SUCCEEDED" else running()


async def manage(file: Path, url: str, total: int, project: int, namespace: int) -> None:
    registry = Registry([WebPluginEntry("jobs", ("job",), lambda setup: CountedPlugin(setup, url))])
    section = {
        "resourceQuotas": {"default": total},
        "resourceConstraints": {"project": project, "namespace": namespace},
        "caching": {"resyncInterval": "5s"},
        "createsInFlight": 2 * total,
        "writeRateLimiter": FAST,
        "readRateLimiter": FAST,
    }
    nowhere = Configuration(host="http://127.0.0.1:1")
    async with SqliteStore(file) as store:
        work = asyncio.create_task(
            Manager(store, through_plugins(registry, nowhere, lambda _: section), K8sPluginConfig).run()
        )
        while SERVICE.server is None:  # noqa: ASYNC110 - it is served as soon as the manager has the store
            await asyncio.sleep(0.01)
        print(SERVICE.server.url, flush=True)  # noqa: T201
        await work


if __name__ == "__main__":
    os.environ["BACKOFF_CTRL_STATUS"] = "127.0.0.1:0"
    asyncio.run(manage(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3].split(","))))

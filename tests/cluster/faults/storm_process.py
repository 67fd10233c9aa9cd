"""A process that creates pods through a gated client, so that it can be killed.

It writes to a log file, the "book", what it starts and what has succeeded: ``begun 17``, ``in 17``. A written line
outlives the process. The process kills itself after enough creates, because a reader of the log might be too late.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient, waiting
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from tests.cluster.faults.storm import small_pod
from tests.kit.aio_configuration import aio_configuration
from tests.kit.official import aio


async def create(asked: dict[str, Any]) -> None:
    """Create all rows, a limited number at a time."""
    book = os.open(Path(asked["book"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    place = find_place(None, asked["kubeconfig"], None, None)
    async with AsyncGatedApiClient(aio_configuration(place.configuration)) as made:
        core: Any = aio.CoreV1Api(made)
        left = iter(asked["rows"])
        came = itertools.count(1)

        async def work() -> None:
            for row in left:
                os.write(book, f"begun {row}\n".encode())
                with waiting(key=f"row-{row}" if asked["keyed"] else None):
                    await core.create_namespaced_pod(asked["namespace"], small_pod(row))
                os.write(book, f"in {row}\n".encode())
                if next(came) == asked["dies_after"]:
                    os.kill(os.getpid(), signal.SIGKILL)

        async with asyncio.TaskGroup() as group:
            for _ in range(asked["at_a_time"]):
                group.create_task(work())


if __name__ == "__main__":
    asyncio.run(create(json.loads(sys.argv[1])))

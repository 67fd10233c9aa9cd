"""One run of a workload through one client on one cluster, with its result counted at the server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backoff_ctrl.engine.errors import BackoffError

from .reference import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backoff_ctrl.k8s.replay.clients.plain import Client

    from .workload import Pod, Workload


class ReplayError(BackoffError, RuntimeError):
    """A pod could not be created: the cluster was unreachable or gave an unexpected answer."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. Times are seconds of the trace."""

    creates_sent: int
    refused: int
    admitted: int
    lost: int
    duplicated: int
    makespan_s: float
    wait_p50_s: float
    wait_p95_s: float

    @property
    def refused_per_admitted(self) -> float:
        """The number of 403s per admitted pod."""
        return self.refused / max(1, self.admitted)


def count(
    workload: Workload,
    *,
    creates: int,
    refused: int,
    admitted: Mapping[str, int],
    admitted_at: Mapping[str, float],
) -> Result:
    """Make the result: pods never admitted count as lost, further admissions of a pod as duplicated."""
    measured = measure(workload, admitted_at)
    return Result(
        creates_sent=creates,
        refused=refused,
        admitted=sum(admitted.values()),
        lost=sum(pod.name not in admitted for pod in workload.pods),
        duplicated=sum(times - 1 for times in admitted.values()),
        makespan_s=measured.makespan,
        wait_p50_s=measured.wait_p50,
        wait_p95_s=measured.wait_p95,
    )


async def replay(workload: Workload, client: Client, on_placed: Callable[[Pod], None] | None = None) -> None:
    """Let every pod arrive at its time, and return when all are created.

    Raises ``ReplayError`` from the first error, which ends the run.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def arrive(pod: Pod) -> None:
        await asyncio.sleep(began + pod.arrival - loop.time())
        await client.place(pod)
        if on_placed is not None:
            on_placed(pod)

    try:
        async with asyncio.TaskGroup() as group:
            for pod in workload.pods:
                group.create_task(arrive(pod), name=pod.name)
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        raise ReplayError(f"the replay ended early: {type(first).__name__}: {first}") from first

"""One run of a workload with gangs, in virtual time, with its result counted at the server."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.replay.clients.gated import observing
from backoff_ctrl.k8s.replay.reference import percentile
from backoff_ctrl.k8s.replay.runs import ReplayError
from backoff_ctrl.k8s.replay.virtual_time import run_virtual

from .gang_admission import GangAdmission
from .gang_clients import AsOne, OneByOne

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backoff_ctrl.k8s.replay.workload import Pod

    from .gang_clients import GangClient
    from .gang_workload import GangWorkload

    MakeClient = Callable[[GangAdmission, int], GangClient]

STANDSTILL: Final = 600.0
"""Where no pod computes and none came for so long, nothing will change any more: all retries come within 60 s."""
LOOK: Final = 60.0  # seconds between looks for a standstill

GANG_CLIENTS: Final[dict[str, MakeClient]] = {
    "plain": lambda cluster, seed: OneByOne(cluster, seed=seed),
    "gate_observing": lambda cluster, seed: AsOne(cluster, seed=seed, observe=observing(cluster)),
}


@dataclass(frozen=True, slots=True)
class GangResult:
    """The result of a run. Times are seconds of the trace; None: never.

    A gang waits from its arrival until all of it lives. ``half_held_pod_s`` are the pod-seconds that members held
    quota while their gang was incomplete: until nothing changed any more, if it never was complete.
    """

    creates_sent: int
    refused: int
    admitted: int
    lost: int
    duplicated: int
    gangs_complete: int
    gangs_held_half: int
    half_held_longest_s: float
    half_held_pod_s: float
    makespan_s: float | None
    gang_wait_p50_s: float | None
    gang_wait_p95_s: float | None
    single_wait_p50_s: float | None
    single_wait_p95_s: float | None
    stood_still_at_s: float | None


def run_gangs(work: GangWorkload, client: str) -> GangResult:
    """Run one client in virtual time. Raises ``ReplayError`` if it ends early, ``RuntimeError`` if the gate failed."""

    async def main() -> GangResult:
        cluster = GangAdmission(work)
        made = GANG_CLIENTS[client](cluster, work.workload.seed)
        stood_still_at = await _replay(work, made, cluster)
        if isinstance(made, AsOne) and made.gate.counts.failed_open:
            raise RuntimeError(f"the gate failed open {made.gate.counts.failed_open} times: see the log")
        return _count(work, cluster, stood_still_at)

    return run_virtual(main())


async def _replay(work: GangWorkload, client: GangClient, cluster: GangAdmission) -> float | None:
    """Let everything arrive at its time; return when all is created, or the time since when nothing changes any more.

    Raises ``ReplayError`` from the first error, which ends the run.
    """
    loop = asyncio.get_running_loop()
    last = max(pod.arrival for pod in work.workload.pods)

    async def arrive(pods: Sequence[Pod]) -> None:
        await asyncio.sleep(pods[0].arrival - loop.time())
        await (client.place(pods[0]) if len(pods) == 1 else client.place_gang(pods))

    pending = {loop.create_task(arrive(unit)) for unit in work.units}
    while pending:
        done, pending = await asyncio.wait(pending, timeout=LOOK, return_when=asyncio.FIRST_EXCEPTION)
        errors = [error for task in done if (error := task.exception()) is not None]
        since = max(cluster.changed_at, last)
        stands_still = not cluster.running and loop.time() - since > STANDSTILL
        if pending and (errors or stands_still):
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)
        if errors:
            raise ReplayError(f"the replay ended early: {type(errors[0]).__name__}: {errors[0]}") from errors[0]
        if pending and stands_still:
            return cluster.changed_at
    return None


def _count(work: GangWorkload, cluster: GangAdmission, stood_still_at: float | None) -> GangResult:
    """Make the result from what the server saw."""
    until = cluster.changed_at if stood_still_at is None else stood_still_at
    record, pods = cluster.record, work.workload.pods
    starts = dict(record.admitted_at)
    for gang in cluster.gangs:
        starts.update(dict.fromkeys(gang.names, math.inf if gang.complete_at is None else gang.complete_at))
    in_gangs = {name for gang in cluster.gangs for name in gang.names}
    waits = sorted(starts[gang[0].name] - gang[0].arrival for gang in work.gangs)
    singles = sorted(starts.get(pod.name, math.inf) - pod.arrival for pod in pods if pod.name not in in_gangs)
    return GangResult(
        creates_sent=record.creates,
        refused=record.refused,
        admitted=sum(record.admitted.values()),
        lost=sum(pod.name not in record.admitted for pod in pods),
        duplicated=sum(times - 1 for times in record.admitted.values()),
        gangs_complete=sum(gang.complete_at is not None for gang in cluster.gangs),
        gangs_held_half=sum(gang.held_half(until) for gang in cluster.gangs),
        half_held_longest_s=max((gang.held(until) for gang in cluster.gangs), default=0.0),
        half_held_pod_s=sum(gang.idle(until) for gang in cluster.gangs),
        makespan_s=_or_never(max(starts.get(pod.name, math.inf) + pod.run_time for pod in pods)),
        gang_wait_p50_s=_or_never(percentile(waits, 50)),
        gang_wait_p95_s=_or_never(percentile(waits, 95)),
        single_wait_p50_s=_or_never(percentile(singles, 50)),
        single_wait_p95_s=_or_never(percentile(singles, 95)),
        stood_still_at_s=stood_still_at,
    )


def _or_never(seconds: float) -> float | None:
    return None if math.isinf(seconds) else max(0.0, seconds)

"""The four clients on one workload in virtual time, each measured against the better reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.replay.clients.gated import Gated, observing
from backoff_ctrl.k8s.replay.clients.plain import Ancestor, Plain

from .admission import QuotaAdmission, Record
from .reference import area_bound, arrival_bound, better_reference
from .runs import Result, count, replay
from .trace import PACKAGED, read_trace
from .virtual_time import run_virtual
from .workload import RUN_TIME_CAP, Workload, make_workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from backoff_ctrl.k8s.replay.clients.plain import Client

    MakeClient = Callable[[QuotaAdmission, int], Client]

A_YEAR: Final = 31_536_000.0
PATIENT: Final = Policy(wait_max=A_YEAR)
"""For uncapped run times: pods of the trace run for weeks, so others wait longer than the default limit of a day."""


def make_gate(cluster: QuotaAdmission, seed: int, *, observe: bool, policy: Policy | None = None) -> Gated:
    """Make a client with the gate, which either watches the quotas (``observe``) or learns from refusals alone."""
    return Gated(cluster, seed=seed, policy=policy, observe=observing(cluster) if observe else None)


CLIENTS: Final[dict[str, MakeClient]] = {
    "plain": lambda cluster, seed: Plain(cluster, seed=seed),
    "ancestor": lambda cluster, _: Ancestor(cluster),
    "gate_learning": lambda cluster, seed: make_gate(cluster, seed, observe=False),
    "gate_observing": lambda cluster, seed: make_gate(cluster, seed, observe=True),
}
UNCAPPED: Final[dict[str, MakeClient]] = {
    "gate_learning": lambda cluster, seed: make_gate(cluster, seed, observe=False, policy=PATIENT),
    "gate_observing": lambda cluster, seed: make_gate(cluster, seed, observe=True, policy=PATIENT),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One client on one workload. Ratios are against the better reference; 1.0 where both are zero."""

    client: str
    seed: int
    result: Result
    makespan_ratio: float
    wait_p50_ratio: float
    wait_p95_ratio: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a workload's results are compared with, in seconds: the better of the two references, measure by measure,
    and two lower bounds of the makespan.
    """

    makespan_s: float
    wait_p50_s: float
    wait_p95_s: float
    area_bound_s: float
    arrival_bound_s: float


def bounds_of(workload: Workload) -> Bounds:
    """Run both references and compute the bounds."""
    best = better_reference(workload)
    return Bounds(
        makespan_s=best.makespan,
        wait_p50_s=best.wait_p50,
        wait_p95_s=best.wait_p95,
        area_bound_s=area_bound(workload),
        arrival_bound_s=arrival_bound(workload),
    )


def run(workload: Workload, make_client: MakeClient) -> tuple[Result, Record]:
    """Run one client in virtual time. Raises ``RuntimeError`` if the gate failed open."""

    async def main() -> QuotaAdmission:
        cluster = QuotaAdmission(workload)
        client = make_client(cluster, workload.seed)
        await replay(workload, client)
        if isinstance(client, Gated) and client.gate.counts.failed_open:
            raise RuntimeError(f"the gate failed open {client.gate.counts.failed_open} times: see the log")
        return cluster

    record = run_virtual(main()).record
    result = count(
        workload,
        creates=record.creates,
        refused=record.refused,
        admitted=record.admitted,
        admitted_at=record.admitted_at,
    )
    return result, record


def compare(workload: Workload, client: str, make_client: MakeClient, bounds: Bounds) -> Comparison:
    """Run one client in virtual time and compare it with the references."""
    result, _ = run(workload, make_client)
    return against(client, workload.seed, result, bounds)


def against(client: str, seed: int, result: Result, bounds: Bounds) -> Comparison:
    """Compare a result with the references."""
    return Comparison(
        client,
        seed,
        result,
        ratio(result.makespan_s, bounds.makespan_s),
        ratio(result.wait_p50_s, bounds.wait_p50_s),
        ratio(result.wait_p95_s, bounds.wait_p95_s),
    )


def ratio(measured: float, reference: float) -> float:
    """Return measured / reference; 1.0 if both are under a second, where latencies dominate."""
    if measured < 1.0 and reference < 1.0:
        return 1.0
    return measured / reference if reference else float("inf")


@dataclass(frozen=True, slots=True)
class Job:
    """One workload and all its clients: the unit of work of a process. Picklable."""

    seed: int
    pods: int
    capped: bool
    trace: Path = PACKAGED


def work(job: Job) -> tuple[Job, Bounds, list[Comparison]]:
    """Make the job's workload and run its clients."""
    cap = RUN_TIME_CAP if job.capped else None
    workload = make_workload(read_trace(job.trace), pods=job.pods, seed=job.seed, run_time_cap=cap)
    bounds = bounds_of(workload)
    clients = CLIENTS if job.capped else UNCAPPED
    return job, bounds, [compare(workload, name, make, bounds) for name, make in clients.items()]

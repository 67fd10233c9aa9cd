"""The demo: a workload through all four clients, in virtual time and then over real HTTP: a sandbox or a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .comparing import CLIENTS, Bounds, run
from .picture import Panel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .rooms import Rooms
    from .runs import Result
    from .workload import Workload

FASTEST: Final = 200.0
"""The most that a duration is divided by: beyond it, the milliseconds of real HTTP weigh too much."""
FAST: Final = 150.0
"""The least: a small workload is over sooner, not slower."""
SECONDS: Final = 80.0
"""What the four clients together may take, if the factor allows."""
ON_CLUSTER: Final = 60.0
"""What durations are divided by on a real cluster: its controller manager writes 20 releases a second at most."""


@dataclass(frozen=True, slots=True)
class Run:
    """One client's run, with what the picture needs."""

    result: Result
    panel: Panel


def run_in_virtual_time(workload: Workload, client: str) -> Run:
    """Run one client without wall time."""
    result, record = run(workload, CLIENTS[client])
    panel = Panel(client, result.creates_sent, result.refused, record.usage, record.admitted_at)
    return Run(result, panel)


def run_for_real(workload: Workload, client: str, factor: float, on_placed: Callable[[int], object]) -> Run:
    """Run one client over HTTP against a sandbox of its own. ``on_placed`` hears how many pods are in.

    Raises ``OSError`` when the sandbox cannot serve.
    """
    from .over_http import run_over_http  # noqa: PLC0415
    from .sandboxed import sandbox_process  # noqa: PLC0415

    placed = 0

    def step(_: object) -> None:
        nonlocal placed
        placed += 1
        on_placed(placed)

    hard = {namespace: workload.hard(namespace) for namespace in workload.quotas}
    with sandbox_process(hard, seed=workload.seed) as url:
        result, usage, admitted_at = asyncio.run(run_over_http(url, client, workload, factor, step))
    return Run(result, Panel(client, result.creates_sent, result.refused, usage, admitted_at))


def run_on_cluster(
    workload: Workload, client: str, factor: float, on_placed: Callable[[int], object], rooms: Rooms
) -> Run:
    """Run one client on a real cluster, in namespaces made for it. ``on_placed`` hears how many pods are in.

    Raises ``ReachError`` when the cluster can't be used, ``ReplayError`` when the replay ends early.
    """
    from .over_http import run_over_http  # noqa: PLC0415

    placed = 0

    def step(_: object) -> None:
        nonlocal placed
        placed += 1
        on_placed(placed)

    there, names = rooms.furnish(client.replace("_", "-"), workload)
    work = run_over_http(str(rooms.place.configuration.host), client, there, factor, step, place=rooms.place)
    result, usage, admitted_at = asyncio.run(work)
    known = [(when, names[space], used) for when, space, used in usage]
    return Run(result, Panel(client, result.creates_sent, result.refused, known, admitted_at))


def factor_for(virtual: Mapping[str, Run]) -> float:
    """Return what durations are divided by so that all clients take ``SECONDS`` together, within bounds."""
    together = sum(each.result.makespan_s for each in virtual.values())
    return float(min(FASTEST, max(FAST, round(together / SECONDS))))


def document(
    workload: Workload, bounds: Bounds, runs: Mapping[str, Run], virtual: Mapping[str, Run], factor: float | None
) -> dict[str, Any]:
    """Return what ``--json`` prints. ``factor`` is None for a demo in virtual time."""
    return {
        "pods": len(workload.pods),
        "virtual": factor is None,
        "seed": workload.seed,
        "first_row": workload.first_row,
        "rows": workload.rows,
        "dropped_rows": workload.dropped,
        "namespaces": {name: workload.hard(name) for name in workload.quotas},
        "factor": factor,
        "reference": dataclasses.asdict(bounds),
        "clients": {name: dataclasses.asdict(each.result) for name, each in runs.items()},
        "in_virtual_time": {name: dataclasses.asdict(each.result) for name, each in virtual.items()},
    }

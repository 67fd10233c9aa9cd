"""The demo: all clients on one workload, in virtual time and over real HTTP on a sandbox or a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import ExitStack
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
"""The largest speed-up: beyond it, the latencies of real HTTP distort the result."""
FAST: Final = 150.0
"""The smallest speed-up: a small workload takes less time instead of running slower."""
SECONDS: Final = 80.0
"""The target for all clients together, within these two bounds."""
ON_CLUSTER: Final = 60.0
"""The speed-up on a real cluster, whose controller manager writes at most 20 releases a second."""


@dataclass(frozen=True, slots=True)
class Run:
    """One client's run and its panel of the picture."""

    result: Result
    panel: Panel


def run_in_virtual_time(workload: Workload, client: str) -> Run:
    """Run one client in virtual time, without a server."""
    result, record = run(workload, CLIENTS[client])
    panel = Panel(client, result.creates_sent, result.refused, record.usage, record.admitted_at)
    return Run(result, panel)


def run_for_real(workload: Workload, client: str, factor: float, on_placed: Callable[[int], object]) -> Run:
    """Run one client over HTTP against a sandbox of its own. ``on_placed`` gets the number of pods created so far.

    Raises ``OSError`` if the sandbox, or the proxy before it, cannot be started.
    """
    from .behind_proxy import PROXY, proxy_process  # noqa: PLC0415
    from .over_http import run_over_http  # noqa: PLC0415
    from .sandboxed import sandbox_process  # noqa: PLC0415

    placed = 0

    def step(_: object) -> None:
        nonlocal placed
        placed += 1
        on_placed(placed)

    hard = {namespace: workload.hard(namespace) for namespace in workload.quotas}
    with ExitStack() as stack:
        url = stack.enter_context(sandbox_process(hard, seed=workload.seed))
        through = stack.enter_context(proxy_process(url, factor)) if client == PROXY else None
        work = run_over_http(url, client, workload, factor, step, through=through)
        result, usage, admitted_at = asyncio.run(work)
    return Run(result, Panel(client, result.creates_sent, result.refused, usage, admitted_at))


def run_on_cluster(
    workload: Workload, client: str, factor: float, on_placed: Callable[[int], object], rooms: Rooms
) -> Run:
    """Run one client on a real cluster, in new namespaces. ``on_placed`` gets the number of pods created so far.

    Raises ``ReachError`` if the cluster can't be used, ``ReplayError`` if the replay ends early.
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


def factor_for(virtual: Mapping[str, Run], unmodelled: int = 0) -> float:
    """Return the speed-up with which all clients together take about ``SECONDS``, within ``FAST`` and ``FASTEST``.

    ``unmodelled`` more of them have no model in virtual time; each takes as long as the quickest.
    """
    each = [run.result.makespan_s for run in virtual.values()]
    together = sum(each) + unmodelled * min(each)
    return float(min(FASTEST, max(FAST, round(together / SECONDS))))


def document(
    workload: Workload, bounds: Bounds, runs: Mapping[str, Run], virtual: Mapping[str, Run], factor: float | None
) -> dict[str, Any]:
    """Return the document of ``--json``. ``factor`` is the speed-up, or None for a demo in virtual time."""
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

"""``backoff-ctrl demo --gangs``: pods that compute only together, created one by one and through the gate."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from backoff_ctrl.api.exits import Failed
from backoff_ctrl.k8s.replay.gangs.gang_runs import GANG_CLIENTS, GangResult, run_gangs
from backoff_ctrl.k8s.replay.gangs.gang_workload import GangWorkload, with_gangs
from backoff_ctrl.k8s.replay.reference import area_bound, arrival_bound
from backoff_ctrl.k8s.replay.runs import ReplayError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.progress import Progress

    from backoff_ctrl.k8s.replay.workload import Workload

WIDE: Final = 110
"""Columns where the width of the terminal is not known."""
LEGEND: Final = {
    "plain": "creates the members one by one, each with retries (random exponential back-off, up to 60 s)",
    "gate_observing": "backoff-ctrl watching the quotas: a gang waits as one, and is created when all of it fits",
}


def run_all_gangs(workload: Workload, progress: Progress) -> tuple[GangWorkload, dict[str, GangResult]]:
    """Put gangs into the workload and run every client. Raises ``Failed`` if a run ends early."""
    work = with_gangs(workload)
    results: dict[str, GangResult] = {}
    task = progress.add_task("gangs", total=len(GANG_CLIENTS))
    for name in GANG_CLIENTS:
        try:
            results[name] = run_gangs(work, name)
        except ReplayError as error:
            raise Failed(f"{name}: {error}") from error
        progress.advance(task)
    return work, results


def document_of_gangs(work: GangWorkload, results: Mapping[str, GangResult]) -> dict[str, Any]:
    """Return what ``--json`` adds to the demo's document."""
    return {
        "gangs": len(work.gangs),
        "pods_in_gangs": work.members,
        "sizes": [len(gang) for gang in work.gangs],
        "area_bound_s": area_bound(work.workload),
        "clients": {name: dataclasses.asdict(result) for name, result in results.items()},
    }


def check_gangs(results: Mapping[str, GangResult]) -> None:
    """Raise ``Failed`` if a pod was created twice, or the gate lost one: plain creation may stand still."""
    wrong = [
        f"{name}: {result.lost} lost, {result.duplicated} duplicated"
        for name, result in results.items()
        if result.duplicated or (result.lost and result.stood_still_at_s is None) or (result.lost and name != "plain")
    ]
    if wrong:
        raise Failed(f"not every pod was created exactly once: {'; '.join(wrong)}")


def print_gangs(work: GangWorkload, source: str, results: Mapping[str, GangResult]) -> None:
    """Print the size of the workload, the table, and what its rows and columns mean."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=WIDE, highlight=False)
    workload, sizes = work.workload, [len(gang) for gang in work.gangs]
    gangs = f"{work.members} of them in {len(sizes)} gangs of {min(sizes)} to {max(sizes)}" if sizes else "no gangs"
    console.print(
        f"{len(workload.pods)} pods of {Path(source).name}, {gangs}, in {len(workload.quotas)} namespaces with a quota "
        "each; in virtual time.",
        soft_wrap=True,
    )
    console.print(_table(results, len(sizes)))
    console.print(*(f"  {name:15} {meaning}" for name, meaning in LEGEND.items()), sep="\n", soft_wrap=True)
    bound = max(area_bound(workload), arrival_bound(workload))
    console.print(
        "\nheld a half: some members lived for over a second without the others. A gang runs only once all of it "
        "lives.\n"
        "computes nothing: the time that members of incomplete gangs held quota, in pod-seconds.\n"
        f"makespan: from the first arrival to the end of the last pod. It cannot be below {bound:,.0f} s here.",
        soft_wrap=True,
    )
    for line in _sentences(work, results):
        console.print(line, soft_wrap=True)


def _table(results: Mapping[str, GangResult], gangs: int) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.caption, table.caption_justify = "All times are in seconds of the trace.", "left"
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right", no_wrap=True)
    for label, cell in _rows(gangs).items():
        table.add_row(label, *(cell(result) for result in results.values()))
    return table


def _rows(gangs: int) -> dict[str, Callable[[GangResult], str]]:
    """Return the table's rows: a label, and what makes a client's cell."""
    return {
        "creates sent": lambda result: f"{result.creates_sent:,}",
        "refused": lambda result: f"{result.refused:,}",
        "gangs complete": lambda result: f"{result.gangs_complete} of {gangs}",
        "gangs that held a half": lambda result: f"{result.gangs_held_half}",
        "longest half": lambda result: _seconds(result.half_held_longest_s),
        "computes nothing": lambda result: f"{result.half_held_pod_s:,.0f} pod-s",
        "gangs wait, p50": lambda result: _seconds(result.gang_wait_p50_s),
        "gangs wait, p95": lambda result: _seconds(result.gang_wait_p95_s),
        "singles wait, p50": lambda result: _seconds(result.single_wait_p50_s),
        "singles wait, p95": lambda result: _seconds(result.single_wait_p95_s),
        "makespan": lambda result: _seconds(result.makespan_s),
    }


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:,.0f} s"


def _sentences(work: GangWorkload, results: Mapping[str, GangResult]) -> Iterator[str]:
    """Say which clients stand still for ever, and whether the others created every pod once."""
    ended = []
    for name, result in results.items():
        if result.stood_still_at_s is None:
            ended.append(name)
        else:
            yield (
                f"{name} stands still for ever from {result.stood_still_at_s:,.0f} s on: the "
                f"{len(work.gangs) - result.gangs_complete} gangs that are not complete hold the quota that they wait "
                f"for. {result.lost} pods are never created."
            )
    if ended and not any(results[name].lost or results[name].duplicated for name in ended):
        yield f"Created every pod exactly once, as counted at the server: {', '.join(ended)}."

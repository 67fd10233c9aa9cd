"""``backoff-ctrl demo``: compare plain retries, Flyte 1's back-off and the gate on one recorded workload.

The clients, the workload and the references are in ``k8s/lab/replay``; this module chooses, runs and shows them: in
virtual time, then over HTTP on an embedded sandbox or, with ``cluster``, on a real cluster. The run in virtual
time comes first in any case: its length decides the speed-up with which all clients together take about the wanted
time. ``loop`` is ``--keep-going``: one gate on one sandbox replays slice after slice.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from backoff_ctrl.api.commands.cluster_options import CONTEXT
from backoff_ctrl.api.exits import BadInput, Failed
from backoff_ctrl.k8s.lab.replay.clients import CLIENTS, ReplayError, Result, Run, run_in_virtual_time
from backoff_ctrl.k8s.lab.replay.gangs import GANG_CLIENTS, GangResult, run_gangs, with_gangs
from backoff_ctrl.k8s.lab.replay.picture import draw
from backoff_ctrl.k8s.lab.replay.reference import Bounds, area_bound, arrival_bound, bounds_of
from backoff_ctrl.k8s.lab.replay.workload import PACKAGED, Workload, make_workload, read_trace

from .output import draw_and_say, progress_display

RunOne = Callable[[Workload, str, float, Callable[[], object]], Run]
"""Runs one client over HTTP: gets the workload, the client's name, the speed-up and a callback for each pod."""

PICTURE: Final = Path("build/demo.svg")
WIDE: Final = 110  # columns: the table with padding
NARROWEST: Final = 80  # columns: narrower terminals wrap lines, which is better than cut numbers
FASTEST: Final = 200.0
"""The largest speed-up: beyond it, the latencies of real HTTP distort the result."""
FAST: Final = 150.0
"""The smallest speed-up: a small workload takes less time instead of running slower."""
SECONDS: Final = 80.0
"""The target for all clients together, within these two bounds."""
ON_CLUSTER: Final = 60.0
"""The speed-up on a real cluster, whose controller manager writes at most 20 releases a second."""
LEGEND: Final = {
    "plain": "retries with random exponential back-off, up to 60 s",
    "ancestor": "Flyte 1's back-off, which learns from the text of refusals",
    "gate_learning": "backoff-ctrl without the right to watch quotas: it learns from refusals",
    "gate_observing": "backoff-ctrl watching the quotas",
    "proxy": "plain, unchanged, behind the sidecar: backoff-ctrl proxy",
    "reference": "a yardstick that knows the quotas and is never refused: the better of two algorithms per column",
}
_OF_PODS: Final = {"trace", "pods", "virtual", "kubeconfig", "context", "keep_going", "gangs"}
"""What is about a replay of pods."""
GANG_LEGEND: Final = {
    "plain": "creates the members one by one, each with retries (random exponential back-off, up to 60 s)",
    "gate_observing": "backoff-ctrl watching the quotas: a gang waits as one, and is created when all of it fits",
}


@click.command("demo")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="A CSV file in the format of openb_pod_list_default.csv; default: the packaged trace.",
)
@click.option(
    "--pods", type=click.IntRange(1, 5000), default=200, show_default=True, help="The number of pods to replay."
)
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Chooses where in the trace the slice starts."
)
@click.option("--virtual", is_flag=True, help="Simulate in virtual time only: no server, no waiting.")
@click.option(
    "--kubeconfig", metavar="FILE", help="Run on this cluster, in new namespaces that are deleted at the end."
)
@CONTEXT
@click.option("--keep-going", is_flag=True, help="Replay through the gate repeatedly, until Ctrl-C.")
@click.option(
    "--gangs",
    is_flag=True,
    help="Put a fifth of the pods into gangs that compute only as a whole; in virtual time.",
)
@click.option(
    "--jobs",
    is_flag=True,
    help="Compare the plain Job controller with the operator, on Jobs under a full quota; writes build/jobs.svg.",
)
@click.option(
    "--controller-manager",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="With --jobs: the kube-controller-manager that makes the pods; default: the one on the PATH, else a simulated "
    "Job controller.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document only.")
def command(  # noqa: PLR0913, PLR0917 - options of the command line
    trace: Path | None,
    pods: int,
    seed: int,
    virtual: bool,
    kubeconfig: str | None,
    context: str | None,
    keep_going: bool,
    gangs: bool,
    jobs: bool,
    controller_manager: Path | None,
    as_json: bool,
) -> None:
    """Compare plain retries, Flyte 1's back-off (the ancestor) and the gate on a recorded workload.

    Replays a slice of a public cluster trace at higher speed, once with each client, over real HTTP against an
    embedded API server with quotas that fill up. Prints one table and draws build/demo.svg.

    With --kubeconfig or --context it runs against a real cluster instead. No node ever runs the pods: they name a
    scheduler that does not exist and have a scheduling gate, and the demo marks them Succeeded after their run time.

    With --gangs it compares creating the pods of a gang one by one with letting the gate admit them as one.

    With --jobs it runs the same Jobs in two namespaces, with the Job controller alone and with backoff-ctrl operator.
    """
    _refuse_combinations(click.get_current_context())
    if jobs:
        from .jobs import compare_jobs  # noqa: PLC0415 - imports aiohttp

        compare_jobs(seed=seed, program=controller_manager, as_json=as_json)
        return
    rows = read_trace(trace or PACKAGED)
    workload = make_workload(rows, pods=pods, seed=seed)
    if keep_going:
        from .loop import keep_replaying  # noqa: PLC0415 - imports aiohttp

        keep_replaying(rows, pods, seed)
        return
    if gangs:
        _compare_gangs(workload, rows.source, as_json=as_json)
        return
    with progress_display() as progress:
        if kubeconfig is not None or context is not None:
            from .cluster import on_cluster_of  # noqa: PLC0415 - imports the client: 0.25 s

            with on_cluster_of(kubeconfig, context, progress) as run_one:
                compared = _run_all(workload, progress, run_one, factor=ON_CLUSTER)
        elif virtual:
            compared = _run_all(workload, progress)
        else:
            from backoff_ctrl.k8s.lab.replay.over_http import PROXY, has_proxy, run_on_sandbox  # noqa: PLC0415 - the same

            if not has_proxy():
                click.echo("no row for the sidecar: pip install 'backoff-ctrl[proxy]'", err=True)
            compared = _run_all(workload, progress, run_on_sandbox, also=[PROXY] if has_proxy() else [])
    if as_json:
        click.echo(json.dumps(document(compared), indent=2))
    else:
        _print(compared, rows.source)
    draw_and_say(partial(draw, compared.workload, list(compared.runs.values())), PICTURE)
    _check({name: run.result for name, run in compared.runs.items()})


def _refuse_combinations(context: click.Context) -> None:
    """Raise ``UsageError`` for options of two comparisons."""
    given = {name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    for one, excluded, which in (
        ({"kubeconfig", "context"}, {"virtual", "keep_going"}, "--kubeconfig and --context run on a cluster: they"),
        ({"keep_going"}, {"virtual", "as_json"}, "--keep-going shows a live table over HTTP: it"),
        ({"gangs"}, {"kubeconfig", "context", "keep_going"}, "--gangs runs in virtual time: it"),
        ({"jobs"}, _OF_PODS, "--jobs runs Jobs of its own on a sandbox: it"),
    ):
        if one & given and (wrong := sorted(excluded & given)):
            names = " or ".join("--json" if name == "as_json" else f"--{name.replace('_', '-')}" for name in wrong)
            raise click.UsageError(f"{which} cannot be combined with {names}")
    if "controller_manager" in given and "jobs" not in given:
        raise click.UsageError("--controller-manager says who makes the pods of --jobs: give that, too")


@dataclass(frozen=True, slots=True)
class Compared:
    """A workload's bounds, the runs to show, those in virtual time, and the speed-up; that is None without HTTP."""

    workload: Workload
    bounds: Bounds
    runs: Mapping[str, Run]
    in_virtual_time: Mapping[str, Run]
    factor: float | None = None


def _run_all(
    workload: Workload,
    progress: Progress,
    run_one: RunOne | None = None,
    *,
    also: Sequence[str] = (),
    factor: float | None = None,
) -> Compared:
    """Run every client in virtual time, then over HTTP if a way there is given: there the clients ``also``, too."""
    bounds = bounds_of(workload)
    in_virtual_time = {
        name: run_in_virtual_time(workload, name) for name in progress.track(CLIENTS, description="virtual time")
    }
    if run_one is None:
        return Compared(workload, bounds, in_virtual_time, in_virtual_time)
    factor = factor or factor_for(in_virtual_time, len(also))
    tasks = {name: progress.add_task(name, total=len(workload.pods), start=False) for name in (*CLIENTS, *also)}
    runs = {}
    for name, bar in tasks.items():
        progress.start_task(bar)
        try:
            runs[name] = run_one(workload, name, factor, partial(progress.advance, bar))
        except KeyboardInterrupt:
            placed = int(progress.tasks[bar].completed)
            click.echo(f"{name}: interrupted after {placed} of {len(workload.pods)} pods were created", err=True)
            raise
        except ReplayError as error:
            raise Failed(f"{name}: {error}") from error
        except OSError as error:
            raise BadInput(f"cannot run the sandbox on this machine: {error}") from error
    return Compared(workload, bounds, runs, in_virtual_time, factor)


def factor_for(virtual: Mapping[str, Run], unmodelled: int = 0) -> float:
    """Return the speed-up with which all clients together take about ``SECONDS``, within ``FAST`` and ``FASTEST``.

    ``unmodelled`` more of them have no model in virtual time; each takes as long as the quickest.
    """
    each = [run.result.makespan_s for run in virtual.values()]
    together = sum(each) + unmodelled * min(each)
    return float(min(FASTEST, max(FAST, round(together / SECONDS))))


def document(compared: Compared) -> dict[str, Any]:
    workload = compared.workload
    return {
        "pods": len(workload.pods),
        "virtual": compared.factor is None,
        "seed": workload.seed,
        "first_row": workload.first_row,
        "rows": workload.rows,
        "dropped_rows": workload.dropped,
        "namespaces": workload.hard(),
        "factor": compared.factor,
        "reference": compared.bounds._asdict(),
        "clients": {name: dataclasses.asdict(each.result) for name, each in compared.runs.items()},
        "in_virtual_time": {name: dataclasses.asdict(each.result) for name, each in compared.in_virtual_time.items()},
    }


def _show(sentence: str, headings: Sequence[str], rows: Iterable[Sequence[str]], legend: Iterable[str]) -> Console:
    """Print the size of the workload, the table, and what its names mean; return where more may be printed."""
    terminal = Console()
    width = max(terminal.width, NARROWEST) if terminal.is_terminal else WIDE
    console = Console(width=width, highlight=False, soft_wrap=True)
    console.print(sentence)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1 if width >= WIDE else 0), pad_edge=False)
    table.caption, table.caption_justify = "All times are in seconds of the trace.", "left"
    for heading in headings:
        first = not table.columns
        table.add_column(heading, justify="left" if first else "right", no_wrap=first)
    for cells in rows:
        table.add_row(*cells)
    console.print(table, soft_wrap=False)
    console.print(*legend, sep="\n")
    return console


def _print(compared: Compared, source: str) -> None:
    workload, runs, factor = compared.workload, compared.runs, compared.factor
    last = max(pod.arrival for pod in workload.pods)
    speed = "in virtual time" if factor is None else f"over HTTP, {factor:.0f} times faster than recorded"
    first = workload.first_row
    headings = ["client", "creates\nsent", "refused", "calls\nsaved", "wait\np50", "wait\np95", "makespan"]
    headings += [] if factor is None else ["creates\nvs virtual\ntime", "makespan\nvs virtual\ntime"]
    console = _show(
        f"{len(workload.pods)} pods of {Path(source).name} (rows {first}-{first + len(workload.pods) - 1} of the "
        f"{workload.rows:,} that ran; {workload.dropped:,} never did), in {len(workload.quotas)} namespaces with a "
        f"quota each. They arrive over {last:,.0f} s, replayed {speed}.",
        headings,
        _rows(compared),
        ["", *(f"  {name:15} {meaning}" for name, meaning in LEGEND.items() if name in {*runs, "reference"})],
    )
    bound = max(compared.bounds.area_bound_s, compared.bounds.arrival_bound_s)
    console.print(
        "\ncalls saved: creates not sent, compared with plain.\n"
        f"makespan: from the first arrival to the end of the last pod. It cannot be below {bound:,.0f} s here (the "
        "larger of demand x time / quota and last arrival + run time)."
    )
    if factor is not None:
        console.print("vs virtual time: compared with a simulation of the same replay, without a server.")
    if not any(run.result.lost or run.result.duplicated for run in runs.values()):
        console.print("Every client created every pod exactly once, as counted at the server.")


def _rows(compared: Compared) -> Iterator[list[str]]:
    plain = compared.runs["plain"].result.creates_sent
    for name, run in compared.runs.items():
        result = run.result
        saved = f"{100 * (plain - result.creates_sent) / plain:.0f} %" if name != "plain" else ""
        cells = [name, f"{result.creates_sent:,}", f"{result.refused:,}", saved]
        cells += [_seconds(each) for each in (result.wait_p50_s, result.wait_p95_s, result.makespan_s)]
        if compared.factor is not None and name in compared.in_virtual_time:
            model = compared.in_virtual_time[name].result
            cells.append(f"{100 * (result.creates_sent / model.creates_sent - 1):+.1f} %")
            cells.append(f"{100 * (result.makespan_s / model.makespan_s - 1):+.1f} %")
        yield cells
    bounds = compared.bounds
    best = (bounds.wait_p50_s, bounds.wait_p95_s, bounds.makespan_s)
    yield ["reference", "", "", "", *map(_seconds, best)]


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:,.0f} s"


def _check(results: Mapping[str, Result | GangResult]) -> None:
    """Raise ``Failed`` if one of these lost a pod or created it twice."""
    wrong = [
        f"{name}: {result.lost} lost, {result.duplicated} duplicated"
        for name, result in results.items()
        if result.lost or result.duplicated
    ]
    if wrong:
        raise Failed(f"not every pod was created exactly once: {'; '.join(wrong)}")


# -- gangs ---------


GANG_ROWS: Final[Mapping[str, Callable[[GangResult], str]]] = {
    "creates sent": lambda result: f"{result.creates_sent:,}",
    "refused": lambda result: f"{result.refused:,}",
    "gangs complete": lambda result: f"{result.gangs_complete} of {{gangs}}",
    "gangs that held a half": lambda result: f"{result.gangs_held_half}",
    "longest half": lambda result: _seconds(result.half_held_longest_s),
    "held idle": lambda result: f"{result.half_held_pod_s:,.0f} pod-s",
    "gangs wait, p50": lambda result: _seconds(result.gang_wait_p50_s),
    "gangs wait, p95": lambda result: _seconds(result.gang_wait_p95_s),
    "singles wait, p50": lambda result: _seconds(result.single_wait_p50_s),
    "singles wait, p95": lambda result: _seconds(result.single_wait_p95_s),
    "makespan": lambda result: _seconds(result.makespan_s),
}
"""The rows of the table of gangs: a label, and what makes a client's cell."""


def _compare_gangs(workload: Workload, source: str, *, as_json: bool) -> None:
    """Run the comparison of gangs. Its document adds to that of ``--virtual``: the same pods, without gangs."""
    work = with_gangs(workload)
    results: dict[str, GangResult] = {}
    with progress_display() as progress:
        for name in progress.track(GANG_CLIENTS, description="gangs"):
            try:
                results[name] = run_gangs(work, name)
            except ReplayError as error:
                raise Failed(f"{name}: {error}") from error
        compared = _run_all(workload, progress) if as_json else None
    if compared:
        sizes = [len(gang) for gang in work.gangs]
        more = {
            "gangs": len(sizes),
            "pods_in_gangs": sum(sizes),
            "sizes": sizes,
            "area_bound_s": area_bound(work),
            "clients": {name: dataclasses.asdict(result) for name, result in results.items()},
        }
        click.echo(json.dumps({**document(compared), "gangs": more}, indent=2))
    else:
        _print_gangs(work, source, results)
    # Only plain creation may stand still for ever.
    stuck = [name for name, result in results.items() if name == "plain" and result.stood_still_at_s is not None]
    _check({name: result for name, result in results.items() if result.duplicated or name not in stuck})


def _print_gangs(work: Workload, source: str, results: Mapping[str, GangResult]) -> None:
    sizes = [len(gang) for gang in work.gangs]
    gangs = f"{sum(sizes)} of them in {len(sizes)} gangs of {min(sizes)} to {max(sizes)}" if sizes else "no gangs"
    console = _show(
        f"{len(work.pods)} pods of {Path(source).name}, {gangs}, in {len(work.quotas)} namespaces with a quota each; "
        "in virtual time.",
        ["", *results],
        (
            [label, *(cell(result).format(gangs=len(sizes)) for result in results.values())]
            for label, cell in GANG_ROWS.items()
        ),
        (f"  {name:15} {meaning}" for name, meaning in GANG_LEGEND.items()),
    )
    console.print(
        "\nheld a half: some members lived for over a second without the others. A gang runs only once all of it "
        "lives.\n"
        "held idle: the time that members of incomplete gangs held quota, in pod-seconds.\n"
        "makespan: from the first arrival to the end of the last pod. It cannot be below "
        f"{max(area_bound(work), arrival_bound(work)):,.0f} s here."
    )
    ended = {name: result for name, result in results.items() if result.stood_still_at_s is None}
    for name, result in results.items():
        if result.stood_still_at_s is not None:
            console.print(
                f"{name} is deadlocked from {result.stood_still_at_s:,.0f} s on: the "
                f"{len(sizes) - result.gangs_complete} gangs that are not complete hold the quota that they wait for. "
                f"{result.lost} pods are never created."
            )
    if ended and not any(result.lost or result.duplicated for result in ended.values()):
        console.print(f"Created every pod exactly once, as counted at the server: {', '.join(ended)}.")

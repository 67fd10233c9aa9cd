"""``backoff-ctrl demo``: compare plain retries, Flyte 1's back-off and the gate on one recorded workload."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from backoff_ctrl.api.exits import BadInput, Failed
from backoff_ctrl.k8s.replay.behind_proxy import PROXY, has_proxy
from backoff_ctrl.k8s.replay.comparing import CLIENTS, Bounds, bounds_of
from backoff_ctrl.k8s.replay.demonstration import (
    ON_CLUSTER,
    Run,
    document,
    factor_for,
    run_for_real,
    run_in_virtual_time,
)
from backoff_ctrl.k8s.replay.picture import PictureError, draw
from backoff_ctrl.k8s.replay.runs import ReplayError
from backoff_ctrl.k8s.replay.trace import PACKAGED, read_trace
from backoff_ctrl.k8s.replay.workload import Workload, make_workload

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from .on_cluster import RunOne

PICTURE: Final = Path("build/demo.svg")
WIDE: Final = 110  # columns: the table with padding
NARROWEST: Final = 80  # columns: narrower terminals wrap lines, which is better than cut numbers
LEGEND: Final = {
    "plain": "retries with random exponential back-off, up to 60 s",
    "ancestor": "Flyte 1's back-off, which learns from the text of refusals",
    "gate_learning": "backoff-ctrl without the right to watch quotas: it learns from refusals",
    "gate_observing": "backoff-ctrl watching the quotas",
    "proxy": "plain, unchanged, behind the sidecar: backoff-ctrl proxy",
    "reference": "a yardstick that knows the quotas and is never refused: the better of two algorithms per column",
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
@click.option("--context", help="The context in the kubeconfig; default: the current one.")
@click.option("--keep-going", is_flag=True, help="Replay through the gate repeatedly, until Ctrl-C.")
@click.option(
    "--gangs",
    is_flag=True,
    help="Put a fifth of the pods into gangs that compute only as a whole; in virtual time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
def command(  # noqa: PLR0913, PLR0917 - options of the command line
    trace: Path | None,
    pods: int,
    seed: int,
    virtual: bool,
    kubeconfig: str | None,
    context: str | None,
    keep_going: bool,
    gangs: bool,
    as_json: bool,
) -> None:
    """Compare plain retries, Flyte 1's back-off (the ancestor) and the gate on a recorded workload.

    Replays a slice of a public cluster trace at higher speed, once with each client, over real HTTP against an
    embedded API server with quotas that fill up. Prints one table and draws build/demo.svg.

    With --kubeconfig or --context it runs against a real cluster instead. No node ever runs the pods: they name a
    scheduler that does not exist and have a scheduling gate, and the demo marks them Succeeded after their run time.

    With --gangs it compares creating the pods of a gang one by one with letting the gate admit them as one.
    """
    on_cluster = kubeconfig is not None or context is not None
    if on_cluster and (virtual or keep_going):
        raise click.UsageError(
            "--kubeconfig and --context run on a cluster: they cannot be combined with --virtual or --keep-going"
        )
    if keep_going and (virtual or as_json):
        raise click.UsageError(
            "--keep-going shows a live table over HTTP: it cannot be combined with --virtual or --json"
        )
    if gangs and (on_cluster or keep_going):
        raise click.UsageError(
            "--gangs runs in virtual time: it cannot be combined with --kubeconfig, --context or --keep-going"
        )
    rows = read_trace(trace or PACKAGED)
    workload = make_workload(rows, pods=pods, seed=seed)
    if keep_going:
        from .loop import keep_replaying  # noqa: PLC0415

        keep_replaying(rows, pods, seed)
        return
    if gangs:
        _compare_gangs(workload, rows.source, as_json=as_json)
        return
    with _progress() as progress:
        if on_cluster:
            from .on_cluster import on_cluster_of  # noqa: PLC0415 - imports the client: 0.25 s

            with on_cluster_of(kubeconfig, context, progress) as run_one:
                bounds, runs, in_virtual_time, factor = _run_all(workload, virtual, progress, run_one, ON_CLUSTER)
        else:
            bounds, runs, in_virtual_time, factor = _run_all(workload, virtual, progress)
    if as_json:
        click.echo(json.dumps(document(workload, bounds, runs, in_virtual_time, factor), indent=2))
    else:
        _print(workload, rows.source, bounds, runs, in_virtual_time, factor)
    _draw(workload, runs)
    _check(runs)


def _compare_gangs(workload: Workload, source: str, *, as_json: bool) -> None:
    """Run the comparison of gangs. Its document is that of ``--virtual`` (the same pods, none in gangs) and more."""
    from .with_gangs import check_gangs, document_of_gangs, print_gangs, run_all_gangs  # noqa: PLC0415 - seldom asked

    with _progress() as progress:
        work, results = run_all_gangs(workload, progress)
    if as_json:
        with _progress() as progress:
            told = document(workload, *_run_all(workload, virtual=True, progress=progress))
        click.echo(json.dumps({**told, "gangs": document_of_gangs(work, results)}, indent=2))
    else:
        print_gangs(work, source, results)
    check_gangs(results)


def _run_all(
    workload: Workload,
    virtual: bool,
    progress: Progress,
    run_one: RunOne = run_for_real,
    factor: float | None = None,
) -> tuple[Bounds, Mapping[str, Run], Mapping[str, Run], float | None]:
    """Run every client in virtual time, then over HTTP unless ``virtual`` is set; there also behind the sidecar."""
    bounds = bounds_of(workload)
    in_virtual_time = {}
    task = progress.add_task("virtual time", total=len(CLIENTS))
    for name in CLIENTS:
        in_virtual_time[name] = run_in_virtual_time(workload, name)
        progress.advance(task)
    if virtual:
        return bounds, in_virtual_time, in_virtual_time, None
    behind = _behind_proxy(run_one)
    names = [*CLIENTS, *behind]
    factor = factor or factor_for(in_virtual_time, len(behind))
    tasks = {name: progress.add_task(name, total=len(workload.pods), start=False) for name in names}
    runs = {}
    for name, bar in tasks.items():
        progress.start_task(bar)
        try:
            runs[name] = run_one(workload, name, factor, partial(_completed, progress, bar))
        except KeyboardInterrupt:
            placed = int(progress.tasks[bar].completed)
            click.echo(f"{name}: interrupted after {placed} of {len(workload.pods)} pods were created", err=True)
            raise
        except ReplayError as error:
            raise Failed(f"{name}: {error}") from error
        except OSError as error:
            raise BadInput(f"cannot run the sandbox on this machine: {error}") from error
    return bounds, runs, in_virtual_time, factor


def _behind_proxy(run_one: RunOne) -> list[str]:
    """Return the row with the sidecar, which stands before the sandbox only; say so if its packages are missing."""
    if run_one is not run_for_real:
        return []
    if not has_proxy():
        click.echo("no row for the sidecar: pip install 'backoff-ctrl[proxy]'", err=True)
        return []
    return [PROXY]


def _completed(progress: Progress, bar: TaskID, placed: int) -> None:
    progress.update(bar, completed=placed)


def _print(
    workload: Workload,
    source: str,
    bounds: Bounds,
    runs: Mapping[str, Run],
    in_virtual_time: Mapping[str, Run],
    factor: float | None,
) -> None:
    """Print the size of the workload, the table, and what its rows and columns mean."""
    terminal = Console()
    width = max(terminal.width, NARROWEST) if terminal.is_terminal else WIDE
    console = Console(width=width, highlight=False)
    last = max(pod.arrival for pod in workload.pods)
    speed = "in virtual time" if factor is None else f"over HTTP, {factor:.0f} times faster than recorded"
    first = workload.first_row
    console.print(
        f"{len(workload.pods)} pods of {Path(source).name} (rows {first}-{first + len(workload.pods) - 1} of the "
        f"{workload.rows:,} that ran; {workload.dropped:,} never did), in {len(workload.quotas)} namespaces with a "
        f"quota each. They arrive over {last:,.0f} s, replayed {speed}.",
        soft_wrap=True,
    )
    table = Table(box=SIMPLE_HEAD, padding=(0, 1 if width >= WIDE else 0), pad_edge=False)
    table.caption, table.caption_justify = "All times are in seconds of the trace.", "left"
    table.add_column("client", no_wrap=True)
    headings = ["creates\nsent", "refused", "calls\nsaved", "wait\np50", "wait\np95", "makespan"]
    headings += [] if factor is None else ["creates\nvs virtual\ntime", "makespan\nvs virtual\ntime"]
    for heading in headings:
        table.add_column(heading, justify="right")
    for cells in _rows(bounds, runs, in_virtual_time, len(headings), factor is None):
        table.add_row(*cells)
    console.print(table)
    _print_legend(console, bounds, {*runs, "reference"}, factor is None)
    if not any(run.result.lost or run.result.duplicated for run in runs.values()):
        console.print("Every client created every pod exactly once, as counted at the server.")


def _print_legend(console: Console, bounds: Bounds, shown: Collection[str], virtual: bool) -> None:
    """Print what the table's rows and columns mean."""
    bound = max(bounds.area_bound_s, bounds.arrival_bound_s)
    meanings = (f"  {name:15} {meaning}" for name, meaning in LEGEND.items() if name in shown)
    console.print("", *meanings, sep="\n", soft_wrap=True)
    console.print(
        "\ncalls saved: creates not sent, compared with plain.\n"
        f"makespan: from the first arrival to the end of the last pod. It cannot be below {bound:,.0f} s here (the "
        "larger of demand x time / quota and last arrival + run time).",
        soft_wrap=True,
    )
    if not virtual:
        console.print("vs virtual time: compared with a simulation of the same replay, without a server.")


def _rows(
    bounds: Bounds, runs: Mapping[str, Run], in_virtual_time: Mapping[str, Run], columns: int, virtual: bool
) -> Iterator[list[str]]:
    plain = runs["plain"].result.creates_sent
    for name, run in runs.items():
        result = run.result
        saved = f"{100 * (plain - result.creates_sent) / plain:.0f} %" if name != "plain" else ""
        cells = [name, f"{result.creates_sent:,}", f"{result.refused:,}", saved]
        cells += [f"{seconds:,.0f} s" for seconds in (result.wait_p50_s, result.wait_p95_s, result.makespan_s)]
        if not virtual and (modelled := in_virtual_time.get(name)) is not None:
            model = modelled.result
            cells.append(f"{100 * (result.creates_sent / model.creates_sent - 1):+.1f} %")
            cells.append(f"{100 * (result.makespan_s / model.makespan_s - 1):+.1f} %")
        yield cells + [""] * (columns + 1 - len(cells))
    best = (bounds.wait_p50_s, bounds.wait_p95_s, bounds.makespan_s)
    cells = ["reference", "", "", "", *(f"{seconds:,.0f} s" for seconds in best)]
    yield cells + [""] * (columns + 1 - len(cells))


def _draw(workload: Workload, runs: Mapping[str, Run]) -> None:
    """Draw the picture. If matplotlib is missing, only say so: the figures are printed anyway."""

    try:
        draw(workload, [run.panel for run in runs.values()], PICTURE)
    except PictureError as error:
        click.echo(str(error), err=True)
    except OSError as error:
        click.echo(f"no picture: cannot write {PICTURE}: {error.strerror}", err=True)
    else:
        click.echo(f"The picture is in {PICTURE}.", err=True)


def _check(runs: Mapping[str, Run]) -> None:
    """Raise ``Failed`` if a pod was lost or created twice."""
    wrong = [
        f"{name}: {run.result.lost} lost, {run.result.duplicated} duplicated"
        for name, run in runs.items()
        if run.result.lost or run.result.duplicated
    ]
    if wrong:
        raise Failed(f"not every pod was created exactly once: {'; '.join(wrong)}")


def _progress() -> Progress:
    """Return a progress display on stderr that disappears at the end."""

    columns = (TextColumn("{task.description:15}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_interactive)

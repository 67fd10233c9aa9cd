"""``python -m backoff_ctrl.k8s.lab.replay.figures``: the published figures, in virtual time and reproducible to the
byte.

Exits 0 if every bar is met, 1 after listing the bars that are missed, 2 for an invalid trace or invalid seeds.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from .clients import CLIENTS, Result, run_in_virtual_time
from .reference import Bounds, bounds_of
from .workload import PACKAGED, TraceError, make_workload, read_trace

OUT: Final = Path("build/figures.json")
ADMISSIONS_MIN: Final = 3000  # fewer admissions can't show 1 refusal per 1,000
PUBLISHED: Final = (list(range(1, 10)), 400)  # what the README prints: seeds and pods


@dataclass(frozen=True, slots=True)
class Job:
    """One workload and all its clients: the unit of work of a process. Picklable."""

    seed: int
    pods: int
    trace: Path = PACKAGED


Finished = tuple[Job, Bounds, dict[str, Result]]
Figures = dict[str, float]
"""A client's figures by name: its result, and its ratios to the better reference."""


def work(job: Job) -> Finished:
    """Make the job's workload and run its clients."""
    workload = make_workload(read_trace(job.trace), pods=job.pods, seed=job.seed)
    return job, bounds_of(workload), {name: run_in_virtual_time(workload, name).result for name in CLIENTS}


def compare(result: Result, bounds: Bounds) -> Figures:
    return {
        **dataclasses.asdict(result),
        "refused_per_admitted": result.refused_per_admitted,
        "makespan_ratio": _ratio(result.makespan_s, bounds.makespan_s),
        "wait_p50_ratio": _ratio(result.wait_p50_s, bounds.wait_p50_s),
        "wait_p95_ratio": _ratio(result.wait_p95_s, bounds.wait_p95_s),
    }


def _ratio(measured: float, reference: float) -> float:
    """Return measured / reference; 1.0 if both are under a second, where latencies dominate."""
    if measured < 1.0 and reference < 1.0:
        return 1.0
    return measured / reference if reference else float("inf")


def summarize(runs: list[Figures]) -> Figures:
    """Summarize one client's runs, one per seed: medians, except that admitted, lost and duplicated pods are summed.

    ``refused_per_1000`` is of all seeds together.
    """
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    total = {name: sum(run[name] for run in runs) for name in runs[0]}
    return {
        "creates_sent": median["creates_sent"],
        "refused": median["refused"],
        "refused_per_admitted": median["refused_per_admitted"],
        "refused_per_1000": 1000 * total["refused"] / max(1, total["admitted"]),
        "admitted": total["admitted"],
        "makespan_ratio": median["makespan_ratio"],
        "wait_p50_ratio": median["wait_p50_ratio"],
        "wait_p95_ratio": median["wait_p95_ratio"],
        "lost": total["lost"],
        "duplicated": total["duplicated"],
    }


BARS: Final[list[tuple[str, str, float]]] = [
    ("gate_learning", "refused_per_admitted", 2.2),
    ("gate_learning", "makespan_ratio", 1.03),
    ("gate_learning", "wait_p95_ratio", 1.08),
    ("gate_observing", "refused_per_1000", 1.0),
    ("gate_observing", "makespan_ratio", 1.005),
    ("gate_observing", "wait_p95_ratio", 1.02),
]
"""The largest figures that are allowed, by client. For every client no pod may be lost or duplicated."""


def judge(summaries: Mapping[str, Figures]) -> list[dict[str, Any]]:
    """Compare the summaries with the bars."""
    none = [(client, figure, 0) for client in summaries for figure in ("lost", "duplicated")]
    return [
        {"client": client, "figure": figure, "at_most": at_most, "measured": measured, "met": measured <= at_most}
        for client, figure, at_most in [*BARS, *none]
        for measured in [summaries[client][figure]]
    ]


def report(finished: list[Finished]) -> dict[str, Any]:
    """Make the JSON document of all results."""
    runs: dict[str, list[Figures]] = {}
    for _, bounds, results in finished:
        for client, result in results.items():
            runs.setdefault(client, []).append(compare(result, bounds))
    summaries = {client: summarize(group) for client, group in runs.items()}
    return {
        "seeds": [job.seed for job, _, _ in finished],
        "pods": finished[0][0].pods,
        "clients": summaries,
        "bars": judge(summaries),
        "by_seed": [
            {
                "seed": job.seed,
                "reference": bounds._asdict(),
                "clients": {client: dataclasses.asdict(result) for client, result in results.items()},
            }
            for job, bounds, results in finished
        ],
    }


COLUMNS: Final = {
    "creates_sent": ("creates sent", ".0f"),
    "refused": ("refused", ".0f"),
    "refused_per_admitted": ("refused per\nadmitted", ".2f"),
    "makespan_ratio": ("makespan\nratio", ".3f"),
    "wait_p50_ratio": ("wait p50\nratio", ".3f"),
    "wait_p95_ratio": ("wait p95\nratio", ".3f"),
    "lost": ("lost", "d"),
    "duplicated": ("dupli-\ncated", "d"),
}
"""The table's columns: heading and format of each figure."""


def print_table(document: dict[str, Any]) -> None:
    table = Table(
        title=f"{document['pods']} pods, medians over seeds {document['seeds']}; ratios to the better reference",
        title_justify="left",
    )
    table.add_column("client")
    for heading in COLUMNS.values():
        table.add_column(heading[0], justify="right")
    for client, figures in document["clients"].items():
        table.add_row(client, *(f"{figures[name]:{form}}" for name, (_, form) in COLUMNS.items()))
    Console(width=110, highlight=False).print(table)
    gate = document["clients"]["gate_observing"]
    print(f"gate_observing: {gate['refused_per_1000']:.2f} refusals per 1,000 admissions, of {gate['admitted']:,}")


def parse_seeds(text: str) -> list[int]:
    """Parse ``1-9`` or ``1,4,7``. Raises ``click.BadParameter``."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isascii() and low.isdigit()) or (dash and not (high.isascii() and high.isdigit())):
            raise click.BadParameter(f"{part!r} is neither a seed nor a range of seeds such as 1-9")
        seeds += range(int(low), int(high or low) + 1)
    if not seeds or len(set(seeds)) != len(seeds) or len(seeds) > 1000:
        raise click.BadParameter(f"{text!r}: give 1 to 1000 different seeds, such as 1-9")
    return seeds


@click.command()
@click.option("--seeds", default="1-9", show_default=True, help="Seeds of the recipe: 1-9 or 1,4,7.")
@click.option("--pods", default=400, show_default=True, type=click.IntRange(1, 100_000), help="Pods per seed.")
@click.option("--processes", default=2, show_default=True, type=click.IntRange(1, 64))
@click.option("--trace", default=PACKAGED, type=click.Path(path_type=Path), help="Another trace in the same format.")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON document instead of the table.")
def main(seeds: str, pods: int, processes: int, trace: Path, as_json: bool) -> None:
    """Measure every client in virtual time, write build/figures.json and list the bars that are missed."""
    try:
        document = report(_measured([Job(seed, pods, trace) for seed in parse_seeds(seeds)], processes))
    except TraceError as err:
        raise click.UsageError(str(err)) from err
    OUT.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1)
    OUT.write_text(text + "\n", encoding="utf-8")
    if as_json:
        print(text)
    else:
        print_table(document)
        print(f"written to {OUT}")
    judge_aloud(document)


def _measured(jobs: list[Job], processes: int) -> list[Finished]:
    """Do the jobs, in separate processes if ``processes`` > 1, with a progress bar on stderr; return them in order."""
    console = Console(stderr=True)
    with ExitStack() as stack:
        pool = stack.enter_context(get_context("spawn").Pool(processes)) if processes > 1 else None
        results: Iterable[Finished] = pool.imap(work, jobs) if pool else map(work, jobs)
        hidden = not console.is_interactive
        return list(track(results, "replaying", len(jobs), console=console, transient=True, disable=hidden))


def judge_aloud(document: dict[str, Any]) -> None:
    """List the missed bars and exit 1. With unpublished seeds or pods only lost and duplicated pods count."""
    missed = [bar for bar in document["bars"] if not bar["met"]]
    if (document["seeds"], document["pods"]) != PUBLISHED:
        missed = [bar for bar in missed if bar["figure"] in ("lost", "duplicated")]
        click.echo("bars are checked for 400 pods and seeds 1-9 only", err=True)
    elif document["clients"]["gate_observing"]["admitted"] < ADMISSIONS_MIN:
        click.echo(f"missed: gate_observing has fewer than {ADMISSIONS_MIN} admissions", err=True)
        raise SystemExit(1)
    elif not missed:
        click.echo(f"all {len(document['bars'])} bars are met", err=True)
    for bar in missed:
        figure = f"{bar['client']}: {bar['figure']} is {bar['measured']:.4g}"
        click.echo(f"missed: {figure}, the bar is {bar['at_most']:g}", err=True)
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""``python -m backoff_ctrl.k8s.replay.figures``: the published figures, in virtual time and reproducible to the byte.

Exits 0 if every bar is met, 1 after listing the bars that are missed, 2 for an invalid trace or invalid seeds.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from backoff_ctrl.engine.policy import Policy

from .clients import CLIENTS, Result, make_client, run_in_virtual_time
from .reference import Bounds, bounds_of
from .workload import PACKAGED, RUN_TIME_CAP, TraceError, make_workload, read_trace

OUT: Final = Path("build/figures.json")
ADMISSIONS_MIN: Final = 3000  # fewer admissions can't show 1 refusal per 1,000
PUBLISHED: Final = (list(range(1, 10)), 400)  # what the README prints: seeds and pods
UNCAPPED: Final = ("gate_learning", "gate_observing")
PATIENT: Final = Policy(wait_max=31_536_000.0)
"""For uncapped run times: pods of the trace run for weeks, so others wait longer than the default limit of a day."""


@dataclass(frozen=True, slots=True)
class Job:
    """One workload and all its clients: the unit of work of a process. Picklable."""

    seed: int
    pods: int
    capped: bool
    trace: Path = PACKAGED


@dataclass(frozen=True, slots=True)
class Comparison:
    """One client on one workload. Ratios are against the better reference; 1.0 where both are zero."""

    client: str
    result: Result
    makespan_ratio: float
    wait_p50_ratio: float
    wait_p95_ratio: float


Finished = tuple[Job, Bounds, list[Comparison]]


def work(job: Job) -> Finished:
    """Make the job's workload and run its clients."""
    cap = RUN_TIME_CAP if job.capped else None
    workload = make_workload(read_trace(job.trace), pods=job.pods, seed=job.seed, run_time_cap=cap)
    bounds = bounds_of(workload)
    comparisons = []
    for name in CLIENTS if job.capped else UNCAPPED:
        make = partial(make_client, name, policy=None if job.capped else PATIENT)
        comparisons.append(compare(name, run_in_virtual_time(workload, name, make).result, bounds))
    return job, bounds, comparisons


def compare(client: str, result: Result, bounds: Bounds) -> Comparison:
    """Compare a result with the references."""
    return Comparison(
        client,
        result,
        _ratio(result.makespan_s, bounds.makespan_s),
        _ratio(result.wait_p50_s, bounds.wait_p50_s),
        _ratio(result.wait_p95_s, bounds.wait_p95_s),
    )


def _ratio(measured: float, reference: float) -> float:
    """Return measured / reference; 1.0 if both are under a second, where latencies dominate."""
    if measured < 1.0 and reference < 1.0:
        return 1.0
    return measured / reference if reference else float("inf")


@dataclass(frozen=True, slots=True)
class Summary:
    """One client over all seeds: medians, except that admitted, lost and duplicated pods are summed."""

    creates_sent: float
    refused: float
    refused_per_admitted: float
    refused_per_1000: float  # of all seeds together
    admitted: int
    makespan_ratio: float
    wait_p50_ratio: float
    wait_p95_ratio: float
    lost: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A measured figure and its allowed maximum."""

    client: str
    figure: str
    at_most: float
    measured: float

    @property
    def met(self) -> bool:
        """Whether the figure is at most the maximum."""
        return self.measured <= self.at_most

    def __str__(self) -> str:
        return f"{self.client}: {self.figure} is {self.measured:.4g}, the bar is {self.at_most:g}"


BARS: Final[list[tuple[str, str, float]]] = [
    ("gate_learning", "refused_per_admitted", 2.2),
    ("gate_learning", "makespan_ratio", 1.03),
    ("gate_learning", "wait_p95_ratio", 1.08),
    ("gate_observing", "refused_per_1000", 1.0),
    ("gate_observing", "makespan_ratio", 1.005),
    ("gate_observing", "wait_p95_ratio", 1.02),
]


def summarize(rows: list[Comparison]) -> Summary:
    """Summarize one client's comparisons, one per seed."""
    results = [row.result for row in rows]
    admitted = sum(result.admitted for result in results)
    refused = sum(result.refused for result in results)
    return Summary(
        creates_sent=statistics.median(result.creates_sent for result in results),
        refused=statistics.median(result.refused for result in results),
        refused_per_admitted=statistics.median(result.refused_per_admitted for result in results),
        refused_per_1000=1000 * refused / max(1, admitted),
        admitted=admitted,
        makespan_ratio=statistics.median(row.makespan_ratio for row in rows),
        wait_p50_ratio=statistics.median(row.wait_p50_ratio for row in rows),
        wait_p95_ratio=statistics.median(row.wait_p95_ratio for row in rows),
        lost=sum(result.lost for result in results),
        duplicated=sum(result.duplicated for result in results),
    )


def judge(summaries: dict[str, Summary]) -> list[Bar]:
    """Compare the summaries with the bars. For every client there is a bar of no lost and no duplicated pods."""
    bars = [Bar(client, figure, at_most, getattr(summaries[client], figure)) for client, figure, at_most in BARS]
    for client, summary in summaries.items():
        bars += [Bar(client, "lost", 0, summary.lost), Bar(client, "duplicated", 0, summary.duplicated)]
    return bars


def report(finished: list[Finished]) -> dict[str, Any]:
    """Make the JSON document of all results."""
    capped = [done for done in finished if done[0].capped]
    summaries = _summaries(capped)
    uncapped = _summaries(done for done in finished if not done[0].capped)
    return {
        "seeds": [job.seed for job, _, _ in capped],
        "pods": capped[0][0].pods,
        "clients": {client: dataclasses.asdict(summary) for client, summary in summaries.items()},
        "uncapped": {client: dataclasses.asdict(summary) for client, summary in uncapped.items()},
        "bars": [{**dataclasses.asdict(bar), "met": bar.met} for bar in judge(summaries)],
        "by_seed": [
            {
                "seed": job.seed,
                "capped": job.capped,
                "reference": dataclasses.asdict(bounds),
                "clients": {each.client: dataclasses.asdict(each.result) for each in comparisons},
            }
            for job, bounds, comparisons in finished
        ],
    }


def _summaries(finished: Iterable[Finished]) -> dict[str, Summary]:
    rows: dict[str, list[Comparison]] = {}
    for _, _, comparisons in finished:
        for comparison in comparisons:
            rows.setdefault(comparison.client, []).append(comparison)
    return {client: summarize(group) for client, group in rows.items()}


def print_table(document: dict[str, Any]) -> None:
    """Print the summaries as a table."""

    table = Table(
        title=f"{document['pods']} pods, medians over seeds {document['seeds']}; ratios to the better reference",
        title_justify="left",
    )
    table.add_column("client")
    for heading in (
        "creates sent", "refused", "refused per\nadmitted", "makespan\nratio", "wait p50\nratio",
        "wait p95\nratio", "lost", "dupli-\ncated",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for suffix, group in (("", document["clients"]), (", uncapped run times", document["uncapped"])):
        for client, figures in group.items():
            summary = Summary(**figures)
            table.add_row(
                client + suffix,
                f"{summary.creates_sent:.0f}",
                f"{summary.refused:.0f}",
                f"{summary.refused_per_admitted:.2f}",
                f"{summary.makespan_ratio:.3f}",
                f"{summary.wait_p50_ratio:.3f}",
                f"{summary.wait_p95_ratio:.3f}",
                str(summary.lost),
                str(summary.duplicated),
            )
        table.add_section()
    Console(width=110, highlight=False).print(table)
    observing = Summary(**document["clients"]["gate_observing"])
    print(f"gate_observing: {observing.refused_per_1000:.2f} refusals per 1,000 admissions, of {observing.admitted:,}")


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
    # The uncapped ones first: they take longest.
    jobs = [Job(seed, pods, capped, trace) for capped in (False, True) for seed in parse_seeds(seeds)]
    try:
        finished = _measured(jobs, processes)
    except TraceError as err:
        raise click.UsageError(str(err)) from err
    document = report(sorted(finished, key=lambda done: not done[0].capped))
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
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with ExitStack() as stack:
        progress = stack.enter_context(
            Progress(*columns, console=console, transient=True, disable=not console.is_interactive)
        )
        pool = stack.enter_context(get_context("spawn").Pool(processes)) if processes > 1 else None
        results: Iterable[Finished] = pool.imap(work, jobs) if pool else map(work, jobs)
        return list(progress.track(results, total=len(jobs)))


def judge_aloud(document: dict[str, Any]) -> None:
    """List the missed bars and exit 1. With unpublished seeds or pods only lost and duplicated pods count."""
    bars = [Bar(*(bar[key] for key in ("client", "figure", "at_most", "measured"))) for bar in document["bars"]]
    missed = [bar for bar in bars if not bar.met]
    if (document["seeds"], document["pods"]) != PUBLISHED:
        missed = [bar for bar in missed if bar.figure in ("lost", "duplicated")]
        click.echo("bars are checked for 400 pods and seeds 1-9 only", err=True)
    elif document["clients"]["gate_observing"]["admitted"] < ADMISSIONS_MIN:
        click.echo(f"missed: gate_observing has fewer than {ADMISSIONS_MIN} admissions", err=True)
        raise SystemExit(1)
    elif not missed:
        click.echo(f"all {len(bars)} bars are met", err=True)
    for bar in missed:
        click.echo(f"missed: {bar}", err=True)
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

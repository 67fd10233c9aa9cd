"""``python -m backoff_ctrl.k8s.replay.figures``: the published figures, in virtual time and reproducible to the byte.

Exits 0 if every bar is met, 1 after listing the bars that are missed, 2 for an invalid trace or invalid seeds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .comparing import Bounds, Comparison, Job, work
from .trace import PACKAGED, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

OUT: Final = Path("build/figures.json")
ADMISSIONS_MIN: Final = 3000  # fewer admissions can't show 1 refusal per 1,000
PUBLISHED: Final = (list(range(1, 10)), 400)  # what the README prints: seeds and pods

Finished = tuple[Job, Bounds, list[Comparison]]


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


def measure_all(jobs: list[Job], processes: int, on_done: Callable[[], object]) -> list[Finished]:
    """Do the jobs, in separate processes if ``processes`` > 1; return the results in the order of ``jobs``."""
    finished: dict[Job, Finished] = {}
    with contextlib.ExitStack() as stack:
        for done in _results(jobs, processes, stack):
            finished[done[0]] = done
            on_done()
    return [finished[job] for job in jobs]


def _results(jobs: list[Job], processes: int, stack: contextlib.ExitStack) -> Iterator[Finished]:
    if processes == 1:
        yield from map(work, jobs)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
    for future in as_completed([pool.submit(work, job) for job in jobs]):
        yield future.result()


def by_client(finished: Iterable[Finished]) -> dict[str, list[Comparison]]:
    """Group the comparisons by client."""
    rows: dict[str, list[Comparison]] = {}
    for _, _, comparisons in finished:
        for comparison in comparisons:
            rows.setdefault(comparison.client, []).append(comparison)
    return rows


def report(finished: list[Finished]) -> dict[str, Any]:
    """Make the JSON document of all results."""
    capped = [done for done in finished if done[0].capped]
    uncapped = [done for done in finished if not done[0].capped]
    rows, uncapped_rows = by_client(capped), by_client(uncapped)
    summaries = {client: summarize(group) for client, group in rows.items()}
    return {
        "seeds": [done[0].seed for done in capped],
        "pods": capped[0][0].pods,
        "clients": {client: dataclasses.asdict(summary) for client, summary in summaries.items()},
        "uncapped": {client: dataclasses.asdict(summarize(group)) for client, group in uncapped_rows.items()},
        "bars": [{**dataclasses.asdict(bar), "met": bar.met} for bar in judge(summaries)],
        "by_seed": [_seed_report(*done) for done in finished],
    }


def _seed_report(job: Job, bounds: Bounds, comparisons: list[Comparison]) -> dict[str, Any]:
    return {
        "seed": job.seed,
        "capped": job.capped,
        "reference": dataclasses.asdict(bounds),
        "clients": {c.client: dataclasses.asdict(c.result) for c in comparisons},
    }


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
    chosen = parse_seeds(seeds)
    jobs = [Job(seed, pods, capped, trace) for capped in (False, True) for seed in chosen]
    try:
        with _progress(len(jobs)) as step:
            finished = measure_all(jobs, processes, step)
    except TraceError as err:
        raise click.UsageError(str(err)) from err
    finished.sort(key=lambda done: (not done[0].capped, chosen.index(done[0].seed)))
    document = report(finished)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1)
    OUT.write_text(text + "\n", encoding="utf-8")
    if as_json:
        print(text)
    else:
        print_table(document)
        print(f"written to {OUT}")
    judge_aloud(document)


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


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[], object]]:
    """Show a progress bar on stderr."""

    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as progress:
        task = progress.add_task("replaying", total=total)
        yield lambda: progress.advance(task)


if __name__ == "__main__":
    main()

"""``python -m tests.engine.days --seeds 20000``: play random days of each kind, and print one table.

A row a kind: how many days failed, how often a member's room was given away, what was let in over the quota, for how
much of the time somebody waited who would have fitted, and how many creates went in. Below it stand the causes, with
the first seeds of each. The exit code is 1 if a bound is broken: ``tests/engine/days/kinds.py`` has them. A day of one
seed is always the same.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.engine.days.kinds import KINDS, Tally

CHUNK: Final = 100
"""Days that one process plays before it reports."""
WIDE: Final = 160
"""Columns where the table goes into a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.days", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, help="days of each kind (default: %(default)s)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed (default: %(default)s)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="one kind; may be given again (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--shown", type=int, default=8, help="seeds shown of each cause (default: %(default)s)")
    asked = parser.parse_args(arguments)
    tallies = {kind: Tally() for kind in asked.kind or KINDS}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        tasks = {kind: progress.add_task(kind, total=asked.seeds) for kind in tallies}
        for kind, part in play(list(tallies), asked.first, asked.seeds, asked.jobs):
            tallies[kind].add(part)
            progress.advance(tasks[kind], part.days)
    return show(tallies, asked.shown)


def play(kinds: Sequence[str], first: int, seeds: int, jobs: int) -> Iterator[tuple[str, Tally]]:
    """Play the days side by side; yield what each chunk of them has shown."""
    chunks = [
        (kind, start, min(CHUNK, first + seeds - start))
        for kind in kinds
        for start in range(first, first + seeds, CHUNK)
    ]
    if jobs == 1:
        yield from (play_chunk(*chunk) for chunk in chunks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(play_chunk, *chunk) for chunk in chunks]):
            yield done.result()


def play_chunk(kind: str, first: int, count: int) -> tuple[str, Tally]:
    """Play some days of one kind, in a process of the pool."""
    return kind, KINDS[kind].days(first, count)


def show(tallies: Mapping[str, Tally], shown: int) -> int:
    """Print the table, the causes and the broken bounds; return the exit code."""
    table = Table(title="random days of the engine")
    for name in ("kind", "days", "failed", "gave away", "over", "idle", "created", "CPU s"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for kind, tally in tallies.items():
        counted = (f"{tally.gave_away:,}", f"{tally.over:,}", f"{tally.idle_percent:.1f} %")
        table.add_row(
            kind, f"{tally.days:,}", f"{tally.failed_days:,}", *(counted if KINDS[kind].counted else ("", "", "")),
            f"{tally.created:,}", f"{tally.seconds:.0f}",
        )  # fmt: skip
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    console.print(table)
    for kind, tally in tallies.items():
        console.print(f"{kind}: {KINDS[kind].about}")
        for cause, seeds in sorted(tally.failed.items(), key=lambda each: -len(each[1])):
            first = ", ".join(map(str, seeds[:shown])) + (", ..." if len(seeds) > shown else "")
            console.print(f"  {len(seeds):,} days, {cause}: {first}", soft_wrap=True)
    broken = [(kind, wrong) for kind, tally in tallies.items() for wrong in KINDS[kind].broken(tally)]
    for kind, wrong in broken:
        console.print(f"[red]worse than its bound:[/red] {kind}, {wrong}", soft_wrap=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

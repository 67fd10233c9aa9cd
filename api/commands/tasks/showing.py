"""Tasks for people: rows of a table, one task with all details, and progress while tasks run."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.api.commands.typed import pasted
from backoff_ctrl.k8s.gate.creates.wait import reason_words
from backoff_ctrl.k8s.kube.answers.printing import in_one_line, printable
from backoff_ctrl.k8s.status.amounts import clock, rounded, span
from backoff_ctrl.k8s.tasks.model import UNSEEN, unix

from .hints import RUN

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from backoff_ctrl.k8s.tasks.documents import TaskDocument, TaskItem
    from backoff_ctrl.k8s.tasks.model import TaskWait


KEPT_LINES: Final = 6
"""Lines of the terminal that are not rows of tasks."""
HEAD: Final = ("namespace", "name", "type", "phase", "try", "age", "place", "estimate", "reason")
WIDE: Final = (*HEAD[:-1], "plugin", "object", HEAD[-1])
NUMBERS: Final = ("try", "age", "place", "estimate")
REASON_WIDTH: Final = 100
BEGINS: Final = frozenset({"Queued", "Initializing"})
"""The phases between the create and the run: what is under way there is shown as it changes."""


def row(item: TaskItem, now: float) -> tuple[str, ...]:
    wait = item.wait
    place, estimate = ("", "") if wait is None else (str(wait.place), left(wait.estimated_at, now))
    return (
        item.namespace,
        item.name,
        printable(item.type),
        phase_of(item),
        str(item.attempt + 1),
        span(now - unix(item.created_at)),
        place,
        estimate,
        reason_of(item),
    )


def wide_row(item: TaskItem, now: float) -> tuple[str, ...]:
    """Return the columns of ``WIDE``, uncut."""
    made = "" if item.object is None else f"{item.object.kind}/{item.object.name}"
    return *row(item, now)[:-1], printable(item.plugin or ""), made, reason_of(item, None)


def phase_of(item: TaskItem) -> str:
    """Return the phase, and whether its end was requested."""
    return f"{item.phase} (aborting)" if item.abort and item.unfinished and item.phase != "Aborted" else item.phase


def reason_of(item: TaskItem, width: int | None = REASON_WIDTH) -> str:
    """Return the reason of its phase, in one line, cut to ``width``."""
    text = item.reason if item.wait is None else waits_for(item.wait)
    if item.code is not None:
        text = f"{item.code}: {text}"
    text = in_one_line(text)
    return text if width is None or len(text) <= width else f"{text[: width - 3]}..."


def waits_for(wait: TaskWait) -> str:
    if not wait.quota:
        return reason_words(wait.reason)
    asked, remains, limited = (rounded(n, wait.resource, wait.limited) for n in (wait.asked, wait.left, wait.limited))
    amounts = f"{wait.resource} asks {asked}, {remains} of {limited} left"
    reason = "" if wait.reason == "quota" else f"{reason_words(wait.reason)}: "
    return f"{reason}quota {wait.quota}: {amounts}"


def left(at: str | None, now: float) -> str:
    """Return the time left until a time; ``-`` if unknown."""
    return "-" if at is None else span(unix(at) - now)


def ended_before(item: TaskItem, now: float, at: Sequence[str]) -> str:
    """Return a hint on a task that was requested again after its end; ``at`` are the options that lead to its store."""
    ended = "" if item.ended_at is None else f", ended {_seconds(now - unix(item.ended_at))} ago"
    reason = "" if item.phase == "Success" else f" ({reason_of(item)})"
    again = pasted(RUN, "--again", item.name, "-n", item.namespace, *at)
    return f"{item.namespace}/{item.name} is {item.phase}{ended}; `{again}` to run it again{reason}"


def _seconds(seconds: float) -> str:
    """Return a duration for a sentence: ``54 s``, or as in tables."""
    return f"{max(0, int(seconds))} s" if seconds < 120 else span(seconds)


def page(found: TaskDocument, now: float) -> Iterator[str]:
    """Yield the lines with all details of one task, safe to print."""
    yield from map(printable, _lines(found, now))


def _lines(found: TaskDocument, now: float) -> Iterator[str]:
    yield f"Task {found.namespace}/{found.name} ({found.type}, uid {found.uid})"
    yield f"  phase      {phase_of(found)}, for {span(now - unix(found.since))}, attempt {found.attempt + 1}"
    yield from _why(found)
    if found.wait is not None:
        yield f"  waits for  {waits_for(found.wait)}; place {found.wait.place}"
        yield f"  estimate   {left(found.wait.estimated_at, now)}; next probe {left(found.wait.next_probe_at, now)}"
    if found.next_attempt_at is not None:
        yield f"  next try   in {left(found.next_attempt_at, now)}"
    if found.object is not None:
        yield f"  object     {found.object.kind} {found.object.name} ({found.object.api_version})"
    if found.retried_user or found.retried_system:
        yield f"  retries    {found.retried_user} after user's failures, {found.retried_system} after the platform's"
    for log in found.logs:
        yield f"  log        {log.name}: {log.uri}"
    for name, value in (found.outputs or {}).items():
        yield f"  output     {name}: {json.dumps(value, ensure_ascii=False)[:REASON_WIDTH]}"
    yield "  history"
    for event in found.history:
        reason = f"  {' '.join(event.reason.split())[:REASON_WIDTH]}" if event.reason else ""
        yield f"    {event.at}  attempt {event.attempt + 1}  {event.phase}{reason}"
    if found.reasons:
        yield "  events of the object"
        for cause in found.reasons:
            yield f"    {cause.at}  {' '.join(cause.text.split())[:REASON_WIDTH]}"


def _why(found: TaskDocument) -> Iterator[str]:
    if found.reason:
        yield f"  reason     {' '.join(found.reason.split())}"
    if found.needs:
        yield f"  needs      {', '.join(f'{need} ({ended})' for need, ended in found.needs.items())}"
    if found.code is not None:
        whose = (
            "" if found.kind is None else f", of the {'platform' if found.kind == 'SYSTEM' else 'user'} ({found.kind})"
        )
        yield f"  {'failure' if whose else 'code   '}    {found.code}{whose}"


class View:
    """Shows the progress of tasks; this one is silent, for ``--json``."""

    def changed(self, item: TaskItem) -> None:
        """A task has changed."""

    def say(self, line: str) -> None:
        """Print a message, where it is not in the way."""
        click.echo(line, err=True)

    def close(self) -> None:
        """Leave the last state, and end the display."""


class Lines(View):
    """A line for each change of the phase, and of the reason between the create and the run: for logs."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[object, ...]] = {}

    def changed(self, item: TaskItem) -> None:
        """Print a line, unless it repeats the last one."""
        wait = item.wait
        begins = item.reason if item.phase in BEGINS else item.reason != UNSEEN  # what comes before the create, once
        said = (item.phase, item.attempt, item.abort, begins, None if wait is None else (wait.reason, wait.quota))
        if self._shown.get(item.uid) == said:
            return
        self._shown[item.uid] = said
        at = clock(datetime.now(UTC))
        place = "" if wait is None else f"; place {wait.place}"
        reason = reason_of(item, REASON_WIDTH if item.unfinished else None)  # of a failure what is wrong comes last
        cells = [at, f"{item.namespace}/{item.name}", row(item, time.time())[3], f"{reason}{place}"]
        click.echo("  ".join(cell for cell in cells if cell))

    def say(self, line: str) -> None:
        click.echo(line)


class LiveTable(View):
    """A table that refreshes: unfinished tasks first, as many rows as fit, and a summary."""

    def __init__(self, items: Mapping[str, TaskItem], console: Console) -> None:
        """Show these items, which the caller keeps up to date."""
        from rich.live import Live  # noqa: PLC0415 - slow to load

        self._items = items
        self._console = console
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=4, vertical_overflow="crop")
        self._live.start()

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the last state of the table."""
        self._live.stop()

    def _table(self) -> Table:
        from rich.table import Table  # noqa: PLC0415 - slow to load
        from rich.text import Text  # noqa: PLC0415

        items = sorted(self._items.values(), key=lambda each: (not each.unfinished, each.phase != "Running"))
        rows = max(1, self._console.height - KEPT_LINES)
        table = Table(box=None, caption=summary(self._items), caption_justify="left")
        for name in HEAD:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=name != "reason")
        for item in items[:rows]:
            table.add_row(*(Text(cell) for cell in row(item, time.time())))
        if len(items) > rows:
            table.add_row(f"{len(items) - rows} more")
        return table


def summary(items: Mapping[str, TaskItem]) -> str:
    """Return a line with the number of tasks in each phase."""
    phases = Counter(item.phase for item in items.values())
    tasks = "1 task" if len(items) == 1 else f"{len(items)} tasks"
    return f"{tasks}: " + ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))

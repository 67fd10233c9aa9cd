"""What people see while tasks run: a live table at a terminal, else a line for each change."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

import click

from backoff_ctrl.api.commands.amounts import clock

from .showing import HEAD, NUMBERS, reason_of, row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from rich.table import Table

    from backoff_ctrl.k8s.tasks.documents import TaskItem

KEPT_LINES: Final = 6
"""Lines of the terminal that are not rows of tasks."""


class View(Protocol):
    """Shows how tasks go on."""

    def changed(self, item: TaskItem) -> None:
        """A task has changed."""

    def say(self, line: str) -> None:
        """Tell people something."""

    def close(self) -> None:
        """Show the last state, and nothing more."""


class Silent:
    """Shows nothing: for ``--json``."""

    def changed(self, item: TaskItem) -> None:
        """Show nothing: the document at the end says it all."""

    def say(self, line: str) -> None:
        """Say it where it is not in the way."""
        click.echo(line, err=True)

    def close(self) -> None:
        """Leave nothing behind: nothing was shown."""


class Lines:
    """A line for each change of phase, and of what is waited for: for logs."""

    def __init__(self) -> None:
        """Begin with nothing shown."""
        self._shown: dict[str, tuple[object, ...]] = {}

    def changed(self, item: TaskItem) -> None:
        """Print a line, unless it would say the same again."""
        wait = item.wait
        said = (item.phase, item.attempt, item.abort, None if wait is None else (wait.reason, wait.quota))
        if self._shown.get(item.uid) == said:
            return
        self._shown[item.uid] = said
        at = clock(datetime.now(UTC))
        place = "" if wait is None else f"; place {wait.place}"
        cells = [at, f"{item.namespace}/{item.name}", row(item, time.time())[3], f"{reason_of(item)}{place}"]
        click.echo("  ".join(cell for cell in cells if cell))

    def say(self, line: str) -> None:
        """Print the line among the others."""
        click.echo(line)

    def close(self) -> None:
        """Nothing is kept back."""


class LiveTable:
    """A table that refreshes: what goes on first, as many rows as fit, and how all of it stands."""

    def __init__(self, items: Mapping[str, TaskItem], console: Console) -> None:
        """Show these items, which the caller keeps up to date."""
        from rich.live import Live  # noqa: PLC0415 - slow to load

        self._items = items
        self._console = console
        self._live = Live(get_renderable=self._table, console=console, refresh_per_second=4, vertical_overflow="crop")
        self._live.start()

    def changed(self, item: TaskItem) -> None:
        """The next refresh shows it."""

    def say(self, line: str) -> None:
        """Print it above the table."""
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
    """Say in a line how many tasks are in which phase."""
    phases = Counter(item.phase for item in items.values())
    tasks = "1 task" if len(items) == 1 else f"{len(items)} tasks"
    return f"{tasks}: " + ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))

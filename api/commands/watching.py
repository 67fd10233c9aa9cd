"""``--watch``, as with kubectl: the list, then a line for each row that comes, changes or goes, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import click

from backoff_ctrl.api.exits import DONE
from backoff_ctrl.k8s.kube.answers.printing import printable

from .output import written

WATCH: Final = click.option("-w", "--watch", is_flag=True, help="Go on with what comes, changes or goes, until Ctrl-C.")


class Row(NamedTuple):
    """A row of a watched table."""

    key: str
    name: str
    """What ``-o name`` prints."""
    cells: tuple[str, ...]
    document: Any
    """What ``-o json`` prints."""


class Watched:
    """A table that goes on. ``ages``: columns that change by themselves, so that no line is printed for them."""

    def __init__(self, head: Sequence[str], right: Collection[str], ages: Collection[str], output: str | None) -> None:
        self._head = head
        self._right = right
        self._lasting = [number for number, name in enumerate(head) if name not in ages]
        self._output = None if output == "wide" else output
        self._widths: list[int] = []
        self._shown: dict[str, Row] = {}

    def take(self, rows: Sequence[Row], gone: str) -> list[str]:
        """Return the lines that a new look at the list adds; ``gone`` is the last cell of a row that is no more."""
        before, self._shown = self._shown, {row.key: row for row in rows}
        news = [row for row in rows if row.key not in before or self._differ(row, before[row.key])]
        if self._output == "name":
            return [printable(row.name) for row in news]
        if self._output is not None:
            mark = "---\n" if self._output == "yaml" else ""
            return [mark + written(row.document, self._output) for row in news]
        left = [row for key, row in before.items() if key not in self._shown]
        lines = [*(row.cells for row in news), *((*row.cells[:-1], gone) for row in left)]
        if not self._widths:
            lines.insert(0, tuple(self._head))
            self._widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return [self._line(cells) for cells in lines]

    def _differ(self, row: Row, other: Row) -> bool:
        if self._output is not None and self._output != "name":
            return bool(row.document != other.document)
        return any(row.cells[number] != other.cells[number] for number in self._lasting)

    def _line(self, cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if name in self._right else cell.ljust(width)
            for name, cell, width in zip(self._head, map(printable, cells), self._widths, strict=True)
        ]
        return "  ".join(parts).rstrip()


def watch(table: Watched, look: Callable[[], Sequence[Row]], every: float, gone: str) -> int:
    """Look again and again, until Ctrl-C, which is a success."""
    try:
        while True:
            for line in table.take(look(), gone):
                click.echo(line)
            time.sleep(every)
    except KeyboardInterrupt:
        return DONE

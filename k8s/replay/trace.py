"""Reads a cluster trace: one row per pod, in the format of ``openb_pod_list_default.csv``.

A row with an empty ``scheduled_time`` is valid: that pod never ran, so it is dropped and counted. Anything malformed
raises ``TraceError``: one sentence with file, line and column.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from backoff_ctrl.engine.errors import BackoffError

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGED: Final = Path(__file__).parent / "data" / "openb_pods.csv.gz"

COLUMNS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "qos", "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip

_WHOLE: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_SECONDS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?", re.ASCII)
_POD_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,240}[a-z0-9])?", re.ASCII)
_QOS: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,40}[A-Za-z0-9])?", re.ASCII)


class TraceError(BackoffError, ValueError):
    """A trace can't be read; the message gives file, line and column."""


@dataclass(frozen=True, slots=True)
class Row:
    """One pod that ran. Times are seconds since the start of the trace; amounts are in the units of the columns."""

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpu: int
    qos: str
    creation_time: Decimal
    deletion_time: Decimal
    scheduled_time: Decimal


@dataclass(frozen=True, slots=True)
class Trace:
    """The pods that ran, ordered by creation time, and the number of pods dropped because they never ran."""

    source: str
    rows: tuple[Row, ...]
    dropped: int


def read_trace(path: Path = PACKAGED) -> Trace:
    """Read a trace file, decompressing ``.gz``. Raises ``TraceError`` if it is not a valid trace."""
    rows: list[Row] = []
    dropped = 0
    first_lines: dict[str, int] = {}
    try:
        with _open(path) as file:
            for line, cells in _records(str(path), file):
                reader = _Cells(f"{path}:{line}", cells)
                name = reader.matching("name", _POD_NAME, "a pod's name (lower case letters, digits, - and .)")
                if name in first_lines:
                    raise reader.error("name", f"{name} is also on line {first_lines[name]}")
                first_lines[name] = line
                if cells["scheduled_time"] == "":
                    dropped += 1
                else:
                    rows.append(reader.row(name))
    except OSError as err:
        raise TraceError(f"{path}: cannot be read: {err.strerror or err}") from err
    except UnicodeDecodeError as err:
        raise TraceError(f"{path}: is not UTF-8 text: a trace is a CSV file, plain or compressed with gzip") from err
    except (EOFError, zlib.error) as err:
        raise TraceError(f"{path}: is damaged: {err}") from err
    rows.sort(key=lambda row: row.creation_time)  # stable: changes nothing in a sorted file
    return Trace(str(path), tuple(rows), dropped)


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("r", encoding="utf-8-sig", newline="")  # spreadsheets write a byte order mark


def _records(source: str, file: TextIO) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, cells by column) for each row below the header, skipping blank lines."""
    reader = csv.reader(file, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            raise TraceError(f"{source}:1: the file is empty; expected a header with the columns {','.join(COLUMNS)}")
        missing = [column for column in COLUMNS if column not in header]
        if missing:
            raise TraceError(f"{source}:1: the header has no column {missing[0]}")
        for values in reader:
            if not values:
                continue
            if len(values) != len(header):
                raise TraceError(
                    f"{source}:{reader.line_num}: column {header[min(len(values), len(header) - 1)]}: "
                    f"the row has {len(values)} cells, the header has {len(header)}"
                )
            yield reader.line_num, dict(zip(header, values, strict=True))
    except csv.Error as err:
        raise TraceError(f"{source}:{reader.line_num}: the row is not valid CSV: {err}") from err


class _Cells:
    """Parses the cells of one row; an invalid cell is a ``TraceError`` that names its column."""

    __slots__ = ("_cells", "_where")

    def __init__(self, where: str, cells: dict[str, str]) -> None:
        self._where = where
        self._cells = cells

    def row(self, name: str) -> Row:
        row = Row(
            name=name,
            cpu_milli=self._whole("cpu_milli"),
            memory_mib=self._whole("memory_mib"),
            num_gpu=self._whole("num_gpu"),
            qos=self.matching("qos", _QOS, "a class of service (letters, digits and -)"),
            creation_time=self._seconds("creation_time"),
            deletion_time=self._seconds("deletion_time"),
            scheduled_time=self._seconds("scheduled_time"),
        )
        if row.deletion_time < row.scheduled_time:
            raise self.error("deletion_time", f"{row.deletion_time} is before scheduled_time {row.scheduled_time}")
        return row

    def _whole(self, column: str) -> int:
        return int(self.matching(column, _WHOLE, "a whole number, zero or more"))

    def _seconds(self, column: str) -> Decimal:
        return Decimal(self.matching(column, _SECONDS, "a number of seconds, zero or more"))

    def matching(self, column: str, pattern: re.Pattern[str], wanted: str) -> str:
        cell = self._cells[column]
        if pattern.fullmatch(cell) is None:
            raise self.error(column, f"{cell[:60]!r} is not {wanted}")
        return cell

    def error(self, column: str, sentence: str) -> TraceError:
        return TraceError(f"{self._where}: column {column}: {sentence}")

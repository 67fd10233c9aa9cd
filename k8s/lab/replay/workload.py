"""The workload of a replay: a cluster trace, and the fixed recipe that makes pods and quotas of it.

A trace has one row per pod, in the format of ``openb_pod_list_default.csv``. A row with an empty ``scheduled_time`` is
valid: that pod never ran, so it is dropped and counted. Anything malformed raises ``TraceError``: one sentence with
file, line and column.

The recipe; any change to it changes every published figure:

1. ``pods`` consecutive rows are taken, from row ``random.Random(seed).randrange(rows - (pods - 1))``.
2. arrival = (creation_time - creation_time of the first row taken) / 100.
3. run time = min(deletion_time - scheduled_time, 600 s).
4. demand = cpu_milli, memory_mib, num_gpu as ``nvidia.com/gpu``; requests = limits.
5. One namespace per qos in the slice.
6. Quota per namespace and resource = max(largest pod, peak unlimited demand / 3), where the peak is the most
   that would run at once if every pod started on arrival.

The quotas limit ``limits.cpu``, ``limits.memory`` and ``requests.nvidia.com/gpu``. With requests equal to limits this
admits the same pods as a quota on ``requests.cpu`` and ``requests.memory``. These are the only names that the
ancestor's parser reads, so the comparison favours it as far as Kubernetes allows: extended resources exist only as
``requests.``, and it does not read those.
"""

from __future__ import annotations

import csv
import gzip
import random
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TextIO

from backoff_ctrl.engine.errors import BackoffError
from backoff_ctrl.engine.facts.quantities import parse_quantity

PACKAGED: Final = Path(__file__).parent / "data" / "openb_pods.csv.gz"

_WHOLE: Final = (int, "[0-9]{1,15}", "a whole number, zero or more")
_SECONDS: Final = (Decimal, r"[0-9]{1,12}(\.[0-9]{1,9})?", "a number of seconds, zero or more")
_COLUMNS: Final[Mapping[str, tuple[Callable[[str], Any], str, str]]] = {
    "name": (
        str,
        "[a-z0-9]([-a-z0-9.]{0,240}[a-z0-9])?",
        "a pod's name (lower case letters, digits, - and .)",
    ),
    "cpu_milli": _WHOLE,
    "memory_mib": _WHOLE,
    "num_gpu": _WHOLE,
    "qos": (str, "[A-Za-z0-9]([-A-Za-z0-9]{0,40}[A-Za-z0-9])?", "a class of service (letters, digits and -)"),
    "creation_time": _SECONDS,
    "deletion_time": _SECONDS,
    "scheduled_time": _SECONDS,
}
"""The columns that are read: what makes a value of a cell, a pattern of the cells, and what they have to be."""

SPEEDUP: Final = 100  # arrivals are this many times denser than in the trace
RUN_TIME_CAP: Final = 600.0  # seconds
QUOTA_SHARE: Final = 3  # peak unlimited demand / quota
QUOTA_NAME: Final = "team"
RUN_SECONDS: Final = "sandbox.backoff-ctrl.dev/run-seconds"  # annotation that the fake kubelet reads
POD_LABEL: Final = "backoff-ctrl.dev/replayed"  # label with the row's name, to check that each pod is created once

UNITS: Final = {"limits.cpu": "m", "limits.memory": "Mi", "requests.nvidia.com/gpu": ""}
_NANO: Final = {resource: parse_quantity(f"1{unit}") for resource, unit in UNITS.items()}


class TraceError(BackoffError, ValueError):
    """A trace can't be read; the message gives file, line and column."""


@dataclass(frozen=True, slots=True)
class Row:
    """One pod that ran: its ``_COLUMNS``. Times are seconds since the start of the trace."""

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


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of the workload. Times are seconds; ``demand`` is in the units of ``UNITS``, without zeros."""

    name: str
    namespace: str
    arrival: float
    run_time: float
    demand: Mapping[str, int]

    def manifest(self) -> dict[str, Any]:
        """Return the manifest that is sent to an API server."""
        names = {"limits.cpu": "cpu", "limits.memory": "memory", "requests.nvidia.com/gpu": "nvidia.com/gpu"}
        # With a quota on cpu or memory, pods must specify an amount: without demand it is 0.
        asked = {"limits.cpu": 0, "limits.memory": 0, **self.demand}
        amounts = {names[resource]: f"{amount}{UNITS[resource]}" for resource, amount in asked.items()}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{self.name}-",
                "namespace": self.namespace,
                "labels": {POD_LABEL: self.name},
                "annotations": {RUN_SECONDS: repr(self.run_time)},
            },
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.k8s.io/pause:3.10",
                        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
                    }
                ],
            },
        }


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods by arrival, and the quotas: per namespace, per resource, in the units of ``UNITS``.

    ``gangs`` are the names of pods that compute only together (``gangs``).
    """

    pods: tuple[Pod, ...]
    quotas: Mapping[str, Mapping[str, int]]
    seed: int = 0
    rows: int = 0
    dropped: int = 0
    first_row: int = 0
    gangs: tuple[tuple[str, ...], ...] = ()

    @property
    def units(self) -> list[tuple[Pod, ...]]:
        """What is created as one, by arrival: each gang, and each other pod."""
        singles = {pod.name: pod for pod in self.pods}
        gangs = [tuple(singles.pop(name) for name in gang) for gang in self.gangs]
        return sorted([*gangs, *((pod,) for pod in singles.values())], key=lambda unit: unit[0].arrival)

    def faster(self, factor: float) -> Workload:
        """Return the workload with every duration divided by ``factor``."""
        faster = [replace(pod, arrival=pod.arrival / factor, run_time=pod.run_time / factor) for pod in self.pods]
        return replace(self, pods=tuple(faster))

    def in_namespaces(self, names: Mapping[str, str]) -> Workload:
        """Return the workload with its namespaces renamed: ``names`` gives the new name of each."""
        pods = tuple(replace(pod, namespace=names[pod.namespace]) for pod in self.pods)
        return replace(self, pods=pods, quotas={names[old]: quota for old, quota in self.quotas.items()})

    def hard(self) -> dict[str, dict[str, str]]:
        """Return each namespace's quota as the ``spec.hard`` of a ResourceQuota."""
        return {
            namespace: {key: f"{amount}{UNITS[key]}" for key, amount in quota.items()}
            for namespace, quota in self.quotas.items()
        }


def quota_of(hard: Mapping[str, str]) -> dict[str, Any]:
    """Return the ResourceQuota of a namespace of the workload."""
    metadata = {"name": QUOTA_NAME}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": dict(hard)}}


def in_nano(amounts: Mapping[str, int]) -> dict[str, int]:
    """Convert amounts in the units of ``UNITS`` to exact nano-units."""
    return {resource: amount * _NANO[resource] for resource, amount in amounts.items()}


def read_trace(path: Path = PACKAGED) -> Trace:
    """Read a trace file, decompressing ``.gz``. Raises ``TraceError`` if it is not a valid trace."""
    rows: list[Row] = []
    dropped = 0
    first_lines: dict[str, int] = {}
    try:
        with _open(path) as file:
            for line, cells in _records(path, file):
                where = f"{path}:{line}"
                name = _value(where, cells, "name")
                if (first := first_lines.setdefault(name, line)) != line:
                    raise TraceError(f"{where}: column name: {name} is also on line {first}")
                if cells["scheduled_time"] == "":
                    dropped += 1
                else:
                    rows.append(_row(where, cells))
    except OSError as err:
        raise TraceError(f"{path}: cannot be read: {err.strerror or err}") from err
    except UnicodeDecodeError as err:
        raise TraceError(f"{path}: is not UTF-8 text: a trace is a CSV file, plain or compressed with gzip") from err
    except (EOFError, zlib.error) as err:
        raise TraceError(f"{path}: is damaged: {err}") from err
    rows.sort(key=lambda row: row.creation_time)  # stable: a sorted file stays as it is
    return Trace(str(path), tuple(rows), dropped)


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("r", encoding="utf-8-sig", newline="")  # spreadsheets write a byte order mark


def _records(path: Path, file: TextIO) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line number, cells by column) for each row below the header, skipping blank lines."""
    reader = csv.reader(file, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            raise TraceError(f"{path}:1: the file is empty; expected a header with the columns {','.join(_COLUMNS)}")
        for column in _COLUMNS:
            if column not in header:
                raise TraceError(f"{path}:1: the header has no column {column}")
        for values in filter(None, reader):
            if len(values) != len(header):
                raise TraceError(
                    f"{path}:{reader.line_num}: column {header[min(len(values), len(header) - 1)]}: "
                    f"the row has {len(values)} cells, the header has {len(header)}"
                )
            yield reader.line_num, dict(zip(header, values, strict=True))
    except csv.Error as err:
        raise TraceError(f"{path}:{reader.line_num}: the row is not valid CSV: {err}") from err


def _value(where: str, cells: Mapping[str, str], column: str) -> Any:
    convert, pattern, wanted = _COLUMNS[column]
    if re.fullmatch(pattern, cells[column], re.ASCII) is None:
        raise TraceError(f"{where}: column {column}: {cells[column][:60]!r} is not {wanted}")
    return convert(cells[column])


def _row(where: str, cells: Mapping[str, str]) -> Row:
    row = Row(*(_value(where, cells, column) for column in _COLUMNS))
    if row.deletion_time < row.scheduled_time:
        raise TraceError(
            f"{where}: column deletion_time: {row.deletion_time} is before scheduled_time {row.scheduled_time}"
        )
    return row


def make_workload(trace: Trace, *, pods: int = 400, seed: int = 1) -> Workload:
    """Make a workload by the recipe. Raises ``TraceError`` if fewer than ``pods`` pods of the trace ran."""
    if pods < 1:
        raise TraceError(f"a workload needs at least 1 pod, not {pods}")
    if len(trace.rows) < pods:
        raise TraceError(f"{trace.source}: cannot take {pods} pods, only {len(trace.rows)} of this trace ran")
    first = random.Random(seed).randrange(len(trace.rows) - (pods - 1))
    taken = trace.rows[first : first + pods]
    made = tuple(_pod(row, taken[0]) for row in taken)
    return Workload(made, quotas_for(made), seed, len(trace.rows), trace.dropped, first)


def _pod(row: Row, first: Row) -> Pod:
    amounts = dict(zip(UNITS, (row.cpu_milli, row.memory_mib, row.num_gpu), strict=True))
    return Pod(
        name=row.name,
        namespace=row.qos.lower(),
        arrival=float((row.creation_time - first.creation_time) / SPEEDUP),
        run_time=min(float(row.deletion_time - row.scheduled_time), RUN_TIME_CAP),
        demand={resource: amount for resource, amount in amounts.items() if amount},
    )


def quotas_for(pods: Iterable[Pod]) -> dict[str, dict[str, int]]:
    """Return max(largest pod, peak unlimited demand / 3) per namespace and resource.

    The third is rounded down to whole units. Demands are whole in the same units, so exactly the same sets of pods fit.
    """
    by_namespace: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_namespace[pod.namespace].append(pod)
    quotas: dict[str, dict[str, int]] = {}
    for namespace in sorted(by_namespace):
        group = by_namespace[namespace]
        quotas[namespace] = {
            resource: max(largest, _peak(group, resource) // QUOTA_SHARE)
            for resource in UNITS
            if (largest := max(pod.demand.get(resource, 0) for pod in group))
        }
    return quotas


def _peak(pods: list[Pod], resource: str) -> int:
    """Return the peak use of a resource if every pod ran from its arrival; at one instant ends come before starts."""
    steps: list[tuple[float, int]] = []
    for pod in pods:
        amount = pod.demand.get(resource, 0)
        steps += [(pod.arrival, amount), (pod.arrival + pod.run_time, -amount)]
    steps.sort()
    running = peak = 0
    for _, change in steps:
        running += change
        peak = max(peak, running)
    return peak

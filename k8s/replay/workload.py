"""The fixed recipe that makes a workload from a trace. Any change here changes every published figure.

1. Rows that never ran are dropped (and counted) by ``trace``.
2. ``pods`` consecutive rows are taken, from row ``random.Random(seed).randrange(rows - (pods - 1))``.
3. arrival = (creation_time - creation_time of the first row taken) / 100.
4. run time = min(deletion_time - scheduled_time, 600 s), or uncapped if requested.
5. demand = cpu_milli, memory_mib, num_gpu as ``nvidia.com/gpu``; requests = limits.
6. One namespace per qos in the slice.
7. Quota per namespace and resource = max(largest pod, peak unlimited demand / 3), where the peak is the most
   that would run at once if every pod started on arrival.

The quotas limit ``limits.cpu``, ``limits.memory`` and ``requests.nvidia.com/gpu``. With requests equal to limits this
admits the same pods as a quota on ``requests.cpu`` and ``requests.memory``. These are the only names that the
ancestor's parser reads, so the comparison favours it as far as Kubernetes allows: extended resources exist only as
``requests.``, and it does not read those.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.quantities import parse_quantity

from .trace import Row, Trace, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SPEEDUP: Final = 100  # arrivals are this many times denser than in the trace
RUN_TIME_CAP: Final = 600.0  # seconds
QUOTA_SHARE: Final = 3  # peak unlimited demand / quota
QUOTA_NAME: Final = "team"
RUN_SECONDS: Final = "sandbox.backoff-ctrl.dev/run-seconds"  # annotation that the fake kubelet reads
POD_LABEL: Final = "backoff-ctrl.dev/replayed"  # label with the row's name, to check that each pod is created once

UNITS: Final[dict[str, str]] = {"limits.cpu": "m", "limits.memory": "Mi", "requests.nvidia.com/gpu": ""}
_NANO: Final[dict[str, int]] = {resource: parse_quantity(f"1{unit}") for resource, unit in UNITS.items()}


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

    def faster(self, factor: float) -> Pod:
        """Return the pod with every duration divided by ``factor``."""
        return Pod(self.name, self.namespace, self.arrival / factor, self.run_time / factor, self.demand)


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods by arrival, and the quotas: per namespace, per resource, in the units of ``UNITS``."""

    pods: tuple[Pod, ...]
    quotas: Mapping[str, Mapping[str, int]]
    seed: int = 0
    rows: int = 0
    dropped: int = 0
    first_row: int = 0

    def faster(self, factor: float) -> Workload:
        """Return the workload with every duration divided by ``factor``."""
        pods = tuple(pod.faster(factor) for pod in self.pods)
        return Workload(pods, self.quotas, self.seed, self.rows, self.dropped, self.first_row)

    def in_namespaces(self, names: Mapping[str, str]) -> Workload:
        """Return the workload with its namespaces renamed: ``names`` gives the new name of each."""
        pods = tuple(replace(pod, namespace=names[pod.namespace]) for pod in self.pods)
        return replace(self, pods=pods, quotas={names[old]: quota for old, quota in self.quotas.items()})

    def hard(self, namespace: str) -> dict[str, str]:
        """Return a namespace's quota as the ``spec.hard`` of a ResourceQuota."""
        return {key: f"{amount}{UNITS[key]}" for key, amount in self.quotas[namespace].items()}


def in_nano(amounts: Mapping[str, int]) -> dict[str, int]:
    """Convert amounts in the units of ``UNITS`` to exact nano-units."""
    return {resource: amount * _NANO[resource] for resource, amount in amounts.items()}


def make_workload(
    trace: Trace, *, pods: int = 400, seed: int = 1, run_time_cap: float | None = RUN_TIME_CAP
) -> Workload:
    """Make a workload by the recipe. Raises ``TraceError`` if fewer than ``pods`` pods of the trace ran."""
    if pods < 1:
        raise TraceError(f"a workload needs at least 1 pod, not {pods}")
    if len(trace.rows) < pods:
        raise TraceError(f"{trace.source}: cannot take {pods} pods, only {len(trace.rows)} of this trace ran")
    first = random.Random(seed).randrange(len(trace.rows) - (pods - 1))
    taken = trace.rows[first : first + pods]
    made = tuple(_pod(row, taken[0], run_time_cap) for row in taken)
    return Workload(made, quotas_for(made), seed, len(trace.rows), trace.dropped, first)


def _pod(row: Row, first: Row, run_time_cap: float | None) -> Pod:
    ran = float(row.deletion_time - row.scheduled_time)
    amounts = dict(zip(UNITS, (row.cpu_milli, row.memory_mib, row.num_gpu), strict=True))
    return Pod(
        name=row.name,
        namespace=row.qos.lower(),
        arrival=float((row.creation_time - first.creation_time) / SPEEDUP),
        run_time=ran if run_time_cap is None else min(ran, run_time_cap),
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

"""Two references that know the quotas and are never refused, and lower bounds that no client can beat.

Both know at once when a pod arrives or ends, and admit without latency. They are the yardstick for what a client can
reach: the figures compare with the better of the two, measure by measure.

* with ``keep``: one line in order of arrival, in which a pod that fits may overtake. A pod that is first in line for a
  resource is overtaken when another one takes some of that resource. After ``OVERTAKES_MAX`` times and
  ``OVERTAKEN_FOR_MAX``, room is kept for it in the resources that block it, until it is admitted; keeping pauses while
  that room has not grown for some time. At the latest ``OVERTAKEN_AT_MOST`` after the first it is kept without pause.
  Written from the rule alone: it shares no code with the engine.
* without: at every change all pods that fit are admitted, in order of arrival; no room is kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from .workload import Pod, Workload

OVERTAKES_MAX: Final = 32
OVERTAKEN_FOR_MAX: Final = 60.0  # seconds
OVERTAKEN_AT_MOST: Final = 600.0  # seconds
KEEP_STALLED: Final = 60.0  # seconds, or five mean times between releases if that is longer
STALLED_RELEASES: Final = 5


class Measured(NamedTuple):
    """Seconds. A wait runs from arrival to admission; the makespan from the first arrival to the last end."""

    makespan_s: float
    wait_p50_s: float
    wait_p95_s: float


class Bounds(NamedTuple):
    """What a workload's results are compared with, in seconds: the better of the two references, measure by measure,
    and two lower bounds of the makespan.
    """

    makespan_s: float
    wait_p50_s: float
    wait_p95_s: float
    area_bound_s: float
    arrival_bound_s: float


@dataclass(slots=True, eq=False)
class _Waiter:
    pod: Pod
    overtaken: int = 0
    overtaken_since: float = 0.0
    most_room: float = -1.0  # the most room seen while it was kept, as a sum of shares of its demand
    grown_at: float = 0.0


class _Namespace:
    """One namespace's quota, line and running pods."""

    def __init__(self, quota: Mapping[str, int], keep: bool) -> None:
        self.free = dict(quota)
        self.line: list[_Waiter] = []
        self.keep = keep
        self.first_release = 0.0
        self.releases = 0
        self.pauses_at: float | None = None  # when keeping next pauses, so that others may take the room

    def release(self, pod: Pod, now: float) -> None:
        for resource, amount in pod.demand.items():
            self.free[resource] += amount
        if self.releases == 0:
            self.first_release = now
        self.releases += 1

    def admit(self, now: float) -> list[Pod]:
        """Go through the line once in order, and remove and return the pods that are admitted."""
        admitted: list[Pod] = []
        passed: list[_Waiter] = []
        kept = dict.fromkeys(self.free, 0)
        self.pauses_at = None
        first_at: dict[str, _Waiter] = {}  # the first in line of those that each resource blocks
        for waiter in self.line:
            demand = waiter.pod.demand
            short_of = [name for name, amount in demand.items() if amount > self.free[name] - kept[name]]
            if not short_of:
                for name, amount in demand.items():
                    self.free[name] -= amount
                _overtake({first_at[name] for name in demand if name in first_at}, now)
                admitted.append(waiter.pod)
                continue
            passed.append(waiter)
            for name in short_of:
                first_at.setdefault(name, waiter)
            if self.keep and self._keeps_room(waiter, short_of, kept, now):
                for name in short_of:
                    kept[name] += demand[name]
        self.line = passed
        return admitted

    def _keeps_room(self, waiter: _Waiter, short_of: list[str], kept: Mapping[str, int], now: float) -> bool:
        passed_for = now - waiter.overtaken_since if waiter.overtaken else 0.0
        if passed_for >= OVERTAKEN_AT_MOST:
            return True
        if waiter.overtaken < OVERTAKES_MAX or passed_for < OVERTAKEN_FOR_MAX:
            return False
        demand = waiter.pod.demand
        room = sum(min(1.0, max(0, self.free[name] - kept[name]) / demand[name]) for name in short_of)
        if room > waiter.most_room:
            waiter.most_room, waiter.grown_at = room, now
        pauses_at = waiter.grown_at + self._stalled_after(now)
        if pauses_at <= now:
            return False
        self.pauses_at = pauses_at if self.pauses_at is None else min(self.pauses_at, pauses_at)
        return True

    def _stalled_after(self, now: float) -> float:
        if self.releases == 0:
            return KEEP_STALLED
        return max(KEEP_STALLED, STALLED_RELEASES * (now - self.first_release) / self.releases)


def _overtake(first: set[_Waiter], now: float) -> None:
    """Count an overtaking for each of these: it was first in line for a resource that another pod took."""
    for waiter in first:
        if waiter.overtaken == 0:
            waiter.overtaken_since = now
        waiter.overtaken += 1


def bounds_of(workload: Workload) -> Bounds:
    """Run both references and compute the bounds."""
    keeping, first_fit = (measure(workload, reference(workload, keep=keep)) for keep in (True, False))
    makespan, p50, p95 = map(min, keeping, first_fit)
    return Bounds(makespan, p50, p95, area_bound(workload), arrival_bound(workload))


_ENDS, _ARRIVES, _LOOKS = range(3)  # the order of events at one instant


def reference(workload: Workload, *, keep: bool) -> dict[str, float]:
    """Return the time at which a reference admits each pod. At the same instant, ends come before arrivals."""
    pods = workload.pods
    namespaces = {name: _Namespace(quota, keep) for name, quota in workload.quotas.items()}
    events = [(pod.arrival, _ARRIVES, index) for index, pod in enumerate(pods)]
    heapq.heapify(events)
    indexes = {pod.name: index for index, pod in enumerate(pods)}
    admitted_at: dict[str, float] = {}
    while events:
        now = events[0][0]
        touched: dict[str, int] = {}
        while events and events[0][0] == now:
            _, what, index = heapq.heappop(events)
            space = namespaces[pods[index].namespace]
            touched[pods[index].namespace] = index
            if what == _ARRIVES:
                space.line.append(_Waiter(pods[index]))
            elif what == _ENDS:
                space.release(pods[index], now)
        for name, index in touched.items():
            for pod in namespaces[name].admit(now):
                admitted_at[pod.name] = now
                heapq.heappush(events, (now + pod.run_time, _ENDS, indexes[pod.name]))
            pauses_at = namespaces[name].pauses_at
            if pauses_at is not None:
                heapq.heappush(events, (pauses_at, _LOOKS, index))
    return admitted_at


def measure(workload: Workload, admitted_at: Mapping[str, float]) -> Measured:
    """Measure a run by its admission times (seconds since the first arrival); pods never admitted are left out."""
    went_in = [pod for pod in workload.pods if pod.name in admitted_at]
    waits = sorted(max(0.0, admitted_at[pod.name] - pod.arrival) for pod in went_in)
    makespan = max((admitted_at[pod.name] + pod.run_time for pod in went_in), default=0.0)
    return Measured(makespan, percentile(waits, 50), percentile(waits, 95))


def percentile(ordered: list[float], percent: int) -> float:
    """Return the nearest-rank percentile of values in ascending order; 0 without values."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def areas(workload: Workload) -> dict[tuple[str, str], float]:
    """Return sum(demand x run time) / quota by namespace and resource: the seconds of full use that each takes."""
    sums: dict[tuple[str, str], float] = {}
    for pod in workload.pods:
        for resource, amount in pod.demand.items():
            key = (pod.namespace, resource)
            sums[key] = sums.get(key, 0.0) + amount * pod.run_time
    return {(name, key): area / workload.quotas[name][key] for (name, key), area in sums.items()}


def area_bound(workload: Workload) -> float:
    """Return the largest of the areas: a minimum of the makespan."""
    return max(areas(workload).values(), default=0.0)


def arrival_bound(workload: Workload) -> float:
    """Return the maximum of arrival + run time: another minimum of the makespan."""
    return max((pod.arrival + pod.run_time for pod in workload.pods), default=0.0)

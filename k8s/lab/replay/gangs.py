"""The workload with a fifth of its pods in gangs, which compute only once all of their members live; and its runs.

The recipe; any change to it changes every figure of gangs:

1. Pods are picked in an order shuffled by ``random.Random("gangs SEED")``; each begins a gang of 2 to 16.
2. Its members are the picked pod and those of its namespace that arrive next, unless they are in a gang.
3. It has fewer members where more would exceed the quota: alone in its namespace, every gang fits.
4. All members arrive when the first one does. Demands, run times and quotas stay those of the workload.

Gangs are created in two ways: member by member, each with plain retries, and through the gate as one.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from .clients import Gated, make_client, replay, tally
from .reference import percentile
from .virtual_time import QuotaAdmission, Record, run_virtual
from .workload import Pod, Workload

End = Callable[[], object]

GANG_CLIENTS: Final = ("plain", "gate_observing")
"""The clients that are compared."""
SHARE: Final = 5  # one pod of so many is in a gang
SMALLEST: Final = 2
LARGEST: Final = 16
HALF: Final = 1.0
"""Seconds from a gang's first member to its last that count as holding a half: creating 16 pods takes 0.1 s."""
STANDSTILL: Final = 600.0
"""Seconds without a computing or a new pod after which the run stands still: all retries come within 60 s."""
LOOK: Final = 60.0  # seconds between looks for a standstill


def with_gangs(workload: Workload) -> Workload:
    """Put a fifth of the pods into gangs, as the recipe says; fewer if too few pods of a namespace fit together."""
    rng = random.Random(f"gangs {workload.seed}")
    left = {pod.name: pod for pod in workload.pods}
    wanted = len(workload.pods) // SHARE
    gangs: list[tuple[Pod, ...]] = []
    for first in rng.sample(workload.pods, len(workload.pods)):
        if wanted < SMALLEST:
            break
        if first.name not in left:
            continue
        size = min(rng.randint(SMALLEST, LARGEST), wanted)
        behind = (pod for pod in left.values() if pod.namespace == first.namespace and pod.arrival >= first.arrival)
        gang = _together(first, behind, size, workload.quotas[first.namespace])
        if len(gang) >= SMALLEST:
            gangs.append(tuple(replace(pod, arrival=first.arrival) for pod in gang))
            wanted -= len(gang)
            for pod in gang:
                del left[pod.name]
    arrivals = {pod.name: pod for gang in gangs for pod in gang}
    pods = sorted((arrivals.get(pod.name, pod) for pod in workload.pods), key=lambda pod: pod.arrival)
    names = tuple(tuple(pod.name for pod in gang) for gang in gangs)
    return replace(workload, pods=tuple(pods), gangs=names)


def _together(first: Pod, behind: Iterable[Pod], size: int, quota: Mapping[str, int]) -> list[Pod]:
    """Return the first pod and those behind it, as many as are wanted and fit the quota together."""
    gang, sums = [first], dict(first.demand)
    for pod in behind:
        if len(gang) == size:
            break
        if pod is first:
            continue
        more = {name: sums.get(name, 0) + amount for name, amount in pod.demand.items()}
        if any(amount > quota[name] for name, amount in more.items()):
            break
        gang.append(pod)
        sums.update(more)
    return gang


@dataclass(slots=True)
class GangRun:
    """What became of one gang. Times are seconds of the loop's clock."""

    names: tuple[str, ...]
    came: dict[str, float] = field(default_factory=dict)  # its members, when each was admitted
    complete_at: float | None = None  # when the last one was: it computes from then on
    starts: list[tuple[float, End]] = field(default_factory=list)  # of members that wait for the others

    def held(self, until: float) -> float:
        """Return the seconds from its first member to its last, or to ``until`` if it lacks some; 0 without members."""
        return (self._end(until) - min(self.came.values())) if self.came else 0.0

    def held_half(self, until: float) -> bool:
        """Return whether some of its members lived for over a second, or for ever, without the others."""
        return bool(self.came) and (self.complete_at is None or self.held(until) > HALF)

    def idle(self, until: float) -> float:
        """Return the pod-seconds that its members held quota without computing."""
        return sum(self._end(until) - when for when in self.came.values())

    def _end(self, until: float) -> float:
        return until if self.complete_at is None else self.complete_at


class Computing:
    """Which pods of the simulated cluster compute: the members of a gang once all of them live."""

    def __init__(self, workload: Workload) -> None:
        self.gangs = [GangRun(names) for names in workload.gangs]
        self.running = 0  # pods that compute
        self.changed_at = 0.0  # when a pod was last admitted or ended
        self._last_arrival = max(pod.arrival for pod in workload.pods)
        self._gang_of = {name: gang for gang in self.gangs for name in gang.names}

    def start(self, name: str, seconds: float, end: End) -> None:
        """A pod lives: let all end after their run times that compute from now on."""
        loop = asyncio.get_running_loop()
        now = self.changed_at = loop.time()
        gang = self._gang_of.get(name) or GangRun((name,))
        gang.came.setdefault(name, now)
        gang.starts.append((seconds, end))
        if len(gang.came) < len(gang.names):
            return
        if gang.complete_at is None:
            gang.complete_at = now
        self.running += len(gang.starts)
        for its_seconds, its_end in gang.starts:
            loop.call_later(its_seconds, self._ended, its_end)
        gang.starts.clear()

    def _ended(self, end: End) -> None:
        self.running -= 1
        self.changed_at = asyncio.get_running_loop().time()
        end()

    async def standstill(self) -> None:
        """Return once the run stands still."""
        loop = asyncio.get_running_loop()
        while self.running or loop.time() - max(self.changed_at, self._last_arrival) <= STANDSTILL:  # noqa: ASYNC110 - the clock decides
            await asyncio.sleep(LOOK)


@dataclass(frozen=True, slots=True)
class GangResult:
    """The result of a run. Times are seconds of the trace; None: never.

    A gang waits from its arrival until all of it lives. ``half_held_pod_s`` are the pod-seconds that members held
    quota while their gang was incomplete; for a gang that was never complete, until the run stood still.
    """

    creates_sent: int
    refused: int
    admitted: int
    lost: int
    duplicated: int
    gangs_complete: int
    gangs_held_half: int
    half_held_longest_s: float
    half_held_pod_s: float
    makespan_s: float | None
    gang_wait_p50_s: float | None
    gang_wait_p95_s: float | None
    single_wait_p50_s: float | None
    single_wait_p95_s: float | None
    stood_still_at_s: float | None


def run_gangs(workload: Workload, name: str) -> GangResult:
    """Run one client in virtual time. Raises ``ReplayError`` if it ends early, ``RuntimeError`` if the gate failed."""

    async def main() -> GangResult:
        computing = Computing(workload)
        cluster = QuotaAdmission(workload, start=computing.start)
        client = make_client(name, cluster, seed=workload.seed)
        replaying = asyncio.create_task(replay(workload, client))
        standstill = asyncio.create_task(computing.standstill())
        await asyncio.wait({replaying, standstill}, return_when=asyncio.FIRST_COMPLETED)
        stood_still_at = None if replaying.done() else computing.changed_at
        replaying.cancel()
        standstill.cancel()
        await asyncio.wait({replaying, standstill})
        if stood_still_at is None:
            replaying.result()
        if isinstance(client, Gated):
            client.check_open()
        return _result(workload, cluster.record, computing, stood_still_at)

    return run_virtual(main())


def _result(workload: Workload, record: Record, computing: Computing, stood_still_at: float | None) -> GangResult:
    until = computing.changed_at if stood_still_at is None else stood_still_at
    gangs = computing.gangs
    starts = dict(record.admitted_at)
    for gang in gangs:
        starts.update(dict.fromkeys(gang.names, math.inf if gang.complete_at is None else gang.complete_at))
    waits: tuple[list[float], list[float]] = ([], [])  # of single pods, of gangs
    for unit in workload.units:
        waits[len(unit) > 1].append(starts.get(unit[0].name, math.inf) - unit[0].arrival)
    singles, together = map(sorted, waits)
    return GangResult(
        **tally(workload, record),
        gangs_complete=sum(gang.complete_at is not None for gang in gangs),
        gangs_held_half=sum(gang.held_half(until) for gang in gangs),
        half_held_longest_s=max((gang.held(until) for gang in gangs), default=0.0),
        half_held_pod_s=sum(gang.idle(until) for gang in gangs),
        makespan_s=_or_never(max(starts.get(pod.name, math.inf) + pod.run_time for pod in workload.pods)),
        gang_wait_p50_s=_or_never(percentile(together, 50)),
        gang_wait_p95_s=_or_never(percentile(together, 95)),
        single_wait_p50_s=_or_never(percentile(singles, 50)),
        single_wait_p95_s=_or_never(percentile(singles, 95)),
        stood_still_at_s=stood_still_at,
    )


def _or_never(seconds: float) -> float | None:
    return None if math.isinf(seconds) else max(0.0, seconds)

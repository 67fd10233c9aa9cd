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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from backoff_ctrl.k8s.gate.gangs import gang_of

from .clients import Client, Gated, ReplayError, check, check_gate, creation_of, make_client
from .reference import percentile
from .virtual_time import QuotaAdmission, Record, run_virtual
from .workload import Pod, Workload

End = Callable[[], object]

SHARE: Final = 5  # one pod of so many is in a gang
SMALLEST: Final = 2
LARGEST: Final = 16
HALF: Final = 1.0
"""Seconds from a gang's first member to its last that count as holding a half: creating 16 pods takes 0.1 s."""
STANDSTILL: Final = 600.0
"""Where no pod computes and none came for so long, nothing will change any more: all retries come within 60 s."""
LOOK: Final = 60.0  # seconds between looks for a standstill


@dataclass(frozen=True, slots=True)
class GangWorkload:
    """A workload, and which of its pods belong together. ``units`` are gangs and single pods, by arrival."""

    workload: Workload
    gangs: tuple[tuple[Pod, ...], ...]

    @property
    def members(self) -> int:
        """The number of pods in gangs."""
        return sum(len(gang) for gang in self.gangs)

    @property
    def units(self) -> list[tuple[Pod, ...]]:
        """What is created as one: each gang, and each other pod."""
        in_gangs = {pod.name for gang in self.gangs for pod in gang}
        singles = [(pod,) for pod in self.workload.pods if pod.name not in in_gangs]
        return sorted([*self.gangs, *singles], key=lambda unit: unit[0].arrival)


def with_gangs(workload: Workload) -> GangWorkload:
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
    return GangWorkload(replace(workload, pods=tuple(pods)), tuple(gangs))


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

    names: frozenset[str]
    came: dict[str, float] = field(default_factory=dict)  # its members, when each was admitted
    complete_at: float | None = None  # when the last one was: it computes from then on
    _starts: list[tuple[float, End]] = field(default_factory=list)

    def member(self, name: str, now: float, seconds: float, end: End) -> list[tuple[float, End]]:
        """Note a member that lives; return what may run from now on: nothing, as long as members are lacking."""
        self.came.setdefault(name, now)
        self._starts.append((seconds, end))
        if self.complete_at is None and len(self.came) < len(self.names):
            return []
        if self.complete_at is None:
            self.complete_at = now
        starts, self._starts = self._starts, []
        return starts

    def held(self, until: float) -> float:
        """Return the seconds from its first member to its last; to ``until`` if it lacks members. 0: it has none."""
        return (self._end(until) - min(self.came.values())) if self.came else 0.0

    def held_half(self, until: float) -> bool:
        """Say whether some of its members lived for over a second, or for ever, without the others."""
        return bool(self.came) and (self.complete_at is None or self.held(until) > HALF)

    def idle(self, until: float) -> float:
        """Return the pod-seconds that its members held quota and computed nothing."""
        return sum(self._end(until) - when for when in self.came.values())

    def _end(self, until: float) -> float:
        return until if self.complete_at is None else self.complete_at


class Computing:
    """Which pods of the simulated cluster compute: the members of a gang once all of them live."""

    def __init__(self, work: GangWorkload) -> None:
        self.gangs = [GangRun(frozenset(pod.name for pod in gang)) for gang in work.gangs]
        self.running = 0  # pods that compute
        self.changed_at = 0.0  # when a pod was last admitted or ended
        self._gang_of = {name: gang for gang in self.gangs for name in gang.names}

    def start(self, name: str, seconds: float, end: End) -> None:
        """A pod lives: let all end after their run times that compute from now on."""
        loop = asyncio.get_running_loop()
        now = self.changed_at = loop.time()
        gang = self._gang_of.get(name)
        for its_seconds, its_end in [(seconds, end)] if gang is None else gang.member(name, now, seconds, end):
            self.running += 1
            loop.call_later(its_seconds, self._ended, its_end)

    def _ended(self, end: End) -> None:
        self.running -= 1
        self.changed_at = asyncio.get_running_loop().time()
        end()


async def _one_by_one(client: Client, pods: Sequence[Pod]) -> None:
    """Create the members one after the other, each with retries, and keep what there is: half gangs, too."""
    for pod in pods:
        await client.place(pod)


async def _as_one(client: Client, pods: Sequence[Pod]) -> None:
    """Wait in line until the whole gang is admitted, then create its members at once."""
    assert isinstance(client, Gated)
    client.start()
    first = pods[0]
    transport = client.transport(first.namespace)
    members = [(pod.manifest(), 1) for pod in pods]
    asked = gang_of(first.namespace, members, name=f"gang-of-{first.name}", server="replay", credential="replay")
    async with client.gate.gang(asked, transport) as gang:
        for answer in await asyncio.gather(*(gang.create(creation_of(pod), transport) for pod in pods)):
            check(answer)


GANG_CLIENTS: Final[Mapping[str, Callable[[Client, Sequence[Pod]], Awaitable[None]]]] = {
    "plain": _one_by_one,
    "gate_observing": _as_one,
}
"""The clients that are compared, and how they create a gang."""


@dataclass(frozen=True, slots=True)
class GangResult:
    """The result of a run. Times are seconds of the trace; None: never.

    A gang waits from its arrival until all of it lives. ``half_held_pod_s`` are the pod-seconds that members held
    quota while their gang was incomplete: until nothing changed any more, if it never was complete.
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


def run_gangs(work: GangWorkload, name: str) -> GangResult:
    """Run one client in virtual time. Raises ``ReplayError`` if it ends early, ``RuntimeError`` if the gate failed."""

    async def main() -> GangResult:
        computing = Computing(work)
        cluster = QuotaAdmission(work.workload, start=computing.start)
        client = make_client(name, cluster, seed=work.workload.seed)
        stood_still_at = await _replay(work, client, partial(GANG_CLIENTS[name], client), computing)
        check_gate(client)
        return _count(work, cluster.record, computing, stood_still_at)

    return run_virtual(main())


async def _replay(
    work: GangWorkload, client: Client, place_gang: Callable[[Sequence[Pod]], Awaitable[None]], computing: Computing
) -> float | None:
    """Let everything arrive at its time; return when all is created, or the time since when nothing changes any more.

    Raises ``ReplayError`` from the first error, which ends the run.
    """
    loop = asyncio.get_running_loop()
    last = max(pod.arrival for pod in work.workload.pods)

    async def arrive(pods: Sequence[Pod]) -> None:
        await asyncio.sleep(pods[0].arrival - loop.time())
        await (client.place(pods[0]) if len(pods) == 1 else place_gang(pods))

    pending = {loop.create_task(arrive(unit)) for unit in work.units}
    while pending:
        done, pending = await asyncio.wait(pending, timeout=LOOK, return_when=asyncio.FIRST_EXCEPTION)
        errors = [error for task in done if (error := task.exception()) is not None]
        stands_still = not computing.running and loop.time() - max(computing.changed_at, last) > STANDSTILL
        if pending and (errors or stands_still):
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)
        if errors:
            raise ReplayError(f"the replay ended early: {type(errors[0]).__name__}: {errors[0]}") from errors[0]
        if pending and stands_still:
            return computing.changed_at
    return None


def _count(work: GangWorkload, record: Record, computing: Computing, stood_still_at: float | None) -> GangResult:
    """Make the result from what the server saw."""
    until = computing.changed_at if stood_still_at is None else stood_still_at
    pods = work.workload.pods
    starts = dict(record.admitted_at)
    for gang in computing.gangs:
        starts.update(dict.fromkeys(gang.names, math.inf if gang.complete_at is None else gang.complete_at))
    in_gangs = {name for gang in computing.gangs for name in gang.names}
    waits = sorted(starts[gang[0].name] - gang[0].arrival for gang in work.gangs)
    singles = sorted(starts.get(pod.name, math.inf) - pod.arrival for pod in pods if pod.name not in in_gangs)
    return GangResult(
        creates_sent=record.creates,
        refused=record.refused,
        admitted=sum(record.admitted.values()),
        lost=sum(pod.name not in record.admitted for pod in pods),
        duplicated=sum(times - 1 for times in record.admitted.values()),
        gangs_complete=sum(gang.complete_at is not None for gang in computing.gangs),
        gangs_held_half=sum(gang.held_half(until) for gang in computing.gangs),
        half_held_longest_s=max((gang.held(until) for gang in computing.gangs), default=0.0),
        half_held_pod_s=sum(gang.idle(until) for gang in computing.gangs),
        makespan_s=_or_never(max(starts.get(pod.name, math.inf) + pod.run_time for pod in pods)),
        gang_wait_p50_s=_or_never(percentile(waits, 50)),
        gang_wait_p95_s=_or_never(percentile(waits, 95)),
        single_wait_p50_s=_or_never(percentile(singles, 50)),
        single_wait_p95_s=_or_never(percentile(singles, 95)),
        stood_still_at_s=stood_still_at,
    )


def _or_never(seconds: float) -> float | None:
    return None if math.isinf(seconds) else max(0.0, seconds)

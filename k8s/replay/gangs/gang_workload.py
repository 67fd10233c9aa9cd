"""The recipe that puts a fifth of a workload's pods into gangs. Any change here changes every figure of gangs.

1. Pods are picked in an order shuffled by ``random.Random("gangs SEED")``; each begins a gang of 2 to 16.
2. Its members are the picked pod and those of its namespace that arrive next, unless they are in a gang.
3. It has fewer members where more would exceed the quota: alone in its namespace, every gang fits.
4. All members arrive when the first one does. Demands, run times and quotas stay those of the workload.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from backoff_ctrl.k8s.replay.workload import Pod, Workload

SHARE: Final = 5  # one pod of so many is in a gang
SMALLEST: Final = 2
LARGEST: Final = 16


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

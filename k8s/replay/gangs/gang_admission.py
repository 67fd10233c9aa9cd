"""Simulates the cluster of a replay with gangs: a member's run time begins when all members of its gang live."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.replay.admission import QuotaAdmission

if TYPE_CHECKING:
    from collections.abc import Callable

    from .gang_workload import GangWorkload

    End = Callable[[], object]

HALF: Final = 1.0
"""Seconds from a gang's first member to its last that count as holding a half: creating 16 pods takes 0.1 s."""


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


class GangAdmission(QuotaAdmission):
    """The simulated cluster, in which gangs compute only as a whole. ``running`` counts the pods that compute."""

    def __init__(self, work: GangWorkload) -> None:
        """A cluster with the workload's quotas."""
        super().__init__(work.workload)
        self.gangs = [GangRun(frozenset(pod.name for pod in gang)) for gang in work.gangs]
        self.running = 0
        self.changed_at = 0.0  # when a pod was last admitted or ended
        self._gang_of = {name: gang for gang in self.gangs for name in gang.names}

    def _start(self, name: str, seconds: float, end: End) -> None:
        now = self.changed_at = asyncio.get_running_loop().time()
        gang = self._gang_of.get(name)
        for its_seconds, its_end in [(seconds, end)] if gang is None else gang.member(name, now, seconds, end):
            self.running += 1
            super()._start(name, its_seconds, partial(self._ended, its_end))

    def _ended(self, end: End) -> None:
        self.running -= 1
        self.changed_at = asyncio.get_running_loop().time()
        end()

"""What the reconciler counts as it goes: steps, what they took, failures; tasks by phase, when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from backoff_ctrl.k8s.status.catalogue import STEP_BUCKETS


@dataclass(slots=True)
class Counts:
    """Counters of one reconciler; they begin at 0 with it."""

    steps: int = 0
    step_seconds: float = 0.0
    by_time: list[int] = field(default_factory=lambda: [0] * (len(STEP_BUCKETS) + 1))
    errors: int = 0
    """Steps that raised an error and were due again."""
    writes: int = 0
    held_back: int = 0
    """Statuses that were not written at once, since little had changed."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Attempts that failed, by kind and code."""
    retries: Counter[str] = field(default_factory=Counter)
    """Further attempts, by the kind of the failure before."""
    ended: Counter[str] = field(default_factory=Counter)
    """Tasks that ended, by phase."""

    def step(self, seconds: float) -> None:
        """Count a step that took so long, waiting for the API server included."""
        self.steps += 1
        self.step_seconds += seconds
        self.by_time[bisect_left(STEP_BUCKETS, seconds)] += 1

"""What a storm asks for: its creates, drawn from a seed, and what happens to each of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from backoff_ctrl.k8s.lab.sandbox.kubelet import RUN_SECONDS

ROW: Final = "row"
"""The label with the name of the create that a pod comes from."""
Break = Literal["at once", "begun", "waits", "admitted", "answered"]
"""When a create is cancelled: before its first step, or as its ledger tells of that event."""
BREAKS: Final[tuple[Break, ...]] = ("at once", "begun", "waits", "admitted", "answered")
CPU: Final = ("100m", "200m", "250m", "500m")


@dataclass(frozen=True, slots=True)
class Plan:
    """One call. ``rows``: the names of its creates, several for a gang. ``twice``: it is made twice at once."""

    rows: tuple[str, ...]
    cpu: str
    runs_for: float
    timeout: float | None = None
    key: str | None = None
    twice: bool = False
    breaks: Break | None = None

    @property
    def pods(self) -> list[dict[str, Any]]:
        """The manifests."""
        return [pod(row, self.cpu, self.runs_for) for row in self.rows]

    @property
    def creates(self) -> int:
        """How many creates callers ask for."""
        return 2 if self.twice else len(self.rows)


def pod(row: str, cpu: str = "100m", runs_for: float = 0.02) -> dict[str, Any]:
    """The manifest of one create."""
    metadata = {"generateName": "storm-", "labels": {ROW: row}, "annotations": {RUN_SECONDS: f"{runs_for:.3f}"}}
    containers = [{"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": containers},
    }


def plans(seed: int, creates: int) -> Iterator[Plan]:
    """Draw calls until they ask for so many creates."""
    rng = random.Random(f"storm {seed}")
    number = 0
    while creates > 0:
        number += 1
        rows: tuple[str, ...] = (f"r{number}",)
        sort = rng.random()
        keyed = sort < 0.12
        if sort > 0.95:
            rows = tuple(f"r{number}-{member}" for member in range(rng.randint(2, 4)))
        plan = Plan(
            rows,
            rng.choice(CPU),
            rng.uniform(0.005, 0.06),
            timeout=rng.choice((0.001, 0.01, 0.1, 0.4)) if rng.random() < 0.12 else None,
            key=f"key-{number}" if keyed else None,
            twice=sort < 0.08,
            breaks=rng.choice(BREAKS) if rng.random() < 0.15 else None,
        )
        creates -= plan.creates
        yield plan

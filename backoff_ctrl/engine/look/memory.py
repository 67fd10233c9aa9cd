"""What a controller knows of quotas, as plain values that a caller may store over a restart.

Waiting requests and holds belong to a process and end with it. Remembered facts keep their age, so anything newer
replaces them; and creates start slowly until the server has answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backoff_ctrl.engine.facts.ceilings import Ceiling
from backoff_ctrl.engine.facts.quotas import Quota
from backoff_ctrl.engine.line.knowledge import Knowledge


@dataclass(frozen=True, slots=True)
class RememberedCeiling:
    """One ceiling: nano-units, and the seconds since its newest fact. ``used`` includes what was held."""

    limited: int
    used: int
    age: float


@dataclass(frozen=True, slots=True)
class RememberedQuota:
    """One quota: its ceilings by resource, and which scope classes it was found to apply to."""

    ceilings: Mapping[str, RememberedCeiling]
    applies: Mapping[frozenset[str], bool]


@dataclass(frozen=True, slots=True)
class Memory:
    """Quotas by namespace and name, and the learned settle time in seconds."""

    quotas: Mapping[str, Mapping[str, RememberedQuota]]
    settle_time: float


def remember(knowledge: Knowledge, now: float) -> dict[str, RememberedQuota]:
    """Return what is known of the quotas of one namespace, without those of which no ceiling is known."""
    return {
        name: RememberedQuota(
            {
                resource: RememberedCeiling(ceiling.limited, ceiling.charged + ceiling.pending, now - ceiling.answered)
                for resource, ceiling in quota.ceilings.items()
            },
            dict(quota.classes),
        )
        for name, quota in knowledge.quotas.items()
        if quota.ceilings
    }


def recall(knowledge: Knowledge, quotas: Mapping[str, RememberedQuota], oldest: float, now: float) -> bool:
    """Restore the remembered quotas that are unknown so far; say whether there were any.

    Facts older than ``oldest`` seconds are dropped; a fact from the future counts as received now.
    """
    structural = False
    for name, remembered in quotas.items():
        fresh = {r: c for r, c in remembered.ceilings.items() if c.age <= oldest}
        if name in knowledge.quotas or not fresh:
            continue
        quota = knowledge.quotas[name] = Quota(name, knowledge.context)
        quota.classes.update(remembered.applies)
        for resource, ceiling in fresh.items():
            made = quota.ceilings[resource] = Ceiling(name, resource, ceiling.limited, ceiling.used)
            made.date(now - max(0.0, ceiling.age))
        structural = True
    if structural:
        knowledge.restructure()
    return structural

"""What goes wrong on purpose, and what the server counted: tests count at the server, not at the client.

Faults can be injected by a test, or by a person over HTTP. All shares are probabilities from 0 to 1.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, fields
from typing import Any


class FaultError(ValueError):
    """No fault has this name, or its value is out of range."""


@dataclass(slots=True)
class Faults:
    """What goes wrong, and how often. Assign to a field to inject a fault; 0 switches it off.

    - ``quota_conflict_share``: charges that end in 409 on ``resourcequotas`` (seen: 4 % with two API servers)
    - ``quota_timeout_share``: creates and changes answered 500 ``resource quota evaluation timed out``
    - ``overload_share``: creates, changes and deletes answered 429, text/plain, with ``Retry-After``
    - ``retry_after_s``: the value of ``Retry-After``, whole seconds
    - ``unknown_outcome_share``: creates that are stored, then answered 504 ``context deadline exceeded``
    - ``reset_share``: creates that are stored, then get no answer because the connection is reset
    - ``late_release_s``: extra seconds before the quota controller gives back what was released
    - ``answer_delay_s``: seconds between the end of a create and its answer, whatever the answer is
    - ``stale_admission_share``, ``stale_admission_s``: for up to so many seconds after a release, admission
      still decides by the amounts before it (seen: 2-4 % of creates sent immediately on the quota's event)
    - ``watch_break_share``: watches that end after an event, without an error
    """

    quota_conflict_share: float = 0.0
    quota_timeout_share: float = 0.0
    overload_share: float = 0.0
    retry_after_s: float = 1
    unknown_outcome_share: float = 0.0
    reset_share: float = 0.0
    late_release_s: float = 0.0
    answer_delay_s: float = 0.0
    stale_admission_share: float = 0.0
    stale_admission_s: float = 0.002
    watch_break_share: float = 0.0
    rng: random.Random | None = field(default=None, repr=False)

    def strikes(self, name: str) -> bool:
        """Draw whether the fault of this name happens now."""
        share: float = getattr(self, name)
        return share > 0 and (share >= 1 or (self.rng is not None and self.rng.random() < share))

    def as_json(self) -> dict[str, float]:
        """All faults with their values, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "rng"}

    def change(self, values: dict[str, Any]) -> None:
        """Set several faults at once. Raises ``FaultError``, and then sets none, when one is wrong."""
        known = self.as_json()
        for name, value in values.items():
            if name not in known:
                raise FaultError(f"there is no fault {name}; the faults are {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _most(name):
                raise FaultError(f"{name} must be a number from 0 to {_most(name):g}")
        for name, value in values.items():
            setattr(self, name, value)

    def clear(self) -> None:
        """Switch all faults off."""
        for each in fields(self):
            if each.name != "rng":
                setattr(self, each.name, each.default)


def _most(name: str) -> float:
    return 1 if name.endswith("_share") else 3600


@dataclass(slots=True)
class CreateCounts:
    """Creates (POST on a namespaced collection, without dryRun) of one namespace, or of all namespaces."""

    seen: int = 0  # requests that arrived
    created: int = 0  # objects stored
    refused: int = 0  # answered 403 exceeded quota
    overloaded: int = 0  # answered 429
    other: int = 0  # every other answer that is not 201
    in_flight: int = 0  # arrived and not answered yet
    max_in_flight: int = 0

    def arrive(self) -> None:
        """Count a create that arrives."""
        self.seen += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def leave(self) -> None:
        """Count a create that was answered, or whose client has disconnected."""
        self.in_flight -= 1


@dataclass(slots=True)
class Counters:
    """Counts over all namespaces (``creates``), for each (``by_namespace``), and of all requests by verb."""

    creates: CreateCounts = field(default_factory=CreateCounts)
    by_namespace: dict[str, CreateCounts] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)

    def of(self, namespace: str) -> CreateCounts:
        """The counts of one namespace, zero for a new one."""
        return self.by_namespace.setdefault(namespace, CreateCounts())

    def note(self, verb: str) -> None:
        """Count one request of this verb."""
        self.requests[verb] = self.requests.get(verb, 0) + 1

    def reset(self) -> None:
        """Set the counts to zero; creates in flight stay counted as in flight."""
        for counts in (self.creates, *self.by_namespace.values()):
            counts.seen = counts.created = counts.refused = counts.overloaded = counts.other = 0
            counts.max_in_flight = counts.in_flight
        self.requests.clear()

    def as_json(self) -> dict[str, object]:
        """All counts, ready to serialise."""
        return asdict(self)

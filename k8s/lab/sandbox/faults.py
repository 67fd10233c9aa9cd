"""How the sandbox behaves, what goes wrong on purpose, and what the server counted.

Tests count at the server, not at the client.

Faults can be injected by a test, or by a person over HTTP. All shares are probabilities from 0 to 1.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """How the sandbox behaves. Durations are in seconds.

    ``release_delay``: from a release to the new status of the quota (measured on an idle server: 1-2 ms).
    ``fill_delay``: from creating or changing a quota to its enforcement. ``resync_every``: between full recounts.
    ``writes_per_second``: status writes of the quota controller, for the whole cluster; a kube-controller-manager
    does 20 by default (after a burst of 30), None means no limit.
    ``shuffled_quotas``: evaluate the quotas of a namespace in a different order each time, as a real server does
    (seen: any of six was named first); without it they are evaluated by name.
    ``late_events``: share of changes that watchers see only after the writer's answer, up to ``late_event_max``
    seconds late. ``bookmark_every``: for watches that ask for bookmarks. ``remembered``: events of each kind
    that a watch can resume from. ``largest_body``: limit on a request body, in bytes.
    """

    seed: int = 0
    release_delay: float = 0.002
    fill_delay: float = 0.002
    resync_every: float = 300.0
    writes_per_second: float | None = None
    shuffled_quotas: bool = False
    late_events: float = 0.01
    late_event_max: float = 0.005
    bookmark_every: float = 15.0
    remembered: int = 20_000
    largest_body: int = 3 * 1024 * 1024


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
    - ``answer_delay_s``: seconds between the end of a create and its answer, good or bad
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
        share: float = getattr(self, name)
        return share > 0 and (share >= 1 or (self.rng is not None and self.rng.random() < share))

    def as_json(self) -> dict[str, float]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "rng"}

    def change(self, values: dict[str, Any]) -> None:
        """Set several faults at once. If one is wrong, raises ``FaultError`` and changes no fault."""
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
        self.seen += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def leave(self) -> None:
        self.in_flight -= 1


@dataclass(slots=True)
class Counters:
    """Counts over all namespaces (``creates``), for each (``by_namespace``), and of all requests by verb."""

    creates: CreateCounts = field(default_factory=CreateCounts)
    by_namespace: dict[str, CreateCounts] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)

    def of(self, namespace: str) -> CreateCounts:
        return self.by_namespace.setdefault(namespace, CreateCounts())

    def note(self, verb: str) -> None:
        self.requests[verb] = self.requests.get(verb, 0) + 1

    def reset(self) -> None:
        """Set the counts to zero; creates in flight stay counted as in flight."""
        for counts in (self.creates, *self.by_namespace.values()):
            counts.seen = counts.created = counts.refused = counts.overloaded = counts.other = 0
            counts.max_in_flight = counts.in_flight
        self.requests.clear()

    def as_json(self) -> dict[str, object]:
        return asdict(self)

"""What the server saw: tests count here, not at the client."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class CreateCounts:
    """Creates (POST on a namespaced collection, without dryRun) of one namespace, or of all."""

    seen: int = 0  # requests that arrived
    created: int = 0  # objects stored
    refused: int = 0  # 403 exceeded quota
    overloaded: int = 0  # 429
    other: int = 0  # every other answer than 201
    in_flight: int = 0  # arrived, not answered yet
    max_in_flight: int = 0

    def arrive(self) -> None:
        """A create has arrived."""
        self.seen += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def leave(self) -> None:
        """A create was answered, or its client is gone."""
        self.in_flight -= 1


@dataclass(slots=True)
class Counters:
    """Counts over all namespaces (``creates``), for each (``by_namespace``), and of all requests by verb."""

    creates: CreateCounts = field(default_factory=CreateCounts)
    by_namespace: dict[str, CreateCounts] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)

    def of(self, namespace: str) -> CreateCounts:
        """The counts of one namespace."""
        return self.by_namespace.setdefault(namespace, CreateCounts())

    def note(self, verb: str) -> None:
        """Count a request."""
        self.requests[verb] = self.requests.get(verb, 0) + 1

    def reset(self) -> None:
        """Start anew; creates in flight stay counted as such."""
        for counts in (self.creates, *self.by_namespace.values()):
            counts.seen = counts.created = counts.refused = counts.overloaded = counts.other = 0
            counts.max_in_flight = counts.in_flight
        self.requests.clear()

    def as_json(self) -> dict[str, object]:
        """All counts."""
        return asdict(self)

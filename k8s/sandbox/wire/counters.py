"""What the server counted: tests count at the server, not at the client."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


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

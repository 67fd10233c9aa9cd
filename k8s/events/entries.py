"""The records of an event book: its limits, the writes it returns, and its state for each event and namespace."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from backoff_ctrl.k8s.cluster.token_bucket import Bucket
    from backoff_ctrl.k8s.gate.telling.stories import Story

Verb = Literal["create", "patch"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates in requests per second, times in seconds. The defaults allow a namespace 31 requests in a minute.

    New events may not use ``kept_share`` of a bucket's burst: it is kept for the repetitions of older events.
    """

    namespace_rate: float = 0.1
    namespace_burst: int = 25
    rate: float = 1.0
    burst: int = 100
    kept_share: float = 0.2
    window: float = 360.0  # a series ends after this long without a repetition, as in client-go
    first_patch: float = 10.0  # the pause between two writes of an event doubles from here to the window
    shut: float = 300.0  # after a 403, how long until the next try
    series_max: int = 1000
    namespaces_max: int = 1000
    tries: int = 5


class Ended(StrEnum):
    """The result of a write. ``LATER``: no answer, or an overloaded server. ``FAILED``: refused for good."""

    DONE = "done"
    GONE = "gone"
    FORBIDDEN = "forbidden"
    LATER = "later"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Write:
    """One request: POST ``body`` to the namespace's events, or a merge patch of the event ``name``."""

    verb: Verb
    namespace: str
    name: str
    body: dict[str, Any]
    count: int


@dataclass(slots=True, eq=False)
class Place:
    """The state of one namespace. ``shut``: by verb, until when a refused permission is not tried again."""

    name: str
    bucket: Bucket
    shut: dict[Verb, float] = field(default_factory=dict)

    def is_idle(self, now: float) -> bool:
        """Say whether nothing is lost if it is forgotten."""
        return self.bucket.is_full(now) and all(until <= now for until in self.shut.values())


@dataclass(slots=True, eq=False)
class Series:
    """One event. ``count``: how often its story was told; ``stored``: the count that the server has."""

    key: tuple[str, ...]
    place: Place
    story: Story | None  # None: it counts the stories of the namespace that were left out
    began: float
    free_at: float  # the earliest time of the next write that only raises the count
    last: float = 0.0
    count: int = 0
    stored: int = 0
    tries: int = 0
    pause: float = 0.0
    busy: bool = False  # a write is due, or under way
    body: dict[str, Any] | None = None

    @property
    def verb(self) -> Verb:
        """What the next write is."""
        return "patch" if self.stored else "create"


@dataclass(slots=True)
class EventCounts:
    """Counters. Each story told is written, waiting to be written, or left out."""

    told: int = 0
    creates: int = 0
    patches: int = 0
    left_out: int = 0
    errors: int = 0

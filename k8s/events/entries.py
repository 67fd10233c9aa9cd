"""The records of an event book: the writes it returns, and its state for each event and namespace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .budget import Account

Verb = Literal["create", "patch"]
Key = tuple[str, ...]


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
class Series:
    """One event. ``count``: how often its story was told; ``stored``: the count that the server has."""

    key: Key
    happening: str
    place: NamespaceEvents
    body: dict[str, Any]
    last: float
    count: int = 1
    stored: int = 0
    tries: int = 0
    pause: float = 0.0
    free_at: float = 0.0  # earliest time of the next patch
    pending: bool = True  # waiting to be created; a token is reserved
    due: float | None = None  # time of the next patch, if one is wanted

    @property
    def name(self) -> str:
        """The event's ``metadata.name``."""
        name: str = self.body["metadata"]["name"]
        return name


@dataclass(slots=True, eq=False)
class NamespaceEvents:
    """The state of one namespace. ``shut``: by verb, until when a refused permission is not tried again."""

    name: str
    account: Account
    series: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    since: float = 0.0  # time of the first story in left_out
    summary_due: float | None = None
    summed_up: float = float("-inf")
    shut: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Summary:
    """The stories that a summary event being written reports as left out."""

    left_out: Counter[str]
    since: float


@dataclass(slots=True)
class EventCounts:
    """Counters. Each story told is written, waiting to be written, or left out."""

    told: int = 0
    creates: int = 0
    patches: int = 0
    left_out: int = 0
    errors: int = 0

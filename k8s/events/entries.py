"""What an event book keeps: its limits, the writes it gives, and what it knows of events and namespaces."""

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
    """How a write ended. ``LATER``: no answer, or the server is overloaded. ``FAILED``: it will never be taken."""

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
    """One event: how often its news was heard, and of how often the server knows."""

    key: Key
    happening: str
    place: Place
    body: dict[str, Any]
    last: float
    count: int = 1
    stored: int = 0
    tries: int = 0
    pause: float = 0.0
    free_at: float = 0.0  # no patch before
    pending: bool = True  # waits to be created: a token is reserved
    due: float | None = None  # of its next patch, if one is wanted

    @property
    def name(self) -> str:
        """The name of the event."""
        name: str = self.body["metadata"]["name"]
        return name


@dataclass(slots=True, eq=False)
class Place:
    """One namespace."""

    name: str
    account: Account
    series: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    since: float = 0.0  # when the first of them was left out
    summary_due: float | None = None
    summed_up: float = float("-inf")
    shut: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Summary:
    """What was left out, while that is being told."""

    left_out: Counter[str]
    since: float


@dataclass(slots=True)
class Counts:
    """What became of the stories. Those told are written, waiting to be written, or left out."""

    told: int = 0
    creates: int = 0
    patches: int = 0
    left_out: int = 0
    errors: int = 0

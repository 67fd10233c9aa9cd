"""What an event book keeps: its limits, the writes it gives, and what it knows of events and namespaces."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .token_bucket import Account

Verb = Literal["create", "patch"]
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates in requests per second, times in seconds. The defaults allow a namespace 31 requests in a minute.

    ``kept_share`` of each bucket is not for new events but for the counts of old ones and for summaries.
    """

    namespace_rate: float = 0.1
    namespace_burst: int = 25
    rate: float = 1.0
    burst: int = 100
    kept_share: float = 0.2
    window: float = 360.0  # client-go's: a series ends when nothing was heard for so long
    first_patch: float = 10.0  # the pause between two patches of a series doubles from here to the window
    first_summary: float = 10.0
    summaries: float = 300.0
    shut: float = 300.0  # how long a refused permission is left alone
    series_max: int = 1000
    namespaces_max: int = 1000
    tries: int = 5


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

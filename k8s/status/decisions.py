"""A bounded ring of decisions: what happened to creates, numbered one by one, so that a listener resumes where it was.

The gate only appends. A reader copies a part and renders it later; if it was too slow, the ring has dropped what it
missed, and reports the gap.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from .shapes import Event

KEPT: Final = 4096
"""Decisions kept: about 1 MB."""


class KeptDecision(NamedTuple):
    """One decision as it is kept. ``at`` is Unix time; a field without a value is empty or None."""

    seq: int
    at: float
    gate: str
    event: Event
    id: str
    namespace: str
    kind: str
    name: str
    lane: str = ""
    reason: str = ""
    quota: str = ""
    resource: str = ""
    probe: bool | None = None
    waited: float | None = None


class Numbered(Protocol):
    """A decision in a ring, whatever else it has."""

    @property
    def seq(self) -> int: ...
    @property
    def namespace(self) -> str: ...


T = TypeVar("T", bound=Numbered)


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """The result of ``after``. ``missed`` decisions came after the given one and are forgotten."""

    decisions: list[T]
    missed: int


class Ring(Generic[T]):
    """The newest decisions, oldest first. Thread-safe."""

    def __init__(self, kept: int = KEPT) -> None:
        """Start empty; the first decision gets number 1."""
        self._lock = threading.RLock()  # a create may end in a finalizer, in a thread that is in here
        self._kept: deque[T] = deque(maxlen=kept)
        self._newest = 0
        self.on_news: Callable[[], object] | None = None
        """Called after each decision, from any thread; it must not block."""

    def renew(self) -> None:
        """Start over in a forked child, where the lock may be held for ever."""
        self.__init__(self._kept.maxlen or KEPT)  # type: ignore[misc]  # the same object stays in use

    @property
    def newest(self) -> int:
        """The number of the newest decision; 0: there was none."""
        return self._newest

    def append(self, make: Callable[[int], T]) -> None:
        """Append the decision that ``make`` returns for its number."""
        with self._lock:
            self._kept.append(make(self._newest + 1))
            self._newest += 1
        if self.on_news is not None:
            self.on_news()

    def after(self, seq: int, limit: int = KEPT) -> Read[T]:
        """Return up to ``limit`` decisions that came after number ``seq``, oldest first."""
        with self._lock:
            oldest = self._newest - len(self._kept) + 1
            start = max(0, seq + 1 - oldest)
            decisions = list(islice(self._kept, start, start + limit))
        return Read(decisions, max(0, oldest - 1 - seq))


class Decisions(Ring[KeptDecision]):
    """The decisions of the gates of this process."""

    def tell(self, at: float, gate: str, event: Event, subject: tuple[str, str, str, str], **more: object) -> None:
        """Append a decision on ``subject``: id, namespace, kind and name. ``more`` are further fields."""
        self.append(lambda seq: KeptDecision(seq, at, gate, event, *subject, **more))  # type: ignore[arg-type]  # by name

    def of(self, create: str) -> tuple[list[KeptDecision], bool]:
        """Return what is kept of one create, and whether older decisions were forgotten."""
        with self._lock:
            every = list(self._kept)
        found = [told for told in every if told.id == create]
        return found, bool(every) and every[0].seq > 1

"""Who stands in line, with what in hand, and what a gate counts of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from backoff_ctrl.engine.outcomes import Abandoned

if TYPE_CHECKING:
    from backoff_ctrl.engine.controller import Controller
    from backoff_ctrl.engine.tickets import Refusal, Ticket

    from .ledger import Desk


class Waiter(Protocol):
    """Who stands in line. The calls come from any thread, without the lock, and must not block."""

    def admitted(self, held: Held) -> None:
        """Take the ticket."""

    def refused(self, refusal: Refusal) -> None:
        """Hear the engine's no."""

    def opened(self) -> None:
        """Go ungated: the engine failed."""


@dataclass(frozen=True, slots=True)
class Held:
    """A ticket and the engine that gave it: after a failure there is a new engine, which does not know it."""

    ticket: Ticket
    engine: Controller


@dataclass
class Counts:
    """What the gate did so far. ``waiting`` is how it stands now."""

    sent: int = 0
    admitted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    failed_open: int = 0
    shadow_waits: int = 0
    late: int = 0
    waiting: int = 0


class Trial:
    """Stands in line for a moment, to see whether the engine would have let the create in."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._held: Held | None = None
        self._closed = False

    def admitted(self, held: Held) -> None:
        if self._closed:  # by another thread, a moment too late
            self._desk.settle(held, Abandoned())
        self._held = held

    def refused(self, refusal: Refusal) -> None:
        """It would have been refused: counted with those that would have waited."""

    def opened(self) -> None:
        """The engine failed, and counted it."""

    def close(self) -> Held | None:
        self._closed = True
        return self._held

"""Who waits in the line, the tickets they hold, and what a gate counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.controller import Controller
    from backoff_ctrl.engine.tickets import Refusal, Ticket


class Waiter(Protocol):
    """Something that waits in line. It is called from any thread, without the ledger's lock, and must not block."""

    def admitted(self, held: Held) -> None:
        """Take the ticket."""

    def refused(self, refusal: Refusal) -> None:
        """Learn that the engine will not admit the request."""

    def opened(self) -> None:
        """Go on ungated, because the engine failed."""


@dataclass(frozen=True, slots=True)
class Held:
    """A ticket and the engine that issued it: after a failure there is a new engine, which does not know the ticket."""

    ticket: Ticket
    engine: Controller


@dataclass
class GateCounts:
    """What the gate has done since it opened; ``waiting`` is the number of creates in line now.

    ``refused`` counts the server's refusals by lane, ``passed`` creates let through by their namespace's mode,
    ``failed_open`` internal errors, ``late`` tickets that the engine had given up (``Policy.ticket_max``) before
    they ended.
    """

    sent: int = 0
    admitted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    failed_open: int = 0
    shadow_waits: int = 0
    late: int = 0
    waiting: int = 0


class Trial:
    """Waits in line for a moment, to find out whether the engine would admit a create in shadow mode."""

    def __init__(self, give_back: Callable[[Held], None]) -> None:
        """``give_back`` ends a ticket that comes too late."""
        self._give_back = give_back
        self._held: Held | None = None
        self._closed = False

    def admitted(self, held: Held) -> None:
        if self._closed:  # another thread was slower by a moment
            self._give_back(held)
        self._held = held

    def refused(self, refusal: Refusal) -> None:
        """Do nothing: enforced, it would be refused, which is counted like a wait."""

    def opened(self) -> None:
        """Do nothing: the ledger has counted the engine's failure."""

    def close(self) -> Held | None:
        """Return the ticket, if there is one by now."""
        self._closed = True
        return self._held

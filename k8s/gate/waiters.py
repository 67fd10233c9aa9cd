"""Who waits in the line, the tickets they hold, the calls that they are owed, and what a gate counts."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.controller import Controller
    from backoff_ctrl.engine.tickets import Refusal, Ticket


CALLS_MAX: Final = 3
"""How often a call that a Ctrl-C (or the like) breaks off is made."""


class Waiter(Protocol):
    """Something that waits in line. It is called from any thread, without the ledger's lock, and must not block.

    After a Ctrl-C a call may be made again.
    """

    def admitted(self, held: Held) -> None:
        """Take the ticket."""

    def refused(self, refusal: Refusal) -> None:
        """Learn that the engine will not admit the request."""

    def opened(self) -> None:
        """Go on ungated, because the engine failed."""


@dataclass(slots=True, eq=False)
class Held:
    """A ticket and the engine that issued it: after a failure there is a new engine, which does not know the ticket.

    ``taken``: its create goes on with it, or has given it back; ``settled``: the engine knows how it ended.
    """

    ticket: Ticket
    engine: Controller
    taken: bool = False
    settled: bool = False


class Call:
    """A call that is owed to a waiter, or to nobody in particular (None)."""

    __slots__ = ("begun", "do", "waiter")

    def __init__(self, waiter: Waiter | None, do: Callable[[], object]) -> None:
        """``begun`` counts how often it was."""
        self.waiter = waiter
        self.do = do
        self.begun = 0


class Owed:
    """Calls that are owed to waiters, oldest first. Thread-safe, by single steps of the queue and of the dict.

    A Ctrl-C, or whatever else a signal handler or another thread raises, may strike between any two steps of a thread,
    and the program may go on after it. The calls are for other creates, too: those would wait for ever if theirs were
    lost. So a call counts as owed until it was made, and ``again`` queues all that are owed: what was only begun, and
    what was lost between the queue and its call. A call may thus be made twice.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._owed: dict[Call, None] = {}
        self._queue: deque[Call] = deque()

    def add(self, waiter: Waiter | None, do: Callable[[], object]) -> None:
        """Owe a call."""
        call = Call(waiter, do)
        self._owed[call] = None
        self._queue.append(call)

    def make(self, failed: Callable[[Waiter | None, Exception], object]) -> None:
        """Make all calls; ``failed`` is told of those that raise an error, and must not raise one."""
        while self._queue:
            try:
                call = self._queue.popleft()
            except IndexError:  # another thread was faster
                break
            call.begun += 1
            try:
                call.do()
            except Exception as error:  # noqa: BLE001 - law 18: of another create, perhaps; it must not wait for ever
                failed(call.waiter, error)
            self._owed.pop(call, None)

    def again(self) -> None:
        """Queue all that are owed once more, except those that were broken off too often."""
        for call in list(self._owed):
            if call.begun < CALLS_MAX:
                self._queue.append(call)
            else:
                self._owed.pop(call, None)


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
        self._refusal: Refusal | None = None

    def admitted(self, held: Held) -> None:
        if self._closed:  # another thread was slower by a moment
            self._give_back(held)
        self._held = held

    def refused(self, refusal: Refusal) -> None:
        """Note that it would be refused."""
        self._refusal = refusal

    def opened(self) -> None:
        """Do nothing: the ledger has counted the engine's failure."""

    def close(self) -> tuple[Held | None, Refusal | None]:
        """Return the ticket or the engine's refusal, if there is one by now; neither: it would wait."""
        self._closed = True
        return self._held, self._refusal

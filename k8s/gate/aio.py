"""``AsyncGate``: creates wait their turn on an event loop. (``Gate``, for threads, is in ``threads``.)"""

from __future__ import annotations

import asyncio
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.answers.answer import Answer, GateClosed, NotSent, OutcomeUnknown, WaitedTooLong
from backoff_ctrl.k8s.creates.actions import Answered, Broken, Event, Refresh, Refreshed, Unknown
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT

from .door import Door
from .driver import Driver
from .threads import Gate
from .timers import LoopTimers
from .transport import AsyncTransport, ask, failed
from .waiters import GateCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.creates.actions import Call

    from .ledger import Ledger

__all__ = [
    "Answer",
    "AsyncGate",
    "AsyncTransport",
    "Creation",
    "Gate",
    "GateClosed",
    "GateCounts",
    "LoopDriver",
    "NotSent",
    "OutcomeUnknown",
    "WaitedTooLong",
]


class AsyncGate(Door):
    """Lets creates through in the engine's order, on asyncio.

    ``mode`` is ``enforce``, ``shadow`` (decide and count, but send everything) or ``off``: one for all, a mapping
    by namespace (``"*"`` for the others), or a function of the namespace. ``clock`` defaults to the time of the
    running loop, so that virtual time works. ``rng`` makes names and jitter repeatable. ``ledger`` shares the ledger
    of another gate; the other arguments are then that gate's.
    """

    _timers = LoopTimers

    @cached_property
    def _in_flight(self) -> set[asyncio.Task[None]]:
        return set()

    async def create(self, creation: Creation, transport: AsyncTransport) -> Answer:
        """Wait for a turn, send, and return the server's last answer, whatever its status.

        Raises ``WaitedTooLong`` when the time limit has passed, ``GateClosed`` when the gate is closed, and the
        transport's ``NotSent`` or ``OutcomeUnknown`` after some tries. Cancelled before it is sent, the create
        leaves the line; after that it goes on, and its hold stays until it is answered.
        """
        driver = self.prepare(creation, transport)
        await driver.run()
        return driver.result()

    def prepare(self, creation: Creation, transport: AsyncTransport) -> LoopDriver:
        """Prepare a create that ``run()`` drives on the running event loop."""
        return LoopDriver(self, creation, transport)

    async def aclose(self) -> None:
        """Cancel what waits in this ledger, and wait until what was sent is answered, at most 40 s."""
        self.ledger.close()
        await self.drain()

    async def drain(self) -> None:
        """Wait until what was sent through this gate is answered, at most 40 s: then the server has ended it, too."""
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=SERVER_LIMIT)


class LoopDriver(Driver):
    """A create whose steps run in the event loop that is running."""

    def __init__(self, gate: AsyncGate, creation: Creation, transport: AsyncTransport) -> None:
        """Prepare; ``run`` starts it."""
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hands = _LoopHands(transport, gate.ledger, gate._in_flight)  # noqa: SLF001 - its own driver
        super().__init__(gate, gate.ledger, creation, hands, self._stop, gate._names)  # noqa: SLF001

    async def run(self) -> None:
        """Drive the create to its end, which is then in ``answer`` or ``error``. Raises only if it is cancelled."""
        self.begin()
        try:
            await self._ended
        except asyncio.CancelledError as stop:
            self.cancel(stop)
            raise

    def _stop(self) -> None:
        if not self._ended.done():  # cancelled
            self._ended.set_result(None)


class _LoopHands:
    """Steps run in the loop. Each call of the transport is a task of its own, so that no cancellation reaches it."""

    def __init__(self, transport: AsyncTransport, ledger: Ledger, in_flight: set[asyncio.Task[None]]) -> None:
        self.lists_quotas = hasattr(transport, "list_quotas")  # a runtime-checkable protocol would take 3.5 us
        self._transport = transport
        self._clock = ledger.timers.now
        self._in_flight = in_flight
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def post(self, step: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread:
            self._loop.call_soon(step)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(step)

    def now(self, step: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread:
            step()
        else:
            self.post(step)

    def call(self, call: Call, reply: Callable[[Event], None]) -> None:
        task = self._loop.create_task(self._run(call, reply))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _run(self, call: Call, reply: Callable[[Event], None]) -> None:
        event: Event
        answer: Any = None
        sent = self._clock()
        try:
            async with asyncio.timeout(SERVER_LIMIT):
                asked = ask(self._transport, call)
                if asked is not None:
                    answer = await asked
        except TimeoutError as error:
            event = Unknown(error, self._clock())
        except asyncio.CancelledError as error:  # the loop is ending
            reply(Broken(error))
            raise
        except Exception as error:  # noqa: BLE001 - whatever the transport raises ends the create
            event = failed(error, self._clock())
        else:
            event = Refreshed() if isinstance(call, Refresh) else Answered(answer, sent, self._clock())
        reply(event)

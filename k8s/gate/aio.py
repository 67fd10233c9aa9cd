"""``AsyncGate``: creates wait their turn on an event loop. (``Gate``, for threads, is in ``threads``.)"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.answers.answer import Answer, GateClosed, NotSent, OutcomeUnknown, WaitedTooLong
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT

from .door import Door
from .driver import Driver
from .gangs.waiting import GangWait
from .threads import Gate
from .timers import LoopTimers
from .transport import AsyncTransport, ask
from .waiters import GateCounts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .gangs.admitted import AdmittedGang
    from .gangs.asked import GangAsked
    from .transport import Reply

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

    The arguments are those of ``Door``; ``clock`` defaults to the time of the running loop, so that virtual time works.
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
        try:
            driver = self.prepare(creation, transport)
            await driver.run()
        except Exception as error:
            self.ledger.failed_open(error)
            if creation.key is not None:  # without the gate it could be stored a second time
                raise
            return await transport.send(creation.body)
        return driver.answer if driver.answer is not None else driver.result()

    @asynccontextmanager
    async def gang(
        self,
        asked: GangAsked,
        transport: AsyncTransport | None = None,
        on_wait: Callable[[GangWait], object] = lambda _: None,
    ) -> AsyncIterator[AdmittedGang]:
        """Wait until the whole gang is admitted; then its members are created within the block, by ``gang.create``.

        As ``Gate.gang``. ``on_wait`` is given what waits, before the line is joined: it can be asked why it waits. A
        wait that is cancelled leaves nothing behind.
        """
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def stop() -> None:
            if not ended.done():
                ended.set_result(None)

        def told() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stop)
            elif wait.gang is not None:  # nobody is left who could create its members
                wait.gang.give_back()

        hands = None if transport is None else _LoopHands(transport, self._in_flight)
        wait = GangWait(self, self.ledger, asked, hands, told)
        try:
            on_wait(wait)
            wait.begin()
            await ended
        except BaseException as error:
            wait.break_off(error)
            raise
        with wait.held() as gang:
            yield gang

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

    __slots__ = ("_ended",)

    def __init__(self, gate: AsyncGate, creation: Creation, transport: AsyncTransport) -> None:
        """Prepare; ``run`` starts it."""
        hands = _LoopHands(transport, gate._in_flight)  # noqa: SLF001 - its own driver
        self._ended = hands.ended = asyncio.get_running_loop().create_future()
        # The end is the hands' own: driver and method would hold each other until a collection.
        super().__init__(gate, gate.ledger, creation, hands, hands.end, gate._names)  # noqa: SLF001
        self.thread = hands.thread

    async def run(self) -> None:
        """Drive the create to its end, which is then in ``answer`` or ``error``. Raises only if it is cancelled."""
        self.guarded(self.begin)
        try:
            await self._ended
        except asyncio.CancelledError as stop:
            self.cancel(stop)
            raise


class _LoopHands:
    """Steps run in the loop. Each call of the transport is a task of its own, so that no cancellation reaches it."""

    __slots__ = ("_in_flight", "_loop", "_transport", "ended", "lists_quotas", "thread")

    def __init__(self, transport: AsyncTransport, in_flight: set[asyncio.Task[None]]) -> None:
        self.lists_quotas = hasattr(transport, "list_quotas")  # a runtime-checkable protocol would take 3.5 us
        self._transport = transport
        self._in_flight = in_flight
        self._loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.ended: asyncio.Future[None] | None = None  # of the create, for whoever waits for it

    def end(self) -> None:
        if self.ended is not None and not self.ended.done() and not self._loop.is_closed():  # cancelled
            self.ended.set_result(None)

    def post(self, step: Callable[[], object]) -> None:
        if self._loop.is_closed():
            raise GateClosed("the event loop of the create was closed before the create had ended")
        if threading.get_ident() == self.thread:
            self._loop.call_soon(step)
        else:
            self._loop.call_soon_threadsafe(step)

    def now(self, step: Callable[[], object]) -> None:
        if threading.get_ident() == self.thread:
            step()
        else:
            self.post(step)

    def call(self, reply: Reply) -> None:
        task = self._loop.create_task(self._run(reply))
        self._in_flight.add(task)
        task.add_done_callback(partial(self._over, reply))

    def _over(self, reply: Reply, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):  # the transport's own are in the reply
            reply.to.lost(reply, error)

    async def _run(self, reply: Reply) -> None:
        try:
            async with asyncio.timeout(SERVER_LIMIT):
                asked = ask(self._transport, reply.call)
                if asked is not None:
                    reply.answer = await asked
        except asyncio.CancelledError as stop:  # the loop is ending
            reply.error = stop
            reply.to.replied(reply)
            raise
        except Exception as error:  # noqa: BLE001 - whatever the transport raises, the create goes on or ends
            reply.error = error
        reply.to.replied(reply)

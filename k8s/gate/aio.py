"""``AsyncGate``: creates wait their turn on an event loop. (``Gate``, for threads, is in ``threads``.)"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from backoff_ctrl.k8s.gate.creates.actions import Call, ListQuotas
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.runtime.host import LOOK_AGAIN, Alarms, LoopAlarms
from backoff_ctrl.k8s.kube.answers.answer import (
    SERVER_LIMIT,
    Answer,
    GateClosed,
    NotSent,
    OutcomeUnknown,
    WaitedTooLong,
)

from .any_gate import AnyGate
from .create import Create
from .gangs import AdmittedGang, GangAsked, GangLife, GangWait, gang_life
from .ledger import Ledger
from .life import AsyncTransport, Life, ask, life
from .line import Line
from .locked_engine import GateCounts
from .threads import Gate
from .unfinished import Turn, Unfinished

__all__ = [
    "Answer",
    "AsyncGate",
    "AsyncTransport",
    "Creation",
    "Gate",
    "GateClosed",
    "GateCounts",
    "NotSent",
    "OutcomeUnknown",
    "WaitedTooLong",
]


class AsyncGate(AnyGate):
    """Lets creates through in the engine's order, on asyncio.

    The arguments are those of ``AnyGate``; ``clock`` defaults to the time of the running loop, so that virtual time
    works.
    """

    _alarms = LoopAlarms

    @cached_property
    def _in_flight(self) -> set[asyncio.Task[Any]]:
        return set()

    async def create(self, creation: Creation, transport: AsyncTransport) -> Answer:
        """Wait for a turn, send, and return the server's last answer, of any status.

        Raises ``WaitedTooLong`` when the time limit has passed, ``GateClosed`` when the gate is closed, and the
        transport's ``NotSent`` or ``OutcomeUnknown`` after some tries. Cancelled before it is sent, the create
        leaves the line; after that it goes on, and its hold stays until it is answered.
        """
        create = Create(self, creation)
        await self.run(create, transport)
        return create.result()

    def run(self, create: Create, transport: AsyncTransport) -> Coroutine[Any, Any, None]:
        """Take a create to its end, when it has an ``answer`` or an ``error``. Raises only if it is cancelled."""
        create.thread = threading.get_ident()
        living = life(create, self, lists_quotas=hasattr(transport, "list_quotas"))
        return self._drive(living, create, transport)  # no coroutine of its own: each takes 0.3 kB while it waits

    @asynccontextmanager
    async def gang(
        self,
        asked: GangAsked,
        transport: AsyncTransport | None = None,
        on_wait: Callable[[GangWait], object] = lambda _: None,
    ) -> AsyncIterator[AdmittedGang]:
        """Wait until the whole gang is admitted; then its members are created within the block, by ``gang.create``.

        As ``Gate.gang``. ``on_wait`` is given what waits, before the line is joined: it can be asked why it waits. A
        wait that is cancelled leaves no trace.
        """
        wait = GangWait(self, asked)
        wait.thread = threading.get_ident()
        on_wait(wait)
        may_read = transport is not None and hasattr(transport, "list_quotas")
        await self._drive(gang_life(wait, self, may_read=may_read), wait, transport)
        with wait.held_gang() as gang:
            yield gang

    async def aclose(self) -> None:
        """Cancel what waits in this ledger, and wait until what was sent is answered, at most 40 s."""
        self.ledger.close()
        await self.drain()

    async def drain(self) -> None:
        """Wait until what was sent through this gate is answered, at most 40 s: then the server has ended it, too."""
        loop = asyncio.get_running_loop()  # another one, that was closed, answers no more
        while here := [each for each in list(self._in_flight) if each.get_loop() is loop]:
            _, unanswered = await asyncio.wait(here, timeout=SERVER_LIMIT)
            if unanswered:
                return

    # -- the driver ---------

    async def _drive(
        self, living: Life | GangLife, create: Unfinished, transport: Any, call: asyncio.Task[Any] | None = None
    ) -> None:
        """Resume a life with what it asks for. Cancelled after a send, it goes on in a task of its own.

        ``call`` is under way already.
        """
        goes_on = False
        try:
            need = next(living, None) if call is None else None
            while need is not None or call is not None:
                try:
                    answer = None
                    if isinstance(need, Turn):
                        waker = _Waker(create, self.ledger.line)
                        if waker.listens(need, self.ledger):
                            try:
                                await waker
                            finally:
                                waker.unset()
                    else:
                        call = call or self._begin(need, create, transport)
                        await asyncio.wait((call,))
                        if call.cancelled():  # by what it awaits: its caller's own cancellation never reaches it
                            raise OutcomeUnknown("the call was cancelled by what it waited for")  # noqa: TRY301
                        answer = call.result()
                except asyncio.CancelledError as stop:
                    goes_on = call is not None and self._goes_on(living, create, transport, call, stop)
                    raise
                except Exception as error:  # noqa: BLE001 - the transport's or ours: the life decides what it means
                    need = _resumed(living.throw, error)
                else:
                    need = _resumed(living.send, answer)
                call = None
        finally:
            if not goes_on:
                living.close()

    def _begin(self, call: Call | None, create: Unfinished, transport: Any) -> asyncio.Task[Any]:
        """Begin a call in a task of its own, so that no cancellation of the caller's reaches it."""
        patience = SERVER_LIMIT
        if isinstance(call, ListQuotas) and create.until is not None:  # it only helps: not beyond the create's limit
            patience = min(patience, self.ledger.engine.alarms.left(create.until))
        assert call is not None
        task = asyncio.get_running_loop().create_task(_made(transport, call, patience))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    def _goes_on(
        self,
        living: Life | GangLife,
        create: Unfinished,
        transport: Any,
        call: asyncio.Task[Any],
        stop: asyncio.CancelledError,
    ) -> bool:
        """Let a create that was sent go on without its caller; break off a call that was made before that."""
        create.gate = None
        if not create.sends or call.cancelling():  # the loop is ending
            call.cancel()
            return False
        create.stopped = create.stopped or stop
        task = asyncio.get_running_loop().create_task(self._drive(living, create, transport, call))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return True


def _resumed(resume: Callable[[Any], Turn | Call], given: Any) -> Turn | Call | None:
    try:
        return resume(given)
    except StopIteration:
        return None


async def _made(transport: Any, call: Call, patience: float) -> Any:
    async with asyncio.timeout(patience):
        asked = ask(transport, call)
        return None if asked is None else await asked


class _Waker(asyncio.Future[None]):
    """The wait of a task for a turn, which any thread may end; if its loop was closed, the turn is given back."""

    __slots__ = ("_alarm", "_create", "_line", "_look")

    def __init__(self, create: Unfinished, line: Line) -> None:
        super().__init__()
        self._create = create
        self._line = line
        self._alarm: Callable[[], object] | None = None
        self._look: asyncio.TimerHandle | None = None

    def listens(self, turn: Turn, ledger: Ledger) -> bool:
        """Have it end when the turn comes, or its time is over; False: it has come."""
        if not self._line.listen(turn, self):
            return False
        if turn.until is not None:
            self._alarm = ledger.call_at(turn.until, self)
        self._look_after(ledger.engine.alarms)
        return True

    def _look_after(self, alarms: Alarms) -> None:
        """Have the engine's alarms ring here once the loop has ended on which they ring."""
        loop = self.get_loop()
        self._look = None if alarms.ring_beside(loop) else loop.call_later(LOOK_AGAIN, self._look_after, alarms)

    def __call__(self, turn: Turn | None = None) -> None:  # noqa: ARG002 - as the ledger calls it
        """Wake the task. An alarm gives no turn."""
        loop = self.get_loop()
        if loop.is_closed():
            self._line.give_back(self._create)
        elif threading.get_ident() == self._create.thread:
            self._end()
        else:
            loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self.done():  # else the caller was cancelled
            self.set_result(None)

    def unset(self) -> None:
        if self._look is not None:
            self._look.cancel()
        if self._alarm is not None:
            self._alarm()

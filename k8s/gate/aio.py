"""``AsyncGate``: creates wait their turn on an event loop. (``Gate``, for threads, is in ``gate_threads``.)"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.answers.answer import Answer, GateClosed, NotSent, OutcomeUnknown, WaitedTooLong
from backoff_ctrl.k8s.creates.actions import Answered, Broken, Event, Refreshed, Unknown, Unsent
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.creates.naming import NAMES
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT

from .driver import Errand
from .ledger import Desk
from .threads import Gate
from .timers import LoopTimers
from .waiters import Counts

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from backoff_ctrl.engine.controller import Controller

    from .modes import Mode

__all__ = [
    "Answer",
    "AsyncGate",
    "AsyncTransport",
    "Counts",
    "Creation",
    "Gate",
    "GateClosed",
    "NotSent",
    "OutcomeUnknown",
    "WaitedTooLong",
]


class AsyncTransport(Protocol):
    """How one create reaches its server. Each call takes fresh credentials."""

    async def send(self, body: dict[str, Any]) -> Answer:
        """POST the body. Raises ``NotSent`` (it never left) or ``OutcomeUnknown`` (it left, and no answer came)."""

    async def look_up(self, name: str) -> Answer:
        """GET the object of that name. Raises as ``send`` does."""


@runtime_checkable
class AsyncRefreshing(Protocol):
    """A transport that can fetch new credentials on demand, when the server has refused the old ones."""

    async def refresh(self) -> None:
        """Fetch them."""


@runtime_checkable
class AsyncReading(Protocol):
    """A transport that can list the quotas of the create's namespace, so that not even the first is refused."""

    async def read_quotas(self) -> Answer:
        """GET them, with little patience. Raises as ``send`` does."""


class AsyncGate:
    """Lets creates through in the engine's order, on asyncio.

    ``mode`` is ``enforce``, ``shadow`` (decide and count, but send everything) or ``off``: one for all, a mapping
    by namespace (``"*"`` for the others), or a function of the namespace. ``clock`` defaults to the time of the
    running loop, so that virtual time works. ``desk`` shares the ledger of another gate; then the other arguments
    are that gate's.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        mode: Mode | Mapping[str, Mode] | Callable[[str], Mode] = "enforce",
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        desk: Desk | None = None,
    ) -> None:
        """Open. Nothing is started before the first create."""
        self.desk = desk if desk is not None else Desk(LoopTimers(clock), policy or Policy(), mode, rng)
        self._names = rng if rng is not None else NAMES
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def controller(self) -> Controller:
        """Return the engine, to look at. It is not thread-safe: tell it news through ``desk``."""
        return self.desk.controller

    @property
    def counts(self) -> Counts:
        """Return what was done so far."""
        return self.desk.counts

    async def create(
        self, creation: Creation, transport: AsyncTransport, *, begun: Callable[[Errand], object] | None = None
    ) -> Answer:
        """Wait for a turn, send, and return the server's last word, whatever its status.

        Raises ``WaitedTooLong``, ``GateClosed``, or the transport's ``NotSent`` and ``OutcomeUnknown`` once
        patience is at its end. Cancelled before it is sent, the create leaves the line; after, it goes on, and
        its hold stays until it is answered. ``begun`` is given the errand, which knows what happens on the way.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(answer: Answer | None, error: BaseException | None) -> None:
            if future.done():
                return
            if answer is not None:
                future.set_result(answer)
            else:
                future.set_exception(error or GateClosed("no answer"))

        errand = Errand(self.desk, creation, _LoopHands(transport, self.desk, self._tasks), done, self._names)
        if begun is not None:
            begun(errand)
        errand.begin()
        try:
            return await future
        except asyncio.CancelledError as stop:
            errand.cancel(stop)
            raise

    def waiting(self) -> list[str]:
        """Say of each create under way what it waits for, a line each."""
        return [errand.describe() for errand in self.desk.under_way()]

    async def aclose(self) -> None:
        """Cancel what waits and let what was sent be answered, for as long as the server may take."""
        self.desk.close()
        await self.settled()

    async def settled(self) -> None:
        """Let what was sent be answered, for as long as the server may take."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SERVER_LIMIT)


class _LoopHands:
    """Steps run in the loop; each call of the transport is a task of its own, so that no cancellation reaches it."""

    def __init__(self, transport: AsyncTransport, desk: Desk, tasks: set[asyncio.Task[None]]) -> None:
        self._transport = transport
        self._clock = desk.timers.now
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def post(self, call: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread:
            self._loop.call_soon(call)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def now(self, call: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread:
            call()
        else:
            self.post(call)

    def send(self, body: dict[str, Any], reply: Callable[[Event], None]) -> None:
        self._spawn(lambda: self._transport.send(body), reply)

    def look_up(self, name: str, reply: Callable[[Event], None]) -> None:
        self._spawn(lambda: self._transport.look_up(name), reply)

    def refresh(self, reply: Callable[[Event], None]) -> None:
        self._spawn(self._refresh, reply)

    def can_read_quotas(self) -> bool:
        return hasattr(self._transport, "read_quotas")  # a runtime protocol says the same in 3.5 us

    def read_quotas(self, reply: Callable[[Event], None]) -> None:
        assert isinstance(self._transport, AsyncReading)
        self._spawn(self._transport.read_quotas, reply)

    async def _refresh(self) -> None:
        if isinstance(self._transport, AsyncRefreshing):
            await self._transport.refresh()

    def _spawn(self, call: Callable[[], Awaitable[Answer | None]], reply: Callable[[Event], None]) -> None:
        task = self._loop.create_task(self._run(call, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, call: Callable[[], Awaitable[Answer | None]], reply: Callable[[Event], None]) -> None:
        sent = self._clock()
        try:
            async with asyncio.timeout(SERVER_LIMIT):
                answer = await call()
        except NotSent as error:
            reply(Unsent(error))
        except (OutcomeUnknown, TimeoutError) as error:
            reply(Unknown(error, self._clock()))
        except asyncio.CancelledError as error:  # the loop ends
            reply(Broken(error))
            raise
        except Exception as error:  # noqa: BLE001 - the transport's own: the caller's to see
            reply(Broken(error))
        else:
            reply(Refreshed() if answer is None else Answered(answer, sent, self._clock()))

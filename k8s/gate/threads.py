"""``Gate``: creates wait their turn on threads. A create with ``async_req`` holds no thread while it waits."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .door import Door
from .driver import Driver
from .gangs.waiting import GangWait
from .timers import ThreadTimers
from .transport import Transport, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.creation import Creation

    from .gangs.admitted import AdmittedGang
    from .gangs.asked import GangAsked
    from .transport import Reply

    Step = Callable[[], object]

__all__ = ["BlockingDriver", "Gate", "Transport"]


class Gate(Door):
    """Lets creates through in the engine's order, for threads. Thread-safe.

    The arguments are those of ``Door``; ``clock`` defaults to ``time.monotonic``. One daemon thread keeps the
    time. It is started with the first alarm.
    """

    _timers = ThreadTimers

    def create(self, creation: Creation, transport: Transport) -> Answer:
        """Wait for a turn, send, and return the server's last answer, whatever its status; all in this thread.

        Raises ``WaitedTooLong`` when the time limit has passed, ``GateClosed`` when the gate is closed, and the
        transport's ``NotSent`` or ``OutcomeUnknown`` after some tries.
        """
        try:
            driver = self.prepare(creation, transport)
            driver.run()
        except Exception as error:
            self.ledger.failed_open(error)
            if creation.key is not None:  # without the gate it could be stored a second time
                raise
            return transport.send(creation.body)
        return driver.answer if driver.answer is not None else driver.result()

    @contextmanager
    def gang(self, asked: GangAsked, transport: Transport | None = None) -> Iterator[AdmittedGang]:
        """Wait until the whole gang is admitted; then its members are created within the block, by ``gang.create``.

        Leaving the block gives back what is undrawn. ``transport`` reads the quotas where they are not watched. Raises
        ``GangRefused`` if the gang will never be admitted, ``WaitedTooLong`` and ``GateClosed`` as ``create`` does.
        """
        steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        hands = None if transport is None else _ThreadHands(transport, steps.put)
        wait = GangWait(self, self.ledger, asked, hands, lambda: steps.put(None))
        try:
            step: Step | None = wait.begin
            while step is not None:
                step()
                step = steps.get()
        except BaseException as error:  # Ctrl-C
            wait.break_off(error)
            raise
        with wait.held() as gang:
            yield gang

    def prepare(self, creation: Creation, transport: Transport) -> BlockingDriver:
        """Prepare a create that ``run()`` drives in the thread that calls it."""
        return BlockingDriver(self, creation, transport)

    def prepare_on(self, post: Callable[[Step], None], creation: Creation, transport: Transport, done: Step) -> Driver:
        """Prepare a create whose steps run where ``post`` runs them. ``start`` starts it, ``done`` ends it."""
        return Driver(self, self.ledger, creation, _ThreadHands(transport, post), done, self._names)

    def close(self) -> None:
        """Cancel what waits in this ledger, and log what that was; what was sent is still answered."""
        self.ledger.close()


class BlockingDriver(Driver):
    """A create whose steps run in the thread that waits for it."""

    __slots__ = ("_steps",)

    def __init__(self, gate: Gate, creation: Creation, transport: Transport) -> None:
        """Prepare; ``run`` starts it."""
        self._steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        hands = _ThreadHands(transport, self._steps.put)
        super().__init__(gate, gate.ledger, creation, hands, self._stop, gate._names)  # noqa: SLF001 - its own driver

    def run(self) -> None:
        """Drive the create to its end, when it has an ``answer`` or an ``error``. Raises only Ctrl-C and its like."""
        self.thread = threading.get_ident()
        try:
            step: Step | None = self.begin
            while step is not None:
                try:
                    step()
                except Exception as error:  # noqa: BLE001 - law 18
                    self.fail_open(error)
                step = self._steps.get()
        except BaseException as error:  # Ctrl-C
            self.break_off(error)
            raise

    def _stop(self) -> None:
        self._steps.put(None)  # it may have ended in another thread


class _ThreadHands:
    """Steps run wherever ``post`` takes them, and the transport is called right there."""

    __slots__ = ("_transport", "lists_quotas", "post")

    def __init__(self, transport: Transport, post: Callable[[Step], None]) -> None:
        self.lists_quotas = hasattr(transport, "list_quotas")  # a runtime-checkable protocol would take 3.5 us
        self._transport = transport
        self.post = post

    def now(self, step: Step) -> None:
        step()  # steps are safe in any thread; only sending has a thread of its own

    def call(self, reply: Reply) -> None:
        try:
            reply.answer = ask(self._transport, reply.call)
        except Exception as error:  # noqa: BLE001 - whatever the transport raises, the create goes on or ends
            reply.error = error
        reply.to.replied(reply)

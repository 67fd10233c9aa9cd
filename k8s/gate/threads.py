"""``Gate``: creates wait their turn on threads. A create with ``async_req`` holds no thread while it waits."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.creates.actions import Answered, Event, Refresh, Refreshed

from .door import Door
from .driver import Driver
from .timers import ThreadTimers
from .transport import Transport, ask, failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.actions import Call
    from backoff_ctrl.k8s.creates.creation import Creation

    from .ledger import Ledger

    Step = Callable[[], None]

__all__ = ["BlockingDriver", "Gate", "Transport"]


class Gate(Door):
    """Lets creates through in the engine's order, for threads. Thread-safe.

    The arguments are those of ``AsyncGate``; ``clock`` defaults to ``time.monotonic``. One daemon thread keeps the
    time. It is started with the first alarm.
    """

    _timers = ThreadTimers

    def create(self, creation: Creation, transport: Transport) -> Answer:
        """Wait for a turn, send, and return the server's last answer, whatever its status; all in this thread.

        Raises ``WaitedTooLong`` when the time limit has passed, ``GateClosed`` when the gate is closed, and the
        transport's ``NotSent`` or ``OutcomeUnknown`` after some tries.
        """
        driver = self.prepare(creation, transport)
        driver.run()
        return driver.result()

    def prepare(self, creation: Creation, transport: Transport) -> BlockingDriver:
        """Prepare a create that ``run()`` drives in the thread that calls it."""
        return BlockingDriver(self, creation, transport)

    def prepare_on(self, post: Callable[[Step], None], creation: Creation, transport: Transport, done: Step) -> Driver:
        """Prepare a create whose steps run where ``post`` runs them. ``begin`` starts it, ``done`` ends it."""
        return Driver(self, self.ledger, creation, _ThreadHands(transport, self.ledger, post), done, self._names)

    def close(self) -> None:
        """Cancel what waits in this ledger, and log what that was; what was sent is still answered."""
        self.ledger.close()


class BlockingDriver(Driver):
    """A create whose steps run in the thread that waits for it."""

    def __init__(self, gate: Gate, creation: Creation, transport: Transport) -> None:
        """Prepare; ``run`` starts it."""
        self._steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        hands = _ThreadHands(transport, gate.ledger, self._steps.put)
        super().__init__(gate, gate.ledger, creation, hands, self._stop, gate._names)  # noqa: SLF001 - its own driver

    def run(self) -> None:
        """Drive the create to its end, when it has an ``answer`` or an ``error``. Raises only Ctrl-C and its like."""
        try:
            self.begin()
            while (step := self._steps.get()) is not None:
                step()
        except BaseException as error:  # Ctrl-C, or a bug of ours
            self.break_off(error)
            if not isinstance(error, Exception):
                raise

    def _stop(self) -> None:
        self._steps.put(None)  # it may have ended in another thread


class _ThreadHands:
    """Steps run wherever ``post`` takes them, and the transport is called right there."""

    def __init__(self, transport: Transport, ledger: Ledger, post: Callable[[Step], None]) -> None:
        self.lists_quotas = hasattr(transport, "list_quotas")  # a runtime-checkable protocol would take 3.5 us
        self._transport = transport
        self._clock = ledger.timers.now
        self.post = post

    def now(self, step: Step) -> None:
        step()  # steps are safe in any thread; only sending has a thread of its own

    def call(self, call: Call, reply: Callable[[Event], None]) -> None:
        event: Event
        sent = self._clock()
        try:
            answer = ask(self._transport, call)
        except Exception as error:  # noqa: BLE001 - whatever the transport raises ends the create
            event = failed(error, self._clock())
        else:
            event = Refreshed() if isinstance(call, Refresh) else Answered(answer, sent, self._clock())
        reply(event)

"""``Gate``: creates wait their turn on threads. A waiting create that was asked for asynchronously holds none."""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.answers.answer import Answer, GateClosed, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.creates.actions import Answered, Broken, Event, Refreshed, Unknown, Unsent
from backoff_ctrl.k8s.creates.naming import NAMES

from .driver import Errand
from .ledger import Desk
from .timers import ThreadTimers

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from backoff_ctrl.engine.controller import Controller
    from backoff_ctrl.k8s.creates.conversation import Creation

    from .modes import Mode
    from .waiters import Counts

    Call = Callable[[], None]
    Done = Callable[[Answer | None, BaseException | None], None]


class Transport(Protocol):
    """How one create reaches its server, blocking. Each call takes fresh credentials."""

    def send(self, body: dict[str, Any]) -> Answer:
        """POST the body. Raises ``NotSent`` (it never left) or ``OutcomeUnknown`` (it left, and no answer came)."""

    def look_up(self, name: str) -> Answer:
        """GET the object of that name. Raises as ``send`` does."""


@runtime_checkable
class Refreshing(Protocol):
    """A transport that can fetch new credentials on demand, when the server has refused the old ones."""

    def refresh(self) -> None:
        """Fetch them."""


@runtime_checkable
class Reading(Protocol):
    """A transport that can list the quotas of the create's namespace, so that not even the first is refused."""

    def read_quotas(self) -> Answer:
        """GET them, with little patience. Raises as ``send`` does."""


class Gate:
    """Lets creates through in the engine's order, for threads. The arguments are those of ``AsyncGate``.

    Thread-safe. One daemon thread, started with the first alarm, keeps the time.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        mode: Mode | Mapping[str, Mode] | Callable[[str], Mode] = "enforce",
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
        desk: Desk | None = None,
    ) -> None:
        """Open. Nothing is started before the first create."""
        self.desk = desk if desk is not None else Desk(ThreadTimers(clock), policy or Policy(), mode, rng)
        self._names = rng if rng is not None else NAMES

    @property
    def controller(self) -> Controller:
        """Return the engine, to look at. It is not thread-safe: tell it news through ``desk``."""
        return self.desk.controller

    @property
    def counts(self) -> Counts:
        """Return what was done so far."""
        return self.desk.counts

    def create(
        self, creation: Creation, transport: Transport, *, begun: Callable[[Errand], object] | None = None
    ) -> Answer:
        """Wait for a turn, send, and return the server's last word, whatever its status; all in this thread.

        Raises ``WaitedTooLong``, ``GateClosed``, or the transport's ``NotSent`` and ``OutcomeUnknown`` once
        patience is at its end. ``begun`` is given the errand, which knows what happens on the way.
        """
        steps: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        ends: list[tuple[Answer | None, BaseException | None]] = []

        def done(answer: Answer | None, error: BaseException | None) -> None:
            ends.append((answer, error))
            steps.put(None)  # it may have ended in another thread

        errand = self.prepare(creation, transport, steps.put, done)
        if begun is not None:
            begun(errand)
        try:
            errand.begin()
            while (step := steps.get()) is not None:
                step()
        except BaseException as error:  # Ctrl-C, or a transport that fails in a way of its own
            errand.break_off(error)
            raise
        answer, failure = ends[0]
        if answer is None:
            raise failure or GateClosed("no answer")
        return answer

    def prepare(self, creation: Creation, transport: Transport, post: Callable[[Call], None], done: Done) -> Errand:
        """Make the errand of a create; its steps go to ``post``. ``begin()`` starts it."""
        return Errand(self.desk, creation, _ThreadHands(transport, self.desk, post), done, self._names)

    def waiting(self) -> list[str]:
        """Say of each create under way what it waits for, a line each."""
        return [errand.describe() for errand in self.desk.under_way()]

    def close(self) -> None:
        """Cancel what waits, and say what that was; what was sent is still answered."""
        self.desk.close()


class _ThreadHands:
    """Steps run wherever ``post`` takes them, and the transport is called right there."""

    def __init__(self, transport: Transport, desk: Desk, post: Callable[[Call], None]) -> None:
        self._transport = transport
        self._clock = desk.timers.now
        self.post = post

    def now(self, call: Call) -> None:
        call()  # steps are safe in any thread; only what sends has one of its own

    def send(self, body: dict[str, Any], reply: Callable[[Event], None]) -> None:
        self._call(lambda: self._transport.send(body), reply)

    def look_up(self, name: str, reply: Callable[[Event], None]) -> None:
        self._call(lambda: self._transport.look_up(name), reply)

    def refresh(self, reply: Callable[[Event], None]) -> None:
        if isinstance(self._transport, Refreshing):
            self._transport.refresh()
        reply(Refreshed())

    def can_read_quotas(self) -> bool:
        return hasattr(self._transport, "read_quotas")

    def read_quotas(self, reply: Callable[[Event], None]) -> None:
        assert isinstance(self._transport, Reading)
        self._call(self._transport.read_quotas, reply)

    def _call(self, call: Callable[[], Answer], reply: Callable[[Event], None]) -> None:
        sent = self._clock()
        try:
            answer = call()
        except NotSent as error:
            reply(Unsent(error))
        except OutcomeUnknown as error:
            reply(Unknown(error, self._clock()))
        except Exception as error:  # noqa: BLE001 - the transport's own: the caller's to see
            reply(Broken(error))
        else:
            reply(Answered(answer, sent, self._clock()))

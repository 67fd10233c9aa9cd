"""An engine behind a lock: one thing at a time, effects called back once the lock is free, and errors that fail open.

What fails open: an error inside the engine lets every waiting create through ungated, is counted, and is logged
once; a new engine then learns again. What fails closed: nothing.
"""

from __future__ import annotations

import logging
import random
import threading
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.errors import TicketError
from backoff_ctrl.engine.outcomes import Abandoned, Outcome
from backoff_ctrl.engine.tickets import Refusal, Ticket

from .kept_news import KeptNews
from .waiters import GateCounts, Held, Owed, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.gangs import Effect, GivenBack, Grant, Look
    from backoff_ctrl.engine.policy import Policy
    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.seats import Identity

    from .telling.noting import Observer
    from .timers import Timers

ERRORS_LOGGED = 100
"""Internal errors that are logged, each once."""
TRIES: Final = (1, 2, 3)
"""A Ctrl-C may break off making calls; so may the next one."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class LockedEngine:
    """The engine and the waiters of its requests. Its methods are safe from any thread."""

    def __init__(self, timers: Timers, policy: Policy, rng: random.Random | None) -> None:
        """Start an engine. ``rng`` gives it its jitter; None: a generator of its own."""
        self.timers = timers
        self.policy = policy
        self.on_namespace: Callable[[str], object] | None = None  # called with namespaces where a quota blocks
        self.observer: Observer | None = None  # keeps the status of this gate
        self.others: tuple[Observer, ...] = ()  # notify and trace
        self._rng = rng
        self._change = 0  # the number of the newest change in the engine before, for those who follow the changes
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child: it has none of the waiters, and the lock may be held for ever."""
        self._lock = threading.Lock()
        self.timers.renew()
        self.counts = GateCounts()
        self._logged: set[str] = set()
        self.owed = Owed()
        self._alarm: tuple[float, Callable[[], object]] | None = None
        self._news = KeptNews()
        self._begin()

    def _begin(self) -> None:
        # The engine's default jitter is the same in every process (for tests), which would be no jitter at all.
        rng = self._rng if self._rng is not None else random.Random()
        self.controller = Controller(self.policy, rng, self._change)
        self._waiters: dict[Request, Waiter] = {}

    def stand(self, request: Request, waiter: Waiter, identity: Identity | None = None) -> None:
        """Put a request in line: at the place that its caller left, if it was there before under this identity.

        The waiter is called back, perhaps before this returns.
        """

        self._act(lambda engine, now: engine.submit(request, now, identity), request, waiter)

    def settle(
        self,
        held: Held,
        outcome: Outcome,
        *,
        waiter: Waiter | None = None,
        seat: Identity | None = None,
        retry_after: float = 0.0,
    ) -> bool:
        """End a ticket. With a waiter, a refused or postponed request rejoins the line (True); else it leaves.

        If it leaves uncreated, ``seat`` keeps its place as in ``leave``; an ``Abandoned`` has a seat of its own.
        """

        def settle(engine: Controller, now: float) -> bool:
            request = held.ticket.request
            if held.settled:  # before a Ctrl-C that broke off its sender
                return False
            if held.engine is not engine:
                self._waiters.pop(request, None)
                return False
            try:
                engine.settle(held.ticket, outcome, now)
            except TicketError:
                self.counts.late += 1  # the engine had given it up: ticket_max
            held.settled = True
            if waiter is None:
                engine.withdraw(request, now, seat, retry_after)
                return False
            if request.state == "over":
                del self._waiters[request]
                return False
            return True

        rejoined = self._act(settle, None if waiter is None else held.ticket.request, waiter)
        return waiter is not None if rejoined is None else rejoined

    def leave(self, request: Request, seat: Identity | None = None, retry_after: float = 0.0) -> None:
        """Take a request out of the line, if it is still there.

        ``seat`` keeps its place for that caller, for twice the ``retry_after`` (in seconds) that it was told, and at
        least for ``Policy.seat_ttl``: ``stand`` with the same identity gives it back.
        """

        def withdraw(engine: Controller, now: float) -> None:
            if self._waiters.pop(request, None) is not None:  # else an engine that failed knew it, not this one
                engine.withdraw(request, now, seat, retry_after)

        self._act(withdraw)

    def force(self, request: Request) -> Held | None:
        """Admit a request ungated; its outcome teaches all the same. None: the engine failed."""
        return self._act(lambda engine, now: Held(engine.force(request, now), engine))

    def _act(
        self, do: Callable[[Controller, float], T], request: Request | None = None, waiter: Waiter | None = None
    ) -> T | None:
        """Give the engine something to do, then call back what follows; None: it failed, or that is the value.

        A ``waiter`` of a ``request`` is in line before the engine is asked: if that fails, it goes on ungated.
        """
        return self.then_call(self._decide, do, request, waiter)

    def then_call(self, do: Callable[..., T], *given: object) -> T:
        """Do something after which calls are owed, and make them, even if a Ctrl-C breaks off either."""
        value: Any = None
        stop: BaseException | None = None
        try:
            value = do(*given)
        except BaseException as error:  # noqa: BLE001 - raised below
            stop = error
        for _ in TRIES:
            try:
                self.owed.make(self._open)
                break
            except BaseException as error:  # noqa: BLE001 - raised below: others wait for these calls
                stop = error
                self.owed.again()
        if stop is not None:
            raise stop
        return value  # type: ignore[no-any-return]

    def _decide(self, do: Callable[[Controller, float], T], request: Request | None, waiter: Waiter | None) -> T | None:
        value = None
        stop: BaseException | None = None
        with self._lock:
            began = None if self.observer is None else perf_counter()
            if request is not None and waiter is not None:
                self._waiters[request] = waiter
            try:
                now = self.timers.now()
                value = do(self.controller, now)
                for effect in self.controller.advance(now):
                    self._call_back(effect)
                if self.on_namespace is not None:
                    for namespace in self.controller.take_blocked():
                        self.owed.add(None, partial(self._meet, namespace))
                deadline = self.controller.next_deadline()
                if deadline is not None and (self._alarm is None or deadline < self._alarm[0]):
                    self._arm(deadline)
            except BaseException as error:  # noqa: BLE001 - law 18: a bug of ours never stops a platform
                if isinstance(error, Exception):
                    self._count_failure(error)
                else:
                    stop = error  # a Ctrl-C or a caller's alarm left the engine half changed
                self._change = self.controller.sequence + 1  # beyond all that was told
                for waiting in self._waiters.values():
                    self.owed.add(waiting, waiting.opened)
                self._begin()
                self._repeat_news()
            self.counts.waiting = len(self._waiters)
            took = None if began is None else perf_counter() - began
        if took is not None and self.observer is not None:
            self._tell(lambda observer: observer.decided(took), self.observer)
        if stop is not None:
            raise stop
        return value

    def _open(self, waiter: Waiter | None, error: Exception) -> None:
        """Let a waiter that could not be called go on ungated."""
        self.failed_open(error)
        try:
            if waiter is not None:
                waiter.opened()
        except Exception as failure:  # noqa: BLE001 - law 18
            self.failed_open(failure)

    def _call_back(self, effect: Effect) -> None:
        if not isinstance(effect, Ticket | Refusal):
            self._call_back_gang(effect)
            return
        waiter = self._waiters.get(effect.request)
        if isinstance(effect, Ticket):  # without a waiter: it left between the decision and now
            take = self._give_back if waiter is None else waiter.admitted
            self.owed.add(waiter, partial(take, Held(effect, self.controller)))
        elif waiter is not None:
            self.owed.add(waiter, partial(waiter.refused, effect))
        self._waiters.pop(effect.request, None)

    def _call_back_gang(self, effect: Grant | GivenBack | Look) -> None:
        """Owe what follows from news of a gang."""

    def _give_back(self, held: Held) -> None:
        self.settle(held, Abandoned())

    def _arm(self, deadline: float) -> None:
        """Set the one alarm to an earlier time. (One that rings too early does no harm.)"""
        before, self._alarm = self._alarm, None  # none, if the next cannot be set
        if before is not None:
            before[1]()
        self._alarm = (deadline, self.timers.call_at(deadline, self._ring))

    def _ring(self) -> None:
        with self._lock:
            self._alarm = None
        self._act(_nothing)

    def _meet(self, namespace: str) -> None:
        """Report a namespace where a quota blocks: watching all others would cost the server for nothing."""
        hook = self.on_namespace
        if hook is None:  # the watch has ended meanwhile
            return
        try:
            hook(namespace)
        except Exception as error:  # noqa: BLE001 - law 18: the watch only helps, and must not stop a create
            self.failed_open(error)

    def note(self, tell: Callable[[Observer], object]) -> None:
        """Tell the observers, if there are any. Not with the lock held: they may ask back."""
        if self.observer is not None:
            self._tell(tell, self.observer)
        for each in self.others:
            self._tell(tell, each)

    def _tell(self, tell: Callable[[Observer], object], observer: Observer) -> None:
        try:
            tell(observer)
        except Exception as error:  # noqa: BLE001 - law 18: observers only help, and must not stop a create
            self.failed_open(error)

    # -- internal errors ---------

    def failed_open(self, error: BaseException) -> None:
        """Count an internal error that let a create through."""
        with self._lock:
            self._count_failure(error)

    def _count_failure(self, error: BaseException) -> None:
        self.counts.failed_open += 1
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._logged and len(self._logged) < ERRORS_LOGGED:
            self._logged.add(kind)
            log.error(
                "internal error in the gate: the creates it concerns are sent ungated, and the gate goes on; "
                "please report it (the same error is not logged again)",
                exc_info=error,
            )

    def _repeat_news(self) -> None:
        try:
            self._news.repeat(self.controller, self.timers.now())
        except Exception as error:  # noqa: BLE001 - the new engine may fail on the same news: learn instead
            self._count_failure(error)
            self._news.clear()
            self._begin()


def _nothing(engine: Controller, now: float) -> None:
    """Do nothing but what is due."""

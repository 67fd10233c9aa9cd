"""An engine behind a lock: one thing at a time, effects called back once the lock is free, and errors that fail open.

What fails open: an error inside the engine lets every waiting create through ungated, is counted, and is logged
once; a new engine then learns again. What fails closed: nothing.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.errors import TicketError
from backoff_ctrl.engine.outcomes import Abandoned, Outcome
from backoff_ctrl.engine.tickets import Refusal, Ticket

from .kept_news import KeptNews
from .waiters import GateCounts, Held, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.policy import Policy
    from backoff_ctrl.engine.requests import Request

    from .timers import Timers

ERRORS_LOGGED = 100
"""Internal errors that are logged, each once."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class LockedEngine:
    """The engine and the waiters of its requests. Its methods are safe from any thread."""

    def __init__(self, timers: Timers, policy: Policy, rng: random.Random | None) -> None:
        """Start an engine. ``rng`` gives it its jitter; None: a generator of its own."""
        self.timers = timers
        self.policy = policy
        self.on_namespace: Callable[[str], object] | None = None  # called with namespaces where a quota blocks
        self._rng = rng
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child: it has none of the waiters, and the lock may be held for ever."""
        self._lock = threading.Lock()
        self.timers.renew()
        self.counts = GateCounts()
        self._logged: set[str] = set()
        self._calls: deque[Callable[[], None]] = deque()
        self._alarm: tuple[float, Callable[[], object]] | None = None
        self._news = KeptNews()
        self._begin()

    def _begin(self) -> None:
        # The engine's default jitter is the same in every process (for tests), which would be no jitter at all.
        self.controller = Controller(self.policy, self._rng if self._rng is not None else random.Random())
        self._waiters: dict[Request, Waiter] = {}

    def stand(self, request: Request, waiter: Waiter) -> None:
        """Put a request in line. The waiter is called back, perhaps before this returns."""

        def submit(engine: Controller, now: float) -> None:
            self._waiters[request] = waiter
            engine.submit(request, now)

        self._act(submit)

    def settle(self, held: Held, outcome: Outcome, *, waiter: Waiter | None = None) -> bool:
        """End a ticket. With a waiter, a refused or postponed request rejoins the line (True); else it leaves."""

        def settle(engine: Controller, now: float) -> bool:
            if held.engine is not engine:
                return False
            request = held.ticket.request
            if waiter is not None:  # in line before the engine is asked: if that fails, the waiter goes on ungated
                self._waiters[request] = waiter
            try:
                engine.settle(held.ticket, outcome, now)
            except TicketError:
                self.counts.late += 1  # the engine had given it up: ticket_max
            if waiter is None:
                engine.withdraw(request, now)
                return False
            if request.state == "over":
                del self._waiters[request]
                return False
            return True

        rejoined = self._act(settle)
        return waiter is not None if rejoined is None else rejoined

    def leave(self, request: Request) -> None:
        """Take a request out of the line, if it is still there."""

        def withdraw(engine: Controller, now: float) -> None:
            self._waiters.pop(request, None)
            engine.withdraw(request, now)

        self._act(withdraw)

    def force(self, request: Request) -> Held | None:
        """Admit a request ungated; its outcome teaches all the same. None: the engine failed."""
        return self._act(lambda engine, now: Held(engine.force(request, now), engine))

    def _act(self, do: Callable[[Controller, float], T]) -> T | None:
        """Give the engine something to do, then call back what follows; None: it failed, or that is the value."""
        value = None
        with self._lock:
            try:
                now = self.timers.now()
                value = do(self.controller, now)
                for effect in self.controller.advance(now):
                    self._call_back(effect)
                if self.on_namespace is not None:
                    self._calls.extend(partial(self._meet, namespace) for namespace in self.controller.take_blocked())
                deadline = self.controller.next_deadline()
                if deadline is not None and (self._alarm is None or deadline < self._alarm[0]):
                    self._arm(deadline)
            except Exception as error:  # noqa: BLE001 - law 18: a bug of ours never stops a platform
                self._count_failure(error)
                self._calls.extend(waiter.opened for waiter in self._waiters.values())
                self._begin()
                self._repeat_news()
            self.counts.waiting = len(self._waiters)
        while self._calls:  # shared: calls that a Ctrl-C leaves here are made by the next caller
            try:
                call = self._calls.popleft()
            except IndexError:  # another thread was faster
                break
            call()
        return value

    def _call_back(self, effect: Ticket | Refusal) -> None:
        waiter = self._waiters.pop(effect.request, None)
        if isinstance(effect, Ticket):  # without a waiter: it left between the decision and now
            take = self._give_back if waiter is None else waiter.admitted
            self._calls.append(partial(take, Held(effect, self.controller)))
        elif waiter is not None:
            self._calls.append(partial(waiter.refused, effect))

    def _give_back(self, held: Held) -> None:
        self.settle(held, Abandoned())

    def _arm(self, deadline: float) -> None:
        """Set the one alarm to an earlier time. (One that rings too early does no harm.)"""
        if self._alarm is not None:
            self._alarm[1]()
        self._alarm = (deadline, self.timers.call_at(deadline, self._ring))

    def _ring(self) -> None:
        with self._lock:
            self._alarm = None
        self._act(lambda _, __: None)

    def _meet(self, namespace: str) -> None:
        """Report a namespace where a quota blocks: watching all others would cost the server for nothing."""
        hook = self.on_namespace
        if hook is None:  # the watch has ended meanwhile
            return
        try:
            hook(namespace)
        except Exception as error:  # noqa: BLE001 - law 18: the watch only helps, and must not stop a create
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

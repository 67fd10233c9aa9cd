"""An engine behind one lock: one report or question at a time, and what follows is delivered afterwards.

*Deciding.* All calls of the engine go through ``act``: under the lock it hears a report and answers what follows; each
effect is handed to ``on_effect``. *Delivering.* Once the lock is free, waiters whose turn has come are woken and
subscribers are called, so they may ask back. What was decided but not delivered (a Ctrl-C came in between)
stays here, and the next one who decides, or an alarm soon after, delivers it.

*Interrupting.* A signal handler, or a finalizer that the garbage collector runs, may ask in a thread that is deciding
something itself. So the lock is reentrant, and a call that finds it ``_deciding`` leaves the engine alone: news goes
on a queue, which is emptied once the decision is made; a question is an error, and a create that asks goes on without
the engine. ``soon`` puts on the same queue what no one waits for, such as the end of a create.

*It fails open.* An engine that raises is replaced here, and here alone: ``on_replace`` lets all waiting creates go on
without it, the new one gets what the watch has reported, and the error is counted, and logged once.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.gangs.gang import Effect
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.runtime.host import Alarms, weakly

from .subscribers import Event, Subscriber, Subscribers
from .unfinished import Turn, Value

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")
News: TypeAlias = Callable[[Controller, float], object]
Subject: TypeAlias = tuple[str | None, str | None]
"""Namespace (None: all) and quota (None: the watch of its quotas)."""

ERRORS_LOGGED: Final = 100
"""Internal errors that are logged, each once."""
AGAIN: Final = 0.1
"""Seconds until a call that failed, or was broken off, is tried once more, since a waiter depends on it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What ``LockedEngine.attempt`` returns after an error."""

    error: Exception


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


class LockedEngine:
    """The engine behind its lock. Its methods are safe from any thread."""

    def __init__(self, alarms: Alarms, policy: Policy, rng: random.Random | None) -> None:
        self.alarms = alarms
        self.now = alarms.now
        self.policy = policy
        self.subscribers = Subscribers(self.attempt)
        self.on_effect: Callable[[Controller, float, Effect], bool]
        """Takes an effect; returns whether it has reported to the engine, which may then have further effects."""
        self.on_replace: list[Callable[[], object]] = []
        self._rng = rng
        self._change = 0  # the number of the newest change in the engine before, for those who follow the changes
        self.reset()

    def reset(self) -> None:
        self.alarms.renew()
        self.lock = threading.RLock()
        self._deciding = False
        self.counts = GateCounts()
        self._logged: set[str] = set()
        self._news: dict[Subject, News] = {}  # the latest of each subject in order of arrival, for a new engine
        self._queue: deque[Callable[[], object]] = deque()  # for the thread that holds the lock
        self._resolved: dict[Turn, Turn] = {}  # to be woken
        self._delivering: set[int] = set()  # threads
        self._to_tell: deque[Callable[[], None]] = deque()  # events, each with what belongs to it
        self._alarm: tuple[float, Callable[[], object]] | None = None
        self._begin()

    def _begin(self) -> None:
        # The engine's default jitter is the same in every process (for tests), which would be no jitter at all.
        self.controller = Controller(self.policy, self._rng or random.Random(), self._change)

    # -- deciding: one thing at a time ---------

    def act(self, do: Callable[..., T], *given: Any) -> T | None:
        """Have the engine take a step, ``do(engine, now, *given)``, then deliver what follows.

        None: it failed; or it is done as soon as this thread has done what it was interrupted at.
        """
        with self.lock:
            if self._deciding:
                self._queue.append(partial(self._decide, do, *given))
                return None
            try:
                self._deciding = True
                value = self._decide(do, *given)
            finally:
                self._deciding = False
        if self._resolved or self._to_tell or self._queue:
            self._deliver()
        return value

    def soon(self, do: Callable[..., object], *given: Any) -> None:
        """Do the same for a caller that must not wait for the lock."""
        self._queue.append(partial(self._decide, do, *given))
        self._empty_queue()

    def ask(self, question: Callable[..., T], *given: Any) -> T:
        """Ask the engine a question, ``question(engine, now, *given)``, that takes less than a millisecond."""
        try:
            with self.lock:
                if self._deciding:
                    raise RuntimeError("a signal handler, or a finalizer, asks the gate while its own thread decides")
                try:
                    self._deciding = True
                    return question(self.controller, self.now(), *given)
                finally:
                    self._deciding = False
        finally:
            if self._queue:
                self._empty_queue()

    def _empty_queue(self) -> None:
        # The thread that decides empties the queue; that may be this one, in which a finalizer runs. The lock is
        # never taken by ``acquire(blocking=False)``: a Ctrl-C just after that would leave it locked for ever.
        while self._queue:
            if self._deciding:
                return  # the thread that decides delivers, too: a subscriber that asks back must find the lock free
            with self.lock:
                try:
                    self._deciding = True
                    while self._queue:
                        self._queue.popleft()()
                finally:
                    self._deciding = False
        self._deliver()

    def _decide(self, do: Callable[..., T], *given: Any) -> T | None:
        engine, value, stop = self.controller, None, None
        subscribers = self.subscribers
        began = perf_counter() if subscribers.decided.listeners else 0.0
        try:
            now = self.now()
            value = do(engine, now, *given)
            effects = engine.advance(now)
            while effects:
                given_back = False
                for effect in effects:
                    given_back = self.on_effect(engine, now, effect) or given_back
                effects = engine.advance(now) if given_back else []
            if subscribers.blocked.listeners:
                self._to_tell.extend(partial(subscribers.blocked, name) for name in engine.take_blocked())
            deadline = engine.next_deadline()
            if deadline is not None and (self._alarm is None or not now < self._alarm[0] <= deadline):
                self._arm(deadline)
        except BaseException as error:  # noqa: BLE001 - fails open; and a Ctrl-C leaves the engine half changed
            self._replace(error)
            stop = None if isinstance(error, Exception) else error
        if began:
            self._to_tell.append(partial(subscribers.decided, perf_counter() - began))
        if stop is not None:
            raise stop
        return value

    def _replace(self, error: BaseException) -> None:
        """Go on with another engine, which learns what the watch has reported: the watch will not repeat it."""
        if isinstance(error, Exception):
            self.failed_open(error)
        self._change = self.controller.sequence + 1  # beyond all changes that subscribers know
        for call in self.on_replace:
            call()
        self._begin()
        if isinstance(self.attempt(self._report_again), Failure):  # it learns instead
            self._news.clear()
            self._begin()

    def _report_again(self) -> None:
        # The quotas first, then the watches: those mean that no quota is missing.
        for _, news in sorted(self._news.items(), key=lambda item: item[0][1] is None):
            news(self.controller, self.now())

    def report(self, subject: Subject, news: News) -> None:
        """Report to the engine, and to one that replaces it, unless newer news of this subject comes."""
        self._news.pop(subject, None)  # so that the order is that of arrival
        self._news[subject] = news
        self.act(news)

    def drop(self, subject: Subject) -> None:
        self._news.pop(subject, None)

    def reported(self, subject: Subject) -> bool:
        return subject in self._news

    # -- delivering ---------

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call it for all that happens from now on; return what ends that."""
        with self.lock:
            self.subscribers.add(subscriber)
        return partial(self._unsubscribe, subscriber)

    def _unsubscribe(self, subscriber: Subscriber) -> None:
        with self.lock:
            self.subscribers.remove(subscriber)

    def resolve(self, turn: Turn, value: Value) -> None:
        """End a wait, with the lock held; the waiter is woken once it is free."""
        if turn.value is None:
            turn.value = value
        if turn.wake is not None:
            self._resolved[turn] = turn

    def tell_later(self, event: Event[P], *given: P.args, **more: P.kwargs) -> None:
        if event.listeners:
            self._to_tell.append(partial(event, *given, **more))

    def _deliver(self) -> None:
        """Wake all waiters and call all subscribers. A waiter that is woken in this thread may decide itself."""
        thread = threading.get_ident()
        if thread in self._delivering:
            return
        try:
            self._delivering.add(thread)
            while self._resolved or self._to_tell:
                for turn in list(self._resolved):
                    self._wake(turn)
                with suppress(IndexError):  # the queue is empty, perhaps by another thread
                    while True:
                        tell = self._to_tell.popleft()
                        tell()
        finally:
            self._delivering.discard(thread)
            if self._resolved:  # a Ctrl-C came in between
                self.attempt(self.alarms.call_later, AGAIN, self._deliver)
        if self._queue:
            self._empty_queue()

    def _wake(self, turn: Turn) -> None:
        wake, done = turn.wake, False
        try:
            mine = self._resolved.pop(turn, None) is not None  # else another thread wakes it
            if mine and wake is not None and isinstance(self.attempt(wake, turn), Failure):
                self.attempt(self.alarms.call_later, AGAIN, partial(self.attempt, wake, turn))
            done = True
        finally:
            if not done:  # a Ctrl-C: once more does no harm
                self._resolved[turn] = turn

    # -- errors of ours ---------

    def attempt(self, do: Callable[..., T], *given: Any, **more: Any) -> T | Failure:
        """Do what only helps, or is done in another way else: an error is counted, and returned as a ``Failure``."""
        try:
            return do(*given, **more)
        except Exception as error:  # noqa: BLE001 - fails open
            self.failed_open(error)
            return Failure(error)

    def failed_open(self, error: BaseException) -> None:
        """Count an internal error, and log it unless it was logged before."""
        self.counts.failed_open += 1  # without the lock, which its caller may hold
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._logged and len(self._logged) < ERRORS_LOGGED:
            self._logged.add(kind)
            log.error(
                "internal error in the gate: the creates it concerns are sent ungated, and the gate goes on; "
                "please report it (the same error is not logged again)",
                exc_info=error,
            )

    # -- alarms ---------

    def call_at(self, when: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call at that time, in any thread; if it fails, once more. Return what cancels that."""
        return self.alarms.call_at(when, partial(self._ring, call))

    def _ring(self, call: Callable[[], object]) -> None:
        if isinstance(self.attempt(call), Failure):
            self.attempt(self.alarms.call_later, AGAIN, partial(self.attempt, call))

    def _arm(self, deadline: float) -> None:
        """Set the one alarm of the engine to an earlier time. (One that rings too early does no harm.)"""
        before, self._alarm = self._alarm, None  # no alarm, if the next can't be set
        if before is not None:
            self.attempt(before[1])
        for _ in range(2 if self.alarms.can_ring else 0):  # without it, waiters could wait for ever
            cancel = self.attempt(self.alarms.call_at, deadline, weakly(self._advance))
            if not isinstance(cancel, Failure):
                self._alarm = deadline, cancel
                return

    def _advance(self) -> None:
        self._ring(self.advance)

    def advance(self) -> None:
        self._alarm = None
        self.act(_nothing)


def _nothing(engine: Controller, now: float) -> None:
    """Let the engine do what is due, and no more."""

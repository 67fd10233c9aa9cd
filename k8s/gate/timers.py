"""Clocks with alarms: on an event loop, whose time may be virtual, or on a daemon thread."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Protocol

from .exiting import awaited_by_interrupted, main_thread_has_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], object]

log = logging.getLogger(__name__)

EXIT_CHECK = 0.5  # seconds until creates that wait on other threads notice a Ctrl-C
JOBS_CHECK = 0.02  # seconds until those notice it that begin later, in jobs that the executor still had
AGAIN = 0.1  # seconds until an alarm that failed rings for the second and last time: somebody waits for it
LOOK_AGAIN = 0.5  # seconds after which the caller's clock is read again: it may have jumped over an alarm


class Timers(Protocol):
    """A clock that can call back. Calls must not block."""

    on_exit: Call | None
    in_use: Callable[[], bool]
    """Says whether somebody may wait for an alarm."""
    on_interrupt: Callable[[frozenset[int]], object] | None
    """Called with the threads that the main thread waits for after a Ctrl-C, again and again while it does."""
    on_error: Callable[[Exception], object]
    """Called with an error that an alarm raised; it rings a second time, ``AGAIN`` seconds later."""

    def now(self) -> float:
        """Return seconds, on a clock that never goes back."""

    def renew(self) -> None:
        """Begin anew in a forked child, which has neither the thread nor the loop."""

    def call_at(self, when: float, call: Call) -> Call:
        """Call at that time, in any thread. Return a function that cancels it."""


class SecondTry(partial[object]):
    """An alarm that failed once."""


def log_error(error: Exception) -> None:
    """Say that an alarm failed; where there is a ledger, that counts and logs it instead."""
    log.error("an alarm of the gate failed; the others go on", exc_info=error)


class Forward:
    """A caller's clock that may jump: when it goes back, time goes on from where it was."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start at the time that ``clock`` shows."""
        self._clock = clock
        self._ahead = 0.0
        self._last = float("-inf")
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child, where the lock may be held for ever."""
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return seconds that never go back."""
        with self._lock:
            now = self._clock() + self._ahead
            if now < self._last:
                self._ahead += self._last - now
                return self._last
            self._last = now
            return now


class LoopTimers:
    """The clock of the event loop that uses it first (of the next one, once that is closed), or ``clock``."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """``clock`` returns seconds; None: the time of the loop. The loop is the one running at the first use."""
        self._clock = None if clock is None else Forward(clock)
        self.on_exit: Call | None = None  # a loop that ends cancels its tasks by itself
        self.in_use: Callable[[], bool] = lambda: True
        self.on_interrupt: Callable[[frozenset[int]], object] | None = None
        self.on_error: Callable[[Exception], object] = log_error
        self.renew()

    def renew(self) -> None:
        """Forget the loop."""
        if self._clock is not None:
            self._clock.renew()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def now(self) -> float:
        """Return the time of the loop, or of the caller's clock."""
        if self._clock is not None:
            return self._clock()
        loop = self._loop
        return loop.time() if loop is not None and not loop.is_closed() else self._bound().time()

    def call_at(self, when: float, call: Call) -> Call:
        """Call in the loop's thread."""
        loop = self._bound()
        handle: list[asyncio.TimerHandle] = []

        def ring() -> None:
            left = when - self.now()
            if left > 0 and self._clock is not None:
                handle[:] = [loop.call_later(min(left, LOOK_AGAIN), ring)]
                return
            try:
                call()
            except Exception as error:  # noqa: BLE001 - one that fails must not stop the others
                self.on_error(error)
                if not isinstance(call, SecondTry):
                    self.call_at(self.now() + AGAIN, SecondTry(call))

        def begin() -> None:
            delay = max(0.0, when - self.now())
            handle[:] = [loop.call_later(delay if self._clock is None else min(delay, LOOK_AGAIN), ring)]

        def cancel() -> None:
            if handle:
                handle.pop().cancel()

        if threading.get_ident() == self._thread:
            begin()
            return cancel
        loop.call_soon_threadsafe(begin)
        return lambda: loop.call_soon_threadsafe(cancel)

    def _bound(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._loop.is_closed():
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        return self._loop


class ThreadTimers:
    """A daemon thread, started by the first alarm. It calls ``on_exit`` once the main thread has failed.

    The thread ends when nobody holds the timers any more. While they are ``in_use`` it holds them itself.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """``clock`` returns seconds; None: ``time.monotonic``. No thread is started yet: most creates never wait."""
        self.now: Callable[[], float] = time.monotonic if clock is None else Forward(clock)
        self.on_exit: Call | None = None
        self.on_interrupt: Callable[[frozenset[int]], object] | None = None
        self.on_error: Callable[[Exception], object] = log_error
        self.in_use: Callable[[], bool] = lambda: bool(self._heap)
        self.renew()

    def renew(self) -> None:
        """Forget the thread and its alarms."""
        if isinstance(self.now, Forward):
            self.now.renew()
        self._wake = threading.Condition()
        self._heap: list[tuple[float, int, list[Call]]] = []
        self._count = itertools.count()
        self._thread: threading.Thread | None = None

    def call_at(self, when: float, call: Call) -> Call:
        """Call from the timer thread. Raises what ``Thread.start`` raises: no alarm is set then."""
        entry = [call]
        with self._wake:
            if self._thread is None or not self._thread.is_alive():
                self._start()
            heapq.heappush(self._heap, (when, next(self._count), entry))
            if self._heap[0][2] is entry:
                self._wake.notify()
        return entry.clear

    def _start(self) -> None:
        """Start the thread. It is remembered only once it runs: the next alarm tries again if it could not start."""
        weak = weakref.ref(self)
        thread = threading.Thread(target=_keep_time, args=(weak, self._wake), name="backoff-ctrl-timers", daemon=True)
        thread.start()
        self._thread = thread

    def until_next(self, longest: float) -> float:
        """Return the seconds until the next alarm, at most ``longest``. The caller holds the lock."""
        while self._heap and not self._heap[0][2]:  # cancelled
            heapq.heappop(self._heap)
        return min(self._heap[0][0] - self.now(), longest) if self._heap else longest

    def ring(self) -> float | None:
        """Call what is due; return the seconds until the next look at the main thread. None: that has failed."""
        for call in self._due():
            try:
                call()
            except Exception as error:  # noqa: BLE001 - as an event loop does: the others ring all the same
                self._ring_again(call, error)
        if not self.in_use():  # nobody waits that could be cancelled
            return EXIT_CHECK
        if main_thread_has_failed():
            if self.on_exit is not None:
                self.on_exit()
            return None
        awaited = awaited_by_interrupted()
        if awaited and self.on_interrupt is not None:
            self.on_interrupt(awaited)
        return JOBS_CHECK if awaited else EXIT_CHECK

    def _ring_again(self, call: Call, error: Exception) -> None:
        self.on_error(error)
        if not isinstance(call, SecondTry):
            self.call_at(self.now() + AGAIN, SecondTry(call))

    def _due(self) -> list[Call]:
        """Take the alarms that are due."""
        with self._wake:
            now = self.now()
            due: list[Call] = []
            while self._heap and self._heap[0][0] <= now:
                due += heapq.heappop(self._heap)[2]
            return due


def _keep_time(weak: weakref.ref[ThreadTimers], wake: threading.Condition) -> None:
    """Ring alarms, until the timers are gone or the main thread has failed."""
    longest: float | None = EXIT_CHECK
    while longest is not None and (timers := weak()) is not None:
        try:
            with wake:
                wait = timers.until_next(longest)
                held = timers if timers.in_use() else None
                del timers  # else this thread would keep all the gate alive, and the gate this thread
                if wait > 0:
                    wake.wait(wait)
                del held
            longest = None if (timers := weak()) is None else timers.ring()
        except Exception as error:  # noqa: BLE001 - every waiting create depends on this thread
            if (timers := weak()) is not None:
                timers.on_error(error)
            time.sleep(AGAIN)

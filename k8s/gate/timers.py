"""Clocks with alarms: on an event loop, whose time may be virtual, or on a daemon thread."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], object]

log = logging.getLogger(__name__)

EXIT_CHECK = 0.5  # seconds until creates that wait on other threads notice a Ctrl-C
LOOK_AGAIN = 0.5  # seconds after which the caller's clock is read again: it may have jumped over an alarm


class Timers(Protocol):
    """A clock that can call back. Calls must not block."""

    on_exit: Call | None

    def now(self) -> float:
        """Return seconds, on a clock that never goes back."""

    def renew(self) -> None:
        """Begin anew in a forked child, which has neither the thread nor the loop."""

    def call_at(self, when: float, call: Call) -> Call:
        """Call at that time, in any thread. Return a function that cancels it."""


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
            else:
                call()

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
    """A daemon thread, started by the first alarm. It calls ``on_exit`` once the main thread has failed."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """``clock`` returns seconds; None: ``time.monotonic``. No thread is started yet: most creates never wait."""
        self.now: Callable[[], float] = time.monotonic if clock is None else Forward(clock)
        self.on_exit: Call | None = None
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
        """Call from the timer thread."""
        entry = [call]
        with self._wake:
            heapq.heappush(self._heap, (when, next(self._count), entry))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="backoff-ctrl-timers", daemon=True)
                self._thread.start()
            elif self._heap[0][2] is entry:
                self._wake.notify()
        return entry.clear

    def _run(self) -> None:
        while not main_thread_has_failed():
            for call in self._due():
                try:
                    call()
                except Exception:  # as an event loop does: one that fails must not stop the others
                    log.exception("an alarm of the gate failed; the others go on")
        if self.on_exit is not None:
            self.on_exit()

    def _due(self) -> list[Call]:
        """Wait for the next alarm, at most ``EXIT_CHECK`` seconds; return what is due."""
        with self._wake:
            wait = self._heap[0][0] - self.now() if self._heap else EXIT_CHECK
            if wait > 0:
                self._wake.wait(min(wait, EXIT_CHECK))
            due: list[Call] = []
            while self._heap and self._heap[0][0] <= self.now():
                due += heapq.heappop(self._heap)[2]
            return due


def main_thread_has_failed() -> bool:
    """Say whether an exception such as Ctrl-C ended the main thread: Python then joins the other threads.

    No create may go on waiting in that case. If the main thread simply returned, the other threads go on working, and
    their creates may wait as long as they like.
    """
    # The first flag is private, but the only sign while concurrent.futures joins its workers (threading.py);
    # the second is set when a traceback of the main thread is printed (sys.last_exc since Python 3.12).
    ending = bool(getattr(threading, "_SHUTTING_DOWN", False)) or not threading.main_thread().is_alive()
    return ending and (hasattr(sys, "last_exc") or hasattr(sys, "last_type"))

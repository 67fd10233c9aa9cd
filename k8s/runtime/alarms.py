"""Clocks that call back: on the runtime for threads; else on the caller's own event loop, whose time may be virtual."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

from .host import RUNTIME, Alarm

LOOK_AGAIN: Final = 0.5
"""Seconds after which a caller's clock is read again: it may have jumped over an alarm."""

Cancel = Callable[[], object]


def weakly(call: Callable[[], object]) -> Callable[[], object]:
    """Return what calls this method, unless its object is gone by then: an alarm alone does not keep it."""
    method = weakref.WeakMethod(call)

    def ring() -> None:
        found = method()
        if found is not None:
            found()

    return ring


class Forward:
    """A caller's clock that may jump: when it goes back, time goes on from where it was."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` returns seconds."""
        self._clock = clock
        self._ahead = 0.0
        self._last = float("-inf")

    def __call__(self) -> float:
        """Return seconds that do not go back. (Two threads may add to a jump twice: time is ahead then, not back.)"""
        now = self._clock() + self._ahead
        if now < self._last:
            self._ahead += self._last - now
            return self._last
        self._last = now
        return now


class Alarms(ABC):
    """A clock that can call back. ``now`` returns seconds and never goes back."""

    of_threads: ClassVar[bool]
    """Whether it serves threads, for which Python may wait at its end; a loop that ends cancels its tasks itself."""

    def __init__(self, clock: Callable[[], float] | None, usual: Callable[[], float]) -> None:
        self._given = clock is not None
        self.now: Callable[[], float] = usual if clock is None else Forward(clock)

    def left(self, when: float) -> float:
        """Return for how many seconds to wait for that time before the clock is read again; 0: it has come."""
        left = max(0.0, when - self.now())
        return min(left, LOOK_AGAIN) if self._given else left

    def call_at(self, when: float, call: Callable[[], object]) -> Cancel:
        """Call once the clock shows that time; return what cancels that. See ``call_later``."""
        if not self._given:
            return self.call_later(when - self.now(), call)
        return _Looking(self, when, call).cancel

    @abstractmethod
    def call_later(self, seconds: float, call: Callable[[], object]) -> Cancel:
        """Call after so many real seconds, in any thread; ``call`` must not block. Return what cancels that."""

    @abstractmethod
    def renew(self) -> None:
        """Forget all alarms, in a forked child."""


class _Looking:
    """An alarm by a clock that may jump: the clock is read again and again."""

    __slots__ = ("_alarms", "_call", "_cancel", "_when")

    def __init__(self, alarms: Alarms, when: float, call: Callable[[], object]) -> None:
        self._alarms = alarms
        self._when = when
        self._call: Callable[[], object] | None = call
        self._cancel = alarms.call_later(alarms.left(when), self._ring)

    def _ring(self) -> None:
        left = self._alarms.left(self._when)
        if left > 0 and self._call is not None:
            self._cancel = self._alarms.call_later(left, self._ring)
        elif self._call is not None:
            self._call()

    def cancel(self) -> None:
        self._call = None
        self._cancel()


class RuntimeAlarms(Alarms):
    """Alarms on the runtime's loop, by ``time.monotonic`` or the caller's clock. The first one starts its thread."""

    of_threads = True

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """``clock`` returns seconds; None: ``time.monotonic``."""
        super().__init__(clock, time.monotonic)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Cancel:
        """Call on the runtime. Raises ``RuntimeError`` if its thread can't be started."""
        return RUNTIME.call_later(seconds, call)

    def renew(self) -> None:
        """Do nothing: the runtime renews itself."""


class LoopAlarms(Alarms):
    """Alarms on the event loop that uses it first (on the next one, once that is closed), by its time or a clock."""

    of_threads = False

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """``clock`` returns seconds; None: the time of the loop. The loop is the one running at the first use."""
        super().__init__(clock, self._loop_time)
        self.renew()

    def renew(self) -> None:
        """Forget the loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def _loop_time(self) -> float:
        loop = self._loop
        return loop.time() if loop is not None and not loop.is_closed() else self._bound().time()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Cancel:
        """Call in the loop's thread."""
        loop = self._bound()
        if threading.get_ident() == self._thread:
            return loop.call_later(max(0.0, seconds), call).cancel
        alarm = Alarm(loop, call)
        loop.call_soon_threadsafe(alarm.begin, seconds)
        return alarm.cancel

    def _bound(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._loop.is_closed():
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        return self._loop

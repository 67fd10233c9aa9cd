"""How fast a server is asked: two rate limits, one for reads and one for writes, and one window for both.

The limits are the platform's: in t seconds at most burst + qps x t calls are sent. The window is the engine's overload
window (``engine/overload``): it grows with good answers, is cut by a 429 or 503, and stays shut for the service's
Retry-After. Callers go in the order in which they came, reads and writes each in a line of their own.
"""

from __future__ import annotations

import asyncio
import random
from enum import Enum
from typing import Final

from backoff_ctrl.engine.backoff import Bucket, full_jitter
from backoff_ctrl.engine.overload import Window, WindowSnapshot
from backoff_ctrl.engine.policy import Policy

from .protocol import RateLimit, RemoteError

PAUSE_FIRST: Final = 0.5
PAUSE_LONGEST: Final = 30.0
"""Seconds between two tries of a create or delete, the first and the longest."""
OVERLOADED: Final = (429, 503)
_POLICY: Final = Policy()


async def pause(tries: int) -> None:
    """Wait before a call is made once more, longer after each try."""
    await asyncio.sleep(full_jitter(tries, PAUSE_FIRST, PAUSE_LONGEST, random.Random()))


class Kind(Enum):
    """A kind of calls."""

    READ = "read"
    WRITE = "write"


class Slot:
    """The permission to make one call, which has to be ended once, by its outcome or unused."""

    __slots__ = ("_begun", "_over", "_pacer")

    def __init__(self, pacer: Pacer, begun: float) -> None:
        self._pacer = pacer
        self._begun = begun
        self._over = False

    def end(self, error: BaseException | None = None, *, used: bool = True) -> None:
        """Say how the call ended; ``used`` False: it was not made. A second call does nothing."""
        if not self._over:
            self._over = True
            self._pacer.ended(self._begun, error, used=used)


class Pacer:
    """Paces the calls of one server. On one event loop."""

    def __init__(
        self, read: RateLimit, write: RateLimit, rng: random.Random | None = None, *, whole: Pacer | None = None
    ) -> None:
        """Begin with full buckets and the engine's first window. ``whole``: its rates count for calls here, too."""
        self.begin(read, write)
        self._whole = whole
        self._lines = {kind: asyncio.Lock() for kind in Kind}
        self._window = Window(_POLICY, rng or random.Random())
        self._ended = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self.overloads = 0
        """Answers of the service that said it is overloaded."""

    def begin(self, read: RateLimit, write: RateLimit) -> None:
        """Adopt the limits of a service of which nothing has been asked yet, with full buckets."""
        self._limits = {Kind.READ: read, Kind.WRITE: write}
        self.buckets = {kind: Bucket(limit.qps, limit.burst) for kind, limit in self._limits.items()}

    def change(self, read: RateLimit, write: RateLimit) -> None:
        """Adopt other limits. A changed one begins with an empty bucket, so that a change is no second burst."""
        for kind, limit in ((Kind.READ, read), (Kind.WRITE, write)):
            if limit != self._limits[kind]:
                self._limits[kind] = limit
                bucket = self.buckets[kind] = Bucket(limit.qps, limit.burst)
                for _ in range(limit.burst):
                    bucket.take(self._clock())

    def is_used(self) -> bool:
        """Say whether a call is under way, waits, or has to wait."""
        shut = self._window.not_before > self._clock()
        return shut or self._window.in_flight > 0 or any(line.locked() for line in self._lines.values())

    def window(self) -> WindowSnapshot:
        return self._window.snapshot(self._clock())

    async def opened(self) -> None:
        """Wait while the server has asked to be left alone."""
        while (left := self._window.not_before - self._clock()) > 0:  # noqa: ASYNC110 - it may be shut again
            await asyncio.sleep(left)

    async def enter(self, kind: Kind) -> Slot:
        """Wait until one more call may be made."""
        async with self._lines[kind]:
            while True:
                self._ended.clear()
                now = self._clock()
                buckets = [each.buckets[kind] for each in (self, self._whole) if each is not None]
                left = max(self._window.not_before - now, *(bucket.wait_for(1, now) for bucket in buckets))
                if left > 0:
                    await asyncio.sleep(left)
                elif not self._window.is_open(now):
                    await self._ended.wait()
                else:
                    break
            for bucket in buckets:
                bucket.take(now)
            self._window.in_flight += 1
            return Slot(self, now)

    def ended(self, begun: float, error: BaseException | None, *, used: bool) -> None:
        """Take the outcome of a call that began at ``begun``."""
        self._window.in_flight -= 1
        self._ended.set()
        if not used:
            return
        if isinstance(error, RemoteError) and error.status in OVERLOADED:
            self.overloads += 1
            self._window.bad(begun, self._clock(), error.retry_after, _POLICY.base, cut=_POLICY.overload_cut)
        elif error is None or isinstance(error, RemoteError):
            self._window.good()

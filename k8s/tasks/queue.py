"""A queue of keys: each is with one worker at a time, and comes again if there was news of it meanwhile.

Keys take turns: one that has news all the time joins the end of the queue each time, behind all the others.
"""

from __future__ import annotations

import asyncio
from typing import Final

NOW: Final = 0.0


class KeyedQueue:
    """A queue on one event loop."""

    def __init__(self) -> None:
        """Keys may be added before the first worker asks for one; the loop must run by then."""
        self._ready: asyncio.Queue[str] = asyncio.Queue()  # it wakes one worker for each key
        self._queued: set[str] = set()  # those of them that were not forgotten
        self._with_worker: dict[str, float | None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str, delay: float = NOW) -> None:
        """Have a key come, after so many seconds; if it is to come sooner already, nothing changes."""
        if key in self._with_worker:
            due = self._with_worker[key]
            self._with_worker[key] = delay if due is None else min(due, delay)
            return
        if key in self._queued:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        if delay > NOW:
            self._timers[key] = loop.call_later(delay, self._due, key)
        else:
            self._due(key)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self._queued.add(key)
        self._ready.put_nowait(key)

    async def take(self) -> str:
        """Return the next key; it is with the caller until ``done``."""
        key = await self._ready.get()
        while key not in self._queued:
            key = await self._ready.get()
        self._queued.discard(key)
        self._with_worker[key] = None
        return key

    def done(self, key: str) -> None:
        """Take a key back; it comes again if it was added meanwhile."""
        due = self._with_worker.pop(key)
        if due is not None:
            self.add(key, due)

    def forget(self, key: str) -> None:
        """Let a key come no more, unless it is added again."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        self._queued.discard(key)
        if key in self._with_worker:
            self._with_worker[key] = None

    def close(self) -> None:
        """End all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def __len__(self) -> int:
        """Return how many keys are ready now."""
        return len(self._queued)

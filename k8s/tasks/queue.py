"""A queue of keys: each is with one worker at a time, and is queued again if it was added meanwhile.

Keys take turns: one that is added all the time joins the end of the queue each time, behind all the others.
"""

from __future__ import annotations

import asyncio
from typing import Final

NOW: Final = 0.0


class KeyedQueue:
    """A queue on one event loop."""

    def __init__(self) -> None:
        """Keys may be added before the first worker calls ``get``, but only on a running loop."""
        self._ready: asyncio.Queue[str] = asyncio.Queue()  # it wakes one worker for each key
        self._queued: set[str] = set()  # those of them that were not forgotten
        self._with_worker: dict[str, float | None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str, delay: float = NOW) -> None:
        """Queue a key after so many seconds, unless it is due sooner already."""
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
        """Return the next key; the caller has it until ``done``."""
        key = await self._ready.get()
        while key not in self._queued:
            key = await self._ready.get()
        self._queued.discard(key)
        self._with_worker[key] = None
        return key

    def done(self, key: str) -> None:
        """Take a key back; it is queued again if it was added meanwhile."""
        due = self._with_worker.pop(key)
        if due is not None:
            self.add(key, due)

    def forget(self, key: str) -> None:
        """Remove a key, until it is added again."""
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
        """Return the number of keys that are ready now."""
        return len(self._queued)

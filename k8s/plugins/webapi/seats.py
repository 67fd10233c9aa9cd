"""Seats: how much may be under way at a time, in the order of arrival, and within a whole that others share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Hashable


class Seats:
    """``most`` returns how many there are now. ``within``: who has a seat here has one of those, too."""

    def __init__(self, most: Callable[[], int], within: Seats | None = None) -> None:
        self._most = most
        self._within = within
        self._taken: set[Hashable] = set()
        self._line = asyncio.Lock()
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._taken)

    async def take(self, key: Hashable) -> None:
        """Wait for a seat, in the order of arrival. Who waits for its own takes none of the whole."""
        async with self._line:
            while key not in self._taken and len(self._taken) >= self._most():
                self._freed.clear()
                await self._freed.wait()
            self._taken.add(key)
        if self._within is not None:
            try:
                await self._within.take(key)
            except BaseException:
                self.free(key)
                raise

    def taken_beside(self, keys: Container[Hashable]) -> bool:
        """Say whether anybody but these has a seat."""
        return any(key not in keys for key in self._taken)

    def free(self, key: Hashable) -> None:
        """Give a seat back. A second call does nothing."""
        self._taken.discard(key)
        self._freed.set()
        if self._within is not None:
            self._within.free(key)

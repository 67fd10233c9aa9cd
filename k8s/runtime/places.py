"""Places that many share: so many in all, and of one at most so many, so that one who is slow holds up no other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """``most`` at a time in all, ``of_one`` at a time of one. In order of arrival. On one event loop."""

    def __init__(self, most: int, of_one: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._of_one = of_one
        self._own: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, whose: str) -> AsyncIterator[None]:
        """Wait for a place, and have it within the block."""
        own = self._own.setdefault(whose, asyncio.Semaphore(self._of_one))
        self._users[whose] += 1
        try:
            async with own, self._all:  # its own first: who waits for that takes no place of the others
                yield
        finally:
            self._users[whose] -= 1
            if not self._users[whose]:
                del self._users[whose], self._own[whose]

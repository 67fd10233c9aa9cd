"""Pauses between the tries of one thing, longer after each failure in a row, and drawn: many do not return at once."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from backoff_ctrl.engine.backoff import full_jitter

DRAWN: Final = random.SystemRandom()
"""It has no state, so that two forks do not draw the same pauses."""


class Pauses:
    """Waits uniform(0, d) after a failure; d is ``first`` seconds, and doubles with each one up to ``longest``."""

    __slots__ = ("_first", "_longest", "_rng", "failures")

    def __init__(self, first: float, longest: float, rng: random.Random = DRAWN) -> None:
        self._first = first
        self._longest = longest
        self._rng = rng
        self.failures = 0  # in a row

    async def after_failure(self, at_least: float = 0.0) -> None:
        """Count a failure and pause, ``at_least`` for so many seconds."""
        wait = full_jitter(self.failures, self._first, self._longest, self._rng)
        self.failures += 1
        await asyncio.sleep(max(at_least, wait))

    def reset(self) -> None:
        """Begin again with the first pause: it succeeded."""
        self.failures = 0

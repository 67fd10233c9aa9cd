"""The back-off schedule: d = min(cap, base x 2^n), exact for any n, with jitter.

A probe waits uniform(d/2, d): late enough to spare the server, early enough to notice room in time. Other retries
wait uniform(0, d), "full jitter" (AWS Architecture Blog, Exponential Backoff And Jitter, 2015). ``Bucket`` bounds a
rate.
"""

from __future__ import annotations

import math
import random
from typing import Final

FOREVER: Final = float("inf")
"""A time that never comes."""
_EXPONENT_SAFE = 1000  # any float of this binary exponent is above every cap that a policy allows


def delay(attempts: int, base: float, cap: float) -> float:
    """Return min(cap, base x 2^attempts) in seconds, without overflow for any ``attempts``."""
    if math.frexp(base)[1] + attempts > _EXPONENT_SAFE:
        return cap
    return min(cap, math.ldexp(base, attempts))


def steps_to_cap(base: float, cap: float) -> int:
    """Return the first attempt whose delay is the cap: counting further would only delay the way back down."""
    return math.ceil(math.log2(cap / base))


def probe_delay(attempts: int, base: float, cap: float, rng: random.Random) -> float:
    """Draw a probe's wait, uniform(d/2, d), in seconds."""
    d = delay(attempts, base, cap)
    return rng.uniform(d / 2, d)


def full_jitter(attempts: int, base: float, cap: float, rng: random.Random) -> float:
    """Draw any other retry's wait, uniform(0, d), in seconds."""
    return rng.uniform(0.0, delay(attempts, base, cap))


def after(retry_after: float, window: float, rng: random.Random) -> float:
    """Draw the wait for a server's Retry-After of ``retry_after`` seconds: retry_after + uniform(0, window)."""
    return retry_after + rng.uniform(0.0, window)


class Bucket:
    """Holds up to ``burst`` tokens and gains ``rate`` of them per second: in t seconds at most burst + rate x t."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        """Start full. ``rate`` is in tokens per second."""
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at = float("-inf")

    def level(self, now: float) -> float:
        """Return how many tokens there are. An earlier ``now`` counts as the last one."""
        if now > self._at:
            if self._tokens < self._burst:
                self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
        return self._tokens

    def take(self, now: float) -> None:
        """Take one token. The caller has made sure that there is one."""
        self._tokens = self.level(now) - 1

    def wait_for(self, tokens: float, now: float) -> float:
        """Return in how many seconds there will be so many tokens; less than a microsecond counts as 0."""
        wait = (tokens - self.level(now)) / self._rate
        return wait if wait > 1e-6 else 0.0

    def is_full(self, now: float) -> bool:
        """Say whether it is as full as a new one."""
        return self.level(now) >= self._burst

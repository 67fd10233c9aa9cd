"""The schedule: d = min(cap, base x 2^n), exact for any n, and the jitter on top of it.

A probe waits uniform(d/2, d): late enough to spare the server, early enough to keep the pace. Other retries
wait uniform(0, d), "full jitter" (AWS Architecture Blog, Exponential Backoff And Jitter, 2015).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

FOREVER: Final = float("inf")
"""A time that does not come."""
_EXPONENT_SAFE = 1000  # any float of this binary exponent is above every cap that a policy allows


def delay(attempts: int, base: float, cap: float) -> float:
    """Return min(cap, base x 2^attempts) in seconds; no overflow whatever ``attempts`` is."""
    if math.frexp(base)[1] + attempts > _EXPONENT_SAFE:
        return cap
    return min(cap, math.ldexp(base, attempts))


def steps_to_cap(base: float, cap: float) -> int:
    """Return the first attempt whose delay is the cap: counting on would only make forgiveness blunt."""
    return math.ceil(math.log2(cap / base))


def probe_delay(attempts: int, base: float, cap: float, rng: random.Random) -> float:
    """Draw a probe's wait, uniform(d/2, d), in seconds."""
    d = delay(attempts, base, cap)
    return rng.uniform(d / 2, d)


def full_jitter(attempts: int, base: float, cap: float, rng: random.Random) -> float:
    """Draw any other retry's wait, uniform(0, d), in seconds."""
    return rng.uniform(0.0, delay(attempts, base, cap))


def after(retry_after: float, window: float, rng: random.Random) -> float:
    """Draw the wait that a server's Retry-After of ``retry_after`` seconds means: r + uniform(0, window)."""
    return retry_after + rng.uniform(0.0, window)

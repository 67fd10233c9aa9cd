"""A token bucket; the caller gives the time."""

from __future__ import annotations


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

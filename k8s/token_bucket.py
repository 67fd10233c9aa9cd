"""Token buckets on a given clock: one for each who spends, one for all, and tokens that are promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .event_entries import Limits


class Bucket:
    """Holds up to ``burst`` tokens and gains ``rate`` of them per second. Never more than burst + rate x t in t."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float) -> None:
        """Begin full."""
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
        """Take one; the caller has made sure that there is one."""
        self._tokens = self.level(now) - 1

    def wait_for(self, tokens: float, now: float) -> float:
        """Return in how many seconds there will be so many; a microsecond is none."""
        wait = (tokens - self.level(now)) / self._rate
        return wait if wait > 1e-6 else 0.0

    def is_full(self, now: float) -> bool:
        """Say whether it is as good as new."""
        return self.level(now) >= self._burst


class Account:
    """The tokens of one namespace; ``reserved`` are promised already."""

    __slots__ = ("bucket", "reserved")

    def __init__(self, bucket: Bucket) -> None:
        """Begin with nothing promised."""
        self.bucket = bucket
        self.reserved = 0


class Budget:
    """Who wants to write needs a token of the namespace's and one of all's."""

    def __init__(self, limits: Limits) -> None:
        """Begin full."""
        self._limits = limits
        self._all = Account(Bucket(limits.rate, limits.burst))

    def account(self) -> Account:
        """Open the account of one more namespace."""
        return Account(Bucket(self._limits.namespace_rate, self._limits.namespace_burst))

    def has_spare(self, one: Account, now: float) -> bool:
        """Say whether there is a token for something new: the kept share is not for that."""
        share = self._limits.kept_share
        bounds = ((one, self._limits.namespace_burst), (self._all, self._limits.burst))
        return all(each.bucket.wait_for(1 + each.reserved + int(share * burst), now) == 0 for each, burst in bounds)

    def wait(self, one: Account, now: float) -> float:
        """Return in how many seconds there may be a token that is not promised."""
        return max(each.bucket.wait_for(1 + each.reserved, now) for each in (one, self._all))

    def reserve(self, one: Account) -> None:
        """Promise a token that is there."""
        one.reserved += 1
        self._all.reserved += 1

    def release(self, one: Account) -> None:
        """Take a promise back: to spend the token at once, or not at all."""
        one.reserved -= 1
        self._all.reserved -= 1

    def spend(self, one: Account, now: float) -> None:
        """Take a token that is there."""
        one.bucket.take(now)
        self._all.bucket.take(now)

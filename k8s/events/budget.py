"""Limits the requests for events: a token bucket per namespace and one for all, with tokens that can be reserved."""

from __future__ import annotations

from dataclasses import dataclass

from backoff_ctrl.k8s.gate.token_bucket import Bucket


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates in requests per second, times in seconds. The defaults allow a namespace 31 requests in a minute.

    New events may not use ``kept_share`` of each bucket: it is kept for summaries and for patches of older events.
    """

    namespace_rate: float = 0.1
    namespace_burst: int = 25
    rate: float = 1.0
    burst: int = 100
    kept_share: float = 0.2
    window: float = 360.0  # a series ends after this long without a repetition, as in client-go
    first_patch: float = 10.0  # the pause between two patches of a series doubles from here to the window
    first_summary: float = 10.0
    summaries: float = 300.0
    shut: float = 300.0  # after a 403, how long until the next try
    series_max: int = 1000
    namespaces_max: int = 1000
    tries: int = 5


class Account:
    """The tokens of one namespace, of which ``reserved`` are set aside for events waiting to be created."""

    __slots__ = ("bucket", "reserved")

    def __init__(self, bucket: Bucket) -> None:
        """Start with no tokens reserved."""
        self.bucket = bucket
        self.reserved = 0


class Budget:
    """Each request takes two tokens: one of its namespace and one of the bucket for all."""

    def __init__(self, limits: Limits) -> None:
        """Start with full buckets."""
        self._limits = limits
        self._all = Account(Bucket(limits.rate, limits.burst))

    def account(self) -> Account:
        """Return a full account for another namespace."""
        return Account(Bucket(self._limits.namespace_rate, self._limits.namespace_burst))

    def has_spare(self, one: Account, now: float) -> bool:
        """Say whether there is a token for a new event, apart from reserved tokens and ``kept_share``."""
        share = self._limits.kept_share
        bounds = ((one, self._limits.namespace_burst), (self._all, self._limits.burst))
        return all(each.bucket.wait_for(1 + each.reserved + int(share * burst), now) == 0 for each, burst in bounds)

    def wait(self, one: Account, now: float) -> float:
        """Return the seconds until there may be an unreserved token."""
        return max(each.bucket.wait_for(1 + each.reserved, now) for each in (one, self._all))

    def reserve(self, one: Account) -> None:
        """Set a token aside; ``has_spare`` or ``wait`` must have found one."""
        one.reserved += 1
        self._all.reserved += 1

    def release(self, one: Account) -> None:
        """Undo ``reserve``, either to ``spend`` the token right away or because it is no longer needed."""
        one.reserved -= 1
        self._all.reserved -= 1

    def spend(self, one: Account, now: float) -> None:
        """Take a token; one must be available."""
        one.bucket.take(now)
        self._all.bucket.take(now)

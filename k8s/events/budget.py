"""What events may cost the API server: a token bucket per namespace, one for all, and tokens that are promised."""

from __future__ import annotations

from dataclasses import dataclass

from backoff_ctrl.k8s.gate.token_bucket import Bucket


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates in requests per second, times in seconds. The defaults allow a namespace 31 requests in a minute.

    ``kept_share`` of each bucket is not for new events but for the counts of old ones and for summaries.
    """

    namespace_rate: float = 0.1
    namespace_burst: int = 25
    rate: float = 1.0
    burst: int = 100
    kept_share: float = 0.2
    window: float = 360.0  # client-go's: a series ends when nothing was heard for so long
    first_patch: float = 10.0  # the pause between two patches of a series doubles from here to the window
    first_summary: float = 10.0
    summaries: float = 300.0
    shut: float = 300.0  # how long a refused permission is left alone
    series_max: int = 1000
    namespaces_max: int = 1000
    tries: int = 5


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

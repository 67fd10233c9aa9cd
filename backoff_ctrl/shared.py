"""What the namespaces of a controller have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .backoff import full_jitter
from .overload import Window

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from .handler import ComputeResourceAwareBackOffHandler
    from .policy import Policy
    from .tickets import Refusal, Ticket

_SETTLE_SHORTER = 0.999  # per create that got in on news: a stale refusal in 400 keeps the settle time where it is
_SETTLE_FLOOR = 0.001  # seconds: where learning starts from if the policy says 0


@dataclass(slots=True, eq=False)
class Shared:
    """Policy, randomness, effects, overload windows, the learned settle time and the alarm clock."""

    policy: Policy
    rng: random.Random
    wake: Callable[[ComputeResourceAwareBackOffHandler, float], None]
    settle_time: float
    effects: list[Ticket | Refusal] = field(default_factory=list)
    flows: dict[str, Window] = field(default_factory=dict)
    contended: dict[Window, None] = field(default_factory=dict)
    lengthened_at: float = float("-inf")  # when the settle time grew last

    def flow(self, name: str) -> Window:
        """Return the overload window of a flow, new where it is the first create of it."""
        window = self.flows.get(name)
        if window is None:
            window = self.flows[name] = Window(self.policy, self.rng)
        return window

    def settle_shorter(self) -> None:
        """Learn that the server had seen our news in time: what a busy moment taught is forgotten again, slowly."""
        self.settle_time = max(self.policy.settle_time, self.settle_time * _SETTLE_SHORTER)

    def settle_longer(self, sent: float, now: float) -> float:
        """Learn that the server had not seen our news yet; return how long to wait this time.

        Once for all creates that were on their way: one slow moment of the server refuses many.
        """
        if sent >= self.lengthened_at:
            self.lengthened_at = now
            self.settle_time = min(self.policy.settle_max, max(self.settle_time * 1.5, _SETTLE_FLOOR))
        return self.settle_time + full_jitter(0, self.settle_time, self.policy.cap, self.rng)

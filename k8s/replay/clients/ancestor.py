"""The ancestor's back-off, for comparison: the rules of Flyte 1, including its defects, but not its code.

It follows ``flytepropeller/pkg/controller/nodes/task/backoff`` of flyteorg/flyte v1.16.8 (``handler.go``,
``safe_resourcelist.go``) with its default settings: base 2, cap 20 s, each task re-evaluated every 10 s. Kept on
purpose: the regular expression that reads only limits, ``>=`` against ceilings, ``Value()`` rounding when a ceiling
is lowered, a timer that still blocks at the instant of its end, a reset of everything by any success, no jitter, and
one handler per kind and namespace.

One defect is left out in its favour: its plugin manager fails a task for good if it requests *exactly* the quota. Such
pods would be lost here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

NANO: Final = 1_000_000_000
INFINITE: Final = parse_quantity("1Ei")

# handler.go, requestedLimitsRegexp; the unescaped dot is theirs.
_REQUESTED_LIMITS: Final = re.compile(r"requested: (limits.[a-zA-Z]+=[a-zA-Z0-9]+[,]*)+")


@dataclass(slots=True)
class Blocker:
    """``SimpleBackOffBlocker``: a timer. Seconds; ``now`` is given."""

    next_eligible: float
    base: float = 2.0
    cap: float = 20.0
    unit: float = 1.0  # length of one "second": shorter when the replay is faster than the trace
    exponent: int = 0

    def blocks(self, now: float) -> bool:
        """Say whether it still blocks; it does at the very instant of its end."""
        return not self.next_eligible < now

    def back_off(self, now: float) -> float:
        """Block for base^exponent, at most the cap; the exponent stops growing once the cap is passed."""
        delay = self.base**self.exponent
        if delay > self.cap:
            delay = self.cap
        else:
            self.exponent += 1
        self.next_eligible = now + delay * self.unit
        return delay

    def reset(self, now: float) -> None:
        """Start over. It still blocks at this very instant."""
        self.exponent = 0
        self.next_eligible = now


@dataclass(slots=True)
class Handler:
    """``ComputeResourceAwareBackOffHandler``: the timer and the ceilings of one kind and namespace."""

    blocker: Blocker
    ceilings: dict[str, int] = field(default_factory=dict)  # nano-units by name without "limits."

    def tries(self, limits: Mapping[str, int], now: float) -> bool:
        """Say whether the create is sent: if the timer is over, or every amount is below its ceiling."""
        return not self.blocker.blocks(now) or self._eligible(limits)

    def _eligible(self, limits: Mapping[str, int]) -> bool:
        return all(amount < self.ceilings.get(name, INFINITE + 1) for name, amount in limits.items())

    def succeeded(self, now: float) -> None:
        """Reset the timer and all ceilings."""
        self.blocker.reset(now)
        self.ceilings = dict.fromkeys(self.ceilings, INFINITE)

    def refused(self, message: str, was_blocking: bool, now: float) -> None:
        """Learn from a quota 403. The timer advances unless it was blocking when the create was sent."""
        if not was_blocking:
            self.blocker.back_off(now)
        for name, amount in requested_limits(message).items():
            known = self.ceilings.get(name)
            if known is None or _value(amount) < _value(known):
                self.ceilings[name] = amount


def requested_limits(message: str) -> dict[str, int]:
    """Parse what the ancestor parses: the ``limits.X=N`` directly after ``requested: ``."""
    match = _REQUESTED_LIMITS.search(message)
    if match is None:
        return {}
    amounts: dict[str, int] = {}
    for chunk in match.group(0).split(":", 1)[1].split(","):
        name, _, amount = chunk.partition(".")[2].partition("=")
        if name:
            amounts[name] = parse_quantity(amount)
    return amounts


def _value(amount: int) -> int:
    """Quantity.Value(): whole units, rounded up."""
    return -(-amount // NANO)

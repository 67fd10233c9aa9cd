"""The ancestor's back-off, as Flyte 1 had it, to compare with: its rules, not its code, and its defects kept.

After ``flytepropeller/pkg/controller/nodes/task/backoff`` of flyteorg/flyte v1.16.8 (``handler.go``,
``safe_resourcelist.go``); settings are its defaults: base 2, cap 20 s, a task looked at again every 10 s. What is
faithful on purpose: the limits-only regular expression, ``>=`` against ceilings, ``Value()`` rounding when a
ceiling is lowered, the closed bound of the timer, resets of everything by any success, no jitter, and one
handler per kind and namespace.

Left out in its favour: its plugin manager fails a task for good when it asks for *exactly* the quota. Such pods
would be lost here.
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
    unit: float = 1.0  # one "second": shorter when a replay runs faster than the trace
    exponent: int = 0

    def blocks(self, now: float) -> bool:
        """Say whether it still blocks: yes at the very instant it ends."""
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
        """Start over; blocks at this very instant."""
        self.exponent = 0
        self.next_eligible = now


@dataclass(slots=True)
class Handler:
    """``ComputeResourceAwareBackOffHandler``: the timer and the ceilings of one kind and namespace."""

    blocker: Blocker
    ceilings: dict[str, int] = field(default_factory=dict)  # nano-units by name without "limits."

    def tries(self, limits: Mapping[str, int], now: float) -> bool:
        """Say whether the create is sent: the timer is over, or every amount is below its ceiling."""
        return not self.blocker.blocks(now) or self._eligible(limits)

    def _eligible(self, limits: Mapping[str, int]) -> bool:
        return all(amount < self.ceilings.get(name, INFINITE + 1) for name, amount in limits.items())

    def succeeded(self, now: float) -> None:
        """Forget the timer and every ceiling."""
        self.blocker.reset(now)
        self.ceilings = dict.fromkeys(self.ceilings, INFINITE)

    def refused(self, message: str, was_blocking: bool, now: float) -> None:
        """Learn from a quota 403: the timer moves unless it blocked when the create was sent."""
        if not was_blocking:
            self.blocker.back_off(now)
        for name, amount in requested_limits(message).items():
            known = self.ceilings.get(name)
            if known is None or _value(amount) < _value(known):
                self.ceilings[name] = amount


def requested_limits(message: str) -> dict[str, int]:
    """Parse what the ancestor parses: the run of ``limits.X=N`` straight after ``requested: ``."""
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

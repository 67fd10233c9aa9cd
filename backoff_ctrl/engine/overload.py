"""Overload windows: how many creates may be in flight, learned from answers that ask for patience.

Additive increase, multiplicative decrease (Chiu and Jain 1989; Netflix concurrency-limits): a window grows by one
per window's worth of good answers, only while at least half of it is in use, and is cut once for all that was in
flight when the server said no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .backoff import after, full_jitter

if TYPE_CHECKING:
    import random

    from .policy import Policy


@dataclass(frozen=True, slots=True)
class WindowSnapshot:
    """One overload window: its size, what is in flight, seconds that it is still closed for."""

    size: float
    in_flight: int
    closed_for: float


class TurnTaker(Protocol):
    """A waiting line that queues for a contended window."""

    def take_turn(self, window: Window, place: tuple[float, int], now: float) -> None:
        """Send at most one create; ``place`` is the place in line that asked for the turn."""


class Window:
    """Creates in flight under one flow, or one namespace's brake. ``turns`` are the namespaces that wait for it."""

    __slots__ = ("_policy", "_rng", "cut_at", "failures", "in_flight", "not_before", "size", "turns", "used_at")

    def __init__(self, policy: Policy, rng: random.Random) -> None:
        """Start at the policy's size."""
        self._policy = policy
        self._rng = rng
        self.cut_at = float("-inf")
        self.size = float(policy.overload_start)
        self.in_flight = 0
        self.failures = 0
        self.not_before = self.used_at = float("-inf")
        self.turns: dict[TurnTaker, tuple[float, int]] = {}  # who asked, by place in line

    def is_open(self, now: float) -> bool:
        """Say whether one more create may be sent."""
        return self.in_flight + 1 <= self.size and now >= self.not_before

    def has_room(self) -> bool:
        """Say whether fewer creates are in flight than may be."""
        return self.in_flight + 1 <= self.size

    def is_used(self) -> bool:
        """Say whether half of it was used, at least, with the one that was answered just now."""
        return self.in_flight * 2 + 2 >= self.size

    def good(self) -> None:
        """Grow a little: the server answered. ``in_flight`` counts the others, without the one that was answered."""
        self.failures = 0
        if self.in_flight * 2 + 2 >= self.size:  # is_used(), without the call
            self.size = min(float(self._policy.overload_max), self.size + 1.0 / self.size)

    def bad(self, sent: float, now: float, retry_after: float | None, base: float, *, cut: float | None) -> None:
        """Shrink, once per window in flight, and pause: for the server's Retry-After, else by full jitter.

        It shrinks to ``cut`` of its size; None: by one, so that it ends where about one answer in it is bad.
        """
        if sent >= self.cut_at:
            self.cut_at = now
            self.size = max(1.0, self.size - 1.0 if cut is None else self.size * cut)
            wait = full_jitter(self.failures, base, self._policy.cap, self._rng)
            self.failures += 1
        else:
            wait = 0.0  # sent before the last cut: it tells nothing new but its Retry-After
        if retry_after is not None:
            wait = after(retry_after, self._policy.retry_after_window, self._rng)
        self.not_before = max(self.not_before, now + wait)

    def snapshot(self, now: float) -> WindowSnapshot:
        """Show the window."""
        return WindowSnapshot(self.size, self.in_flight, max(0.0, self.not_before - now))

"""Overload windows: how many creates may be in flight, learned from the server's overload answers.

Additive increase, multiplicative decrease (Chiu and Jain 1989; Netflix concurrency-limits): a window grows by one
per window's worth of good answers, only while at least half of it is in use, and is cut once for all creates that were
in flight when the server was overloaded.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from .backoff import after, full_jitter
from .policy import Policy


@dataclass(frozen=True, slots=True)
class WindowSnapshot:
    """One overload window: its size and its creates in flight; ``closed_for`` is in seconds from now."""

    size: float
    in_flight: int
    closed_for: float


class Woken(Protocol):
    """A namespace's handler, as the alarm clock and the windows see it. A protocol, since the handler imports them.

    Its ``advance`` is due at ``wake_at``.
    """

    __slots__ = ("wake_at",)

    wake_at: float

    def advance(self, now: float) -> None:
        """Do all that is due by ``now``."""

    def take_turn(self, window: Window, place: tuple[float, int], now: float) -> None:
        """Send at most one create through ``window``; ``place`` is the place in line that asked for the turn."""


class Window:
    """The creates in flight of one flow, or under one namespace's brake. ``turns`` are the lines that queue for it."""

    __slots__ = ("_policy", "_rng", "cut_at", "failures", "in_flight", "not_before", "size", "turns", "used_at")

    def __init__(self, policy: Policy, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self.cut_at = float("-inf")
        self.size = float(policy.overload_start)
        self.in_flight = 0
        self.failures = 0
        self.not_before = self.used_at = float("-inf")
        self.turns: dict[Woken, tuple[float, int]] = {}  # with the place in line that asked

    def is_open(self, now: float) -> bool:
        """Say whether one more create may be sent."""
        return self.in_flight + 1 <= self.size and now >= self.not_before

    def is_used(self) -> bool:
        """Say whether at least half of it was in use, including the create that was just answered."""
        return self.in_flight * 2 + 2 >= self.size

    def good(self) -> None:
        """Grow a little, since the server answered. ``in_flight`` no longer counts the answered create."""
        self.failures = 0
        if self.in_flight * 2 + 2 >= self.size:  # is_used(), without the call
            self.size = min(float(self._policy.overload_max), self.size + 1.0 / self.size)

    def bad(self, sent: float, now: float, retry_after: float | None, base: float, *, cut: float | None) -> None:
        """Shrink, once per window in flight, and pause: for the server's Retry-After, else by full jitter.

        It shrinks to ``cut`` times its size. None: by one, so that it settles where about one answer per window is bad.
        """
        if sent >= self.cut_at:
            self.cut_at = now
            self.size = max(1.0, self.size - 1.0 if cut is None else self.size * cut)
            wait = full_jitter(self.failures, base, self._policy.cap, self._rng)
            self.failures += 1
        else:
            wait = 0.0  # sent before the last cut: only its Retry-After is new
        if retry_after is not None:
            wait = after(retry_after, self._policy.retry_after_window, self._rng)
        self.not_before = max(self.not_before, now + wait)

    def snapshot(self, now: float) -> WindowSnapshot:
        return WindowSnapshot(self.size, self.in_flight, max(0.0, self.not_before - now))

"""How many creates of one namespace may be in flight: slow start where no quota is known, a brake after conflicts.

Where no quota is known, creates in flight grow 1, 2, 4, ... to ``unproven_max``, as in TCP's slow start: one more for
each that is created. A quota conflict, an evaluation time-out or a broken webhook slows this namespace only.

A conflict is no overload: the server's admission charges creates in batches, one batch after the other, and has lost
the race to update the quota object to a recount (or to another server) three times. Fewer creates would be charged in
as many writes and lose as often, so they are slowed only a little, and for milliseconds (docs/decisions/news.md).
"""

from __future__ import annotations

import random

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.facts.outcomes import Outcome, Overloaded
from backoff_ctrl.engine.overload import Window, Woken
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.engine.tickets import Ticket


class Pace:
    """One namespace's limits on its creates in flight, beside the overload windows that all namespaces share."""

    __slots__ = ("_by_race", "_policy", "_released_at", "_rng", "brake", "halted", "turn", "unproven", "window")

    def __init__(self, policy: Policy, rng: random.Random) -> None:
        """Start with one unproven create in flight, and without a brake."""
        self._policy = policy
        self._rng = rng
        self.brake: Window | None = None
        self.halted = False  # an operator has stopped all sending
        self._by_race = False  # a lost race put the brake on
        self._released_at = 0.0  # the window size at which the brake is released
        self.turn: Window | None = None  # the contended window at which it is this namespace's turn
        self.window = 1  # unproven creates in flight, at most
        self.unproven = 0

    def allows(
        self,
        taker: Woken,
        window: Window,
        contended: dict[Window, None],
        in_flight: int,
        place: tuple[float, int],
        now: float,
    ) -> bool:
        """Say whether brake and overload window let one more create pass; use the namespace's turn, or queue for one.

        A namespace queues with the first ``place`` in its line that asked.
        """
        if self.halted:
            return False
        if self.brake is not None:
            self.brake.in_flight = in_flight
            if not self.brake.is_open(now):
                return False
        if window is self.turn and window.is_open(now):
            self.turn = None
        elif window.turns or not window.is_open(now):
            window.turns[taker] = min(place, window.turns.get(taker, place))
            contended[window] = None
            return False
        return True

    def ended(self, ticket: Ticket, outcome: Outcome, in_flight: int, now: float) -> None:
        """Learn from how a ticket ended: one more in flight after a 201, one at a time again after a quota's refusal.

        The brake counts only answers to creates that were sent since it was put on or tightened: earlier ones say
        nothing about the present. But races are a matter of chance, so a brake put on by a race counts all answers. It
        is also released while less than half of its window is in use, when it has no effect anyway.
        """
        if ticket.unproven:
            self.unproven -= 1
            if outcome.event == "created":
                self.window = min(self._policy.unproven_max, self.window + 1)
            elif outcome.event == "rejected":
                self.window = 1
        brake = self.brake
        if brake is None:
            return
        brake.in_flight = in_flight
        if outcome.event not in ("created", "rejected") or (ticket.sent < brake.cut_at and not self._by_race):
            return
        brake.good()
        unfelt = self._by_race and not brake.is_used()
        if now >= brake.not_before and (brake.size >= self._released_at or unfelt):
            self.brake = None

    def slow(self, outcome: Overloaded, sent: float, in_flight: int, now: float) -> None:
        """Slow down: the namespace's quotas or webhooks, not the server, are overloaded."""
        policy = self._policy
        raced = outcome.scope == "quota"
        brake = self.brake
        if brake is None or (self._by_race and not raced):
            brake = self._put_on(in_flight if raced else 0, by_race=raced)
        brake.in_flight = in_flight
        base, cut = (policy.race_base, None) if raced else (policy.brake_base, policy.overload_cut)
        brake.bad(sent, now, outcome.retry_after, base, cut=cut)

    def start_slowly(self) -> None:
        """Begin with one create in flight, since what is known is old."""
        self._put_on(0, by_race=False).size = 1.0

    def _put_on(self, size: int, *, by_race: bool) -> Window:
        """Put on a brake of at least a new window's size; it is released when it has grown to that size again."""
        self._by_race = by_race
        policy, before = self._policy, self.brake
        made = self.brake = Window(policy, self._rng)
        made.size = self._released_at = float(min(policy.overload_max, max(policy.overload_start, size)))
        if before is not None:
            made.not_before = before.not_before
        return made

    def next_open(self, now: float) -> float:
        """Return when the brake's pause ends; or infinity."""
        if self.brake is not None and self.brake.not_before > now:
            return self.brake.not_before
        return FOREVER

    def is_over(self, now: float) -> bool:
        """Say whether the brake's pause has ended."""
        return self.brake is not None and now >= self.brake.not_before

"""What all namespaces of a controller share: effects, overload windows, the alarm clock, the learned settle time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from backoff_ctrl.engine.facts.living import TRAILS_MAX
from backoff_ctrl.engine.gangs.gang import Effect

from .backoff import full_jitter
from .overload import Window, Woken
from .policy import Policy

_HALF_LIFE = 10.0  # seconds: at 150 creates/s 1 wake in 900 is too early; at 10/s, 100 creates forget a busy time
_BUSY = 0.4  # the settle time is at least this share of the answer time beyond _PROMPT; docs/decisions/news.md
_BUSY_MAX = 0.04  # seconds, the most by that rule: slower answers may be due to a webhook, which delays no cache
_PROMPT = 0.005  # seconds: a server that answers within this is not busy, and its cache is up to date
_SHORTEST = 0.001  # seconds: where learning starts if the policy says 0; every answer counts as at least this slow
_RECOUNT_LAG = 1.5  # mean answer times for which a recount may lack a create, where the ends of pods are not reported
_ANSWERS = 16  # answers in the moving mean of answer times


@dataclass(slots=True, eq=False)
class Shared:
    """Policy, randomness, effects, overload windows, the learned settle time and the alarm clock."""

    policy: Policy
    rng: random.Random
    wake: Callable[[Woken, float], None]
    settle_time: float
    touch: Callable[[Any], None]  # call it with a handler that a reader has ``seen``, when ``advance`` changes it
    effects: list[Effect] = field(default_factory=list)
    flows: dict[str, Window] = field(default_factory=dict)
    contended: dict[Window, None] = field(default_factory=dict)
    blocked: dict[str, None] = field(default_factory=dict)  # namespaces where a block began, until ``take_blocked``
    lengthened_at: float = float("-inf")  # when the settle time grew last
    now: float = float("-inf")  # the latest time of any call
    answer_time: float = 0.0  # recent mean in seconds, over creates in namespaces that wait for news; 0: no mean
    trailing: float = 0.0  # the settle time as a multiple of ``answer_time``, learned at ``learned_at``
    learned_at: float = 0.0

    def clock(self, now: float) -> float:
        """Move time on, never back; return what time it is."""
        self.now = max(self.now, now)
        return self.now

    def flow(self, name: str) -> Window:
        """Return the overload window of a flow; the first time, make it."""
        window = self.flows.get(name)
        if window is None:
            window = self.flows[name] = Window(self.policy, self.rng)
        return window

    @property
    def recount_lag(self) -> float:
        """How long after its 201 a create may be missed by the quota controller's recount, in seconds."""
        return min(TRAILS_MAX, _RECOUNT_LAG * self.answer_time)

    def settle_shorter(self, took: float, now: float) -> None:
        """Learn that the server had seen the latest change in time, and that it ``took`` so many seconds to answer.

        What a busy moment taught is forgotten, half of it in ten seconds. The settle time follows the server's speed
        at once: its cache trails by about as long as its answers take, and a quiet minute after a busy one must not
        pay for that.
        """
        answer_time = self._answers(took, now)
        self.trailing *= 0.5 ** ((now - self.learned_at) / _HALF_LIFE)
        self.learned_at = now
        least = max(self.policy.settle_time, min(_BUSY_MAX, _BUSY * (answer_time - _PROMPT)))
        self.settle_time = min(self.policy.settle_max, max(least, self.trailing * answer_time))

    def settle_longer(self, sent: float, now: float) -> None:
        """Learn that the server had not seen the latest change yet.

        This counts once for all creates in flight: one slow moment of the server refuses many of them.
        """
        if sent >= self.lengthened_at:
            self.lengthened_at = now
            answer_time = self._answers(now - sent, now)
            self.settle_time = min(self.policy.settle_max, max(self.settle_time * 1.5, _SHORTEST))
            self.trailing = self.settle_time / answer_time
            self.learned_at = now

    def resend_after(self) -> float:
        """Return how many seconds a create waits after a refusal by a state older than ours."""
        return self.settle_time + full_jitter(0, self.settle_time, self.policy.cap, self.rng)

    def _answers(self, took: float, now: float) -> float:
        """Add an answer's time to the mean, and return the mean."""
        took = max(took, _SHORTEST)
        if self.answer_time:
            self.answer_time += (took - self.answer_time) / _ANSWERS
        else:
            self.answer_time = took
            if self.settle_time > self.policy.settle_time:  # remembered from an earlier process
                self.trailing = self.settle_time / took
                self.learned_at = now
        return self.answer_time

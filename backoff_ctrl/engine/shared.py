"""What all namespaces of a controller share: effects, overload windows, the alarm clock, the learned settle time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .backoff import full_jitter
from .living import TRAILS_MAX
from .overload import Window

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from .policy import Policy
    from .tickets import Refusal, Ticket

_HALF_LIFE = 10.0  # seconds: at 150 creates/s 1 wake in 900 is in vain, and 100 creates at 10/s forget a busy time
_BUSY = 0.4  # the settle time is at least this share of what answers take beyond _PROMPT; docs/decisions/news.md
_BUSY_MAX = 0.04  # seconds, at most: slower answers may be due to a webhook, which makes no cache trail
_PROMPT = 0.005  # seconds: a server that answers within this has no backlog, nor has its cache
_SHORTEST = 0.001  # seconds: where learning starts if the policy says 0; every answer counts as at least this slow
_RECOUNT_LAG = 1.5  # mean answer times by which a recount may trail creates, where the ends of pods are not reported
_ANSWERS = 16  # answers in the moving mean of answer times


class Alarmed(Protocol):
    """Anything the alarm clock wakes: its ``advance`` is due at ``wake_at``."""

    wake_at: float

    def advance(self, now: float) -> None:
        """Do all that is due by ``now``."""


@dataclass(slots=True, eq=False)
class Shared:
    """Policy, randomness, effects, overload windows, the learned settle time and the alarm clock."""

    policy: Policy
    rng: random.Random
    wake: Callable[[Alarmed, float], None]
    settle_time: float
    effects: list[Ticket | Refusal] = field(default_factory=list)
    flows: dict[str, Window] = field(default_factory=dict)
    contended: dict[Window, None] = field(default_factory=dict)
    blocked: dict[str, None] = field(default_factory=dict)  # namespaces where a block began, until ``take_blocked``
    lengthened_at: float = float("-inf")  # when the settle time grew last
    answer_time: float = 0.0  # recent mean, in seconds, of creates where others wait for news; 0: none so far
    trailing: float = 0.0  # the settle time as a multiple of that, as of ``learned_at``
    learned_at: float = 0.0

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

        What a busy moment taught is forgotten again, half of it in ten seconds. But the settle time follows the
        server's speed at once: its cache trails by about as much as its answers take, and a quick minute after a slow
        one must not wait.
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
        """Return how many seconds a create waits that was refused by a state older than ours."""
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

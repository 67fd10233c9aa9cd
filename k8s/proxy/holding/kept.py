"""Creates whose callers hung up after they were sent, or were told that the outcome is unknown.

The next identical request of the same credential goes on with such a create, instead of making a second object.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.answers.rejections import Lane

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable

    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.naming import Named
    from backoff_ctrl.k8s.gate.aio import LoopDriver

KEPT_MAX: Final = 10_000
ANSWER_MAX: Final = 65_536
"""Bytes of an answer that is kept; an object with a longer one is looked up."""


@dataclass(slots=True, eq=False)
class Kept:
    """A create that is being driven by ``task``; once that has ended, its success or the name that may be stored."""

    task: asyncio.Task[None]
    answer: Answer | None = None
    named: Named | None = None

    def note(self, driver: LoopDriver, *, sent: bool, resumed: bool) -> bool:
        """Note how the create ended; say whether there is something to keep. ``resumed``: it was kept before."""
        answer, named = driver.answer, driver.machine.named
        created = answer is not None and answer.ok
        if created and answer is not None and len(answer.body) <= ANSWER_MAX:
            self.answer = answer
        elif named is not None and named.name and (created or resumed or (sent and _may_be_stored(driver))):
            self.named = replace(named, given={}, keyed=True)  # keyed: it is looked up before it is sent
        return self.answer is not None or self.named is not None


def _may_be_stored(driver: LoopDriver) -> bool:
    rejection = driver.machine.rejection
    return driver.in_doubt or (rejection is not None and rejection.lane is Lane.UNKNOWN_OUTCOME)


class KeptCreates:
    """The creates that are kept: while they are under way, and for ``ttl`` seconds after their end."""

    def __init__(self, ttl: float) -> None:
        """Keep none yet."""
        self._ttl = ttl
        self._kept: dict[Hashable, deque[Kept]] = {}
        self._ends: deque[tuple[float, Hashable, Kept]] = deque()

    def __len__(self) -> int:
        """Return how many are kept."""
        return sum(len(each) for each in self._kept.values())

    def keep(self, call: Hashable, kept: Kept) -> None:
        """Keep a create for the next identical call."""
        self._kept.setdefault(call, deque()).append(kept)

    def ended(self, call: Hashable, kept: Kept, now: float) -> None:
        """Note that a kept create has ended: from now on its time runs."""
        self._expire(now)
        self._ends.append((now + self._ttl, call, kept))
        if len(self._ends) > KEPT_MAX:
            self.drop(*self._ends.popleft()[1:])

    def take(self, call: Hashable, now: float) -> Kept | None:
        """Return the oldest create that is kept for this call; it is kept no longer."""
        self._expire(now)
        kept = self._kept.get(call)
        if not kept:
            return None
        found = kept[0]
        self.drop(call, found)
        return found

    def drop(self, call: Hashable, kept: Kept) -> None:
        """Keep a create no longer."""
        of_call = self._kept.get(call)
        if of_call is not None and kept in of_call:
            of_call.remove(kept)
            if not of_call:
                del self._kept[call]

    def _expire(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            self.drop(*self._ends.popleft()[1:])

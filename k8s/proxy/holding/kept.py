"""Creates whose callers hung up after they were sent, or were told that the outcome is unknown.

The next identical request of the same credential goes on with such a create, instead of making a second object.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.answers.rejections import Lane

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable

    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.naming import Named
    from backoff_ctrl.k8s.gate.aio import LoopDriver

KEPT_MAX: Final = 10_000
ANSWER_MAX: Final = 65_536
"""Bytes of an answer that is kept; an object with a longer one is looked up."""


@dataclass(slots=True, eq=False)
class Kept:
    """A create that is under way in ``task``; once that has ended, its success or the name that may be stored."""

    task: asyncio.Task[Any]
    answer: Answer | None = None
    named: Named | None = None

    def note(self, driver: LoopDriver, *, sent: bool, resumed: bool) -> None:
        """Note how the create ended. ``resumed``: it was kept before."""
        answer, named = driver.answer, driver.machine.named
        created = answer is not None and answer.ok
        stored = created or resumed or (sent and _may_be_stored(driver))
        if stored and not self.note_answer(answer):
            self.note_name(named)

    def note_name(self, named: Named | None) -> None:
        """Keep a name that may be stored."""
        if named is not None and named.name:
            self.named = replace(named, given={}, keyed=True)  # keyed: it is looked up before it is sent

    def note_answer(self, answer: Answer | None) -> bool:
        """Keep a success, unless it is long; say whether it is kept."""
        if answer is None or not answer.ok or len(answer.body) > ANSWER_MAX:
            return False
        self.answer = answer
        return True


def _may_be_stored(driver: LoopDriver) -> bool:
    rejection = driver.machine.rejection
    return driver.in_doubt or (rejection is not None and rejection.lane is Lane.UNKNOWN_OUTCOME)


class KeptCreates:
    """The creates that are kept: while they are under way, and for ``ttl`` seconds after their end."""

    def __init__(self, ttl: float, now: Callable[[], float]) -> None:
        """Keep none yet. ``now`` returns the time."""
        self._ttl = ttl
        self._now = now
        self._kept: dict[Hashable, deque[Kept]] = {}
        self._ends: deque[tuple[float, Hashable, Kept]] = deque()

    def __len__(self) -> int:
        """Return how many are kept."""
        return sum(len(each) for each in self._kept.values())

    def keep(self, call: Hashable, kept: Kept, note: Callable[[], object]) -> None:
        """Keep a create for the next identical call. ``note`` is called at its end, and notes what there is to keep."""

        def over(_: object = None) -> None:
            note()
            self._ended(call, kept)

        self._kept.setdefault(call, deque()).append(kept)
        if kept.task.done():
            over()
        else:
            kept.task.add_done_callback(over)

    def take(self, call: Hashable) -> Kept | None:
        """Return the oldest create that is kept for this call; it is kept no longer."""
        self._expire()
        kept = self._kept.get(call)
        if not kept:
            return None
        found = kept[0]
        self._drop(call, found)
        return found

    def keep_ended(self, call: Hashable, kept: Kept) -> None:
        """Keep a create whose answer was written, but can't have been read."""
        self._kept.setdefault(call, deque()).append(kept)
        self._ended(call, kept)

    def give_back(self, call: Hashable, kept: Kept) -> None:
        """Keep a create further: who took it has not waited for its end."""
        self._kept.setdefault(call, deque()).appendleft(kept)
        if kept.task.done():
            self._ended(call, kept)

    def _ended(self, call: Hashable, kept: Kept) -> None:
        """From now on its time runs, if there is anything to keep."""
        self._expire()
        if kept.answer is None and kept.named is None:
            self._drop(call, kept)
            return
        self._ends.append((self._now() + self._ttl, call, kept))
        if len(self._ends) > KEPT_MAX:
            self._drop(*self._ends.popleft()[1:])

    def _drop(self, call: Hashable, kept: Kept) -> None:
        of_call = self._kept.get(call)
        if of_call is not None and kept in of_call:
            of_call.remove(kept)
            if not of_call:
                del self._kept[call]

    def _expire(self) -> None:
        while self._ends and self._ends[0][0] <= self._now():
            self._drop(*self._ends.popleft()[1:])

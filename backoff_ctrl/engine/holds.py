"""What our creates hold at one quota from their 201 until ``used`` contains them: never dropped, never counted twice.

The charge of a create may be observed before or after its answer. Each observed rise of ``used`` adds credit; the
credit confirms answered holds, oldest first, and a confirmed hold ends. Credit never exceeds what is held, so the
charges of other clients confirm no more than what we have in flight. A fall adds no credit, nor does a rise by which a
recount corrects an earlier one. As long as only we create, holds end by no more than ``used`` rose, so ``used + held``
is never below the truth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from .ceilings import Ceiling, Charges
from .living import TRAILS_MAX, Life

Answered: TypeAlias = "tuple[float, Charges, Life | None, float]"
"""When its 201 came, what it holds, its life, and how many times as long as others it lasts."""


class Holds:
    """The answered holds of one quota, oldest first, and those that ended within the last ``TRAILS_MAX`` seconds."""

    __slots__ = ("_recent", "answered")

    def __init__(self) -> None:
        """Start without holds."""
        self.answered: deque[Answered] = deque()
        self._recent: deque[Answered] = deque()

    def add(self, charges: Charges, now: float, life: Life | None = None, times: float = 1) -> bool:
        """Hold the charges of a create that was answered 201 at ``now``; say whether any hold ended.

        It ends by time alone ``times`` as late as others.
        """
        self.answered.append((now, charges, life, times))
        return self.confirm()

    def confirm(self) -> bool:
        """End the holds that the credit covers, oldest first; say whether any ended."""
        answered = self.answered
        ended = False
        while answered:
            charges = answered[0][1]
            for ceiling, amount in charges:
                if ceiling.credit < amount:
                    return ended
            for ceiling, amount in charges:
                ceiling.credit -= amount
                ceiling.held -= amount
                ceiling.room += amount
            self._end()
            ended = True
            # Less is held now, and credit may not exceed that.
            for ceiling, _ in charges:
                ceiling.credit = min(ceiling.credit, ceiling.held)
        return ended

    def end_old(self, now: float, lasting: float) -> bool:
        """End holds by time: ``used`` contains what was answered ``lasting`` seconds ago. Say whether any ended."""
        answered = self.answered
        ended = False
        while answered and self.oldest_ends(lasting) <= now:
            for ceiling, amount in answered[0][1]:
                ceiling.release(amount)
            self._end()
            ended = True
        return ended

    def oldest_ends(self, lasting: float) -> float:
        """Return when the oldest hold, which there is, ends by time. Those behind it end no earlier."""
        at, _, _, times = self.answered[0]
        return at + times * lasting

    def _end(self) -> None:
        """Move the oldest hold to those that ended recently; from now on its life is counted instead."""
        at, charges, life, _ = ended = self.answered.popleft()
        if life is not None:
            life.count(charges)
        recent = self._recent
        recent.append(ended)
        while recent[0][0] < at - TRAILS_MAX:
            recent.popleft()

    def ended_since(self, ceiling: Ceiling, since: float) -> Iterator[tuple[float, int]]:
        """Yield (answered, amount) of each ended hold of a ceiling that was answered after ``since``, newest first.

        Creates whose life is known are left out: nobody doubts those.
        """
        for at, charges, life, _ in reversed(self._recent):
            if at <= since:
                return
            if life is not None and life.known:
                continue
            for charged, amount in charges:
                if charged is ceiling:
                    yield at, amount

    def hand_over(self, before: float) -> None:
        """Without a watch, count the holds answered before then as used: what the server said later contains them."""
        while self.answered and self.answered[0][0] < before:
            self._use_oldest()

    def use_old(self, now: float, lasting: float) -> None:
        """Without a watch, count holds answered ``lasting`` seconds ago as used: nothing else will end them."""
        while self.answered and self.answered[0][0] + lasting <= now:
            self._use_oldest()

    def _use_oldest(self) -> None:
        """Turn the oldest hold into ``used``. The rise that shows its charge later confirms no other hold."""
        for ceiling, amount in self.answered.popleft()[1]:
            ceiling.held -= amount
            ceiling.seen += amount
            ceiling.credit = min(ceiling.credit, ceiling.held)

"""What our admissions reserve at one quota after their 201: handed over to ``used``, never dropped or counted twice.

The charge of a create may be seen before or after its answer. Each observed rise of ``used`` is credit; answered
holds claim it, oldest first, and end. Credit never exceeds what is held, so that strangers' charges confirm no
more than what is in flight; a fall gives none, nor does a rise by which a recount makes good for an earlier one that
missed charges. For our own creates alone, confirmed <= risen always holds, hence ``used + held`` is never below the
truth.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .ceilings import Ceiling
    from .living import Life

Charges: TypeAlias = "tuple[tuple[Ceiling, int], ...]"
Answered: TypeAlias = "tuple[float, Charges, Life | None]"

TRAILS_MAX: Final = 1.0  # seconds after its 201: no recount lacks a create for longer


class Holds:
    """The answered holds of one quota, oldest first, and those that ended a moment ago."""

    __slots__ = ("_recent", "answered")

    def __init__(self) -> None:
        """Hold nothing."""
        self.answered: deque[Answered] = deque()
        self._recent: deque[Answered] = deque()

    def add(self, charges: Charges, now: float, life: Life | None = None) -> bool:
        """Keep the hold of a create whose 201 came at ``now`` until its charge is seen; say whether any ended."""
        self.answered.append((now, charges, life))
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
            # A hold that ends lowers what credit may be.
            for ceiling, _ in charges:
                ceiling.credit = min(ceiling.credit, ceiling.held)
        return ended

    def end_old(self, now: float, lasting: float) -> bool:
        """End the holds answered ``lasting`` ago: their charge is in ``used`` by now. Say whether any ended."""
        answered = self.answered
        ended = False
        while answered and answered[0][0] + lasting <= now:  # the very sum that the alarm is set to
            for ceiling, amount in answered[0][1]:
                ceiling.release(amount)
            self._end()
            ended = True
        return ended

    def _end(self) -> None:
        """Take the oldest hold out, and remember it for a moment; from now on its life stands for it."""
        at, charges, life = ended = self.answered.popleft()
        if life is not None:
            life.count(charges)
        recent = self._recent
        recent.append(ended)
        while recent[0][0] < at - TRAILS_MAX:
            recent.popleft()

    def ended_since(self, ceiling: Ceiling, since: float) -> Iterator[tuple[float, int]]:
        """Go through the ended holds of a ceiling that were answered after ``since``, newest first: when, how much.

        Without those known to live, or to have ended: of them there is no doubt.
        """
        for at, charges, life in reversed(self._recent):
            if at <= since:
                return
            if life is not None and life.known:
                continue
            for charged, amount in charges:
                if charged is ceiling:
                    yield at, amount

    def use_old(self, now: float, lasting: float) -> None:
        """Count the holds answered ``lasting`` ago as used, where no newer fact contains them: no watch ends them."""
        answered = self.answered
        while answered and answered[0][0] + lasting <= now:
            at, charges, _ = answered.popleft()
            for ceiling, amount in charges:
                ceiling.release(amount)
                if ceiling.answered <= at:
                    ceiling.charge(amount)

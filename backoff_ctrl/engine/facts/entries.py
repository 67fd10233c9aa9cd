"""What facts may not show yet, or show of which it is not known whose it is: one entry each, at one quota.

Two watches report a create, in either order: that of the quota its charge and its release, that of the pods its begin
and its end. Each piece of news is an entry until the other watch explains it, or until its lifetime ends:

| entry | what it is | lifetime | then |
|---|---|---|---|
| pending | was answered 201, or appeared; perhaps not in ``used`` | ``Policy.answered_hold`` | ``used`` has it |
| rise | ``used`` rose, and no pending create explains it | ``Policy.ends_lag`` | a stranger's |
| left | ended, and is perhaps still in ``used`` | ``LEFT_FOR`` | its fall was missed |
| fall | ``used`` fell, and no end explains it | ``Policy.ends_lag`` | a stranger's: room |
| fresh | room that the server does not see yet | the settle time | room |
| lingers | ended, but the next recount may have it | ``LINGERS_FOR`` | no recount has it |

Beside gangs a create is pending ``BESIDE_GANGS`` times as long. While the pods' watch is lost, rises and falls last
until it is back, at most for ``LOST_FOR``.

**Give only what is surely free; take from gangs only what they surely lost.** Waiting is what makes a guess safe, an
explanation only ends the wait early: a wrong guess must err towards waiting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from .ceilings import Ceiling, Charges

BESIDE_GANGS: Final = 10
"""How many times as long as others a create is pending that was answered while a gang lacked members, or a member: if
it ended before its charge is shown, it would cost the gang its room."""
LEFT_FOR: Final = 30.0
"""Seconds from an end to its fall: a quota controller that is held to few requests a second may be that late."""
LOST_FOR: Final = 60.0
"""Seconds after the loss of the pods' watch until falls are doubted as long as usual: others must not wait for ever."""
LINGERS_FOR: Final = 0.2
"""Seconds after an end: a controller that may write 20 times a second has recounted by then."""
APPEARS_IN: Final = 0.5
"""Seconds from a charge to the event of its member: an older rise may be another's."""
MISSED_FOR: Final = 1.0
"""Seconds after its 201 for which a recount may miss a create, or after an end for which it may have one."""
RISES_MAX: Final = 1024
"""Rises kept for each quota; the oldest go first."""

Amounts: TypeAlias = dict[Ceiling, int]


class Lives(Protocol):
    """A create whose end will be reported; ``known``: it is known whether it lives."""

    known: bool

    def count(self, quota: Any, charges: Charges) -> None:
        """Count what a quota charges it."""


class Claims(Protocol):
    """A gang that reserves the room of a member again when that ends."""

    def expect(self, ceiling: Ceiling, amount: int) -> None:
        """Note that so much more (or less) of it is still charged to members that have ended."""


@dataclass(slots=True, eq=False)
class Pending:
    """A create that was answered ``at``; ``facts``: how many states of quotas had been seen when it was sent.

    A rise that was seen before that is not its charge. ``life``: counted once ``used`` has it. It ends by time
    ``times`` as late as others. Of a ``member`` that appeared, ``used`` may have the charge already.
    """

    at: float
    charges: Charges
    facts: int
    life: Lives | None = None
    times: int = 1
    member: bool = False


@dataclass(slots=True, eq=False)
class Rise:
    """What state number ``facts`` rose by, seen ``at``, as far as it is no known create's."""

    at: float
    facts: int
    amounts: Amounts

    def take(self, ceiling: Ceiling, most: int) -> int:
        """Let up to so much of it be the charge of a known create; return how much that is."""
        taken = min(most, self.amounts.get(ceiling, 0))
        if taken:
            _take(self.amounts, ceiling, taken)
        return taken


@dataclass(slots=True, eq=False)
class Left:
    """One that ended ``at``, or several: then a fall may show a part of them (``partly``).

    ``back`` is the part that is reserved again for its ``gang``: counted twice until the fall. ``passed``: one that
    ended later has fallen, so that its own fall was perhaps missed.
    """

    at: float
    amounts: Amounts
    gang: Claims | None = None
    back: Amounts = field(default_factory=dict)
    partly: bool = False
    passed: bool = False

    def take(self, amounts: Amounts) -> Amounts:
        """Note that so much of it has fallen; return how much of that was reserved again, which counts once now."""
        once = {}
        for ceiling, amount in amounts.items():
            _take(self.amounts, ceiling, amount)
            if back := min(amount, self.back.get(ceiling, 0)):
                once[ceiling] = back
        self.give_up(once)
        return once

    def give_up(self, amounts: Amounts) -> None:
        """Note that so much of it is reserved no more."""
        gang = self.gang
        if gang is not None:
            for ceiling, amount in amounts.items():
                _take(self.back, ceiling, amount)
                ceiling.count_twice(-amount)
                gang.expect(ceiling, -amount)

    def give_up_all(self) -> None:
        """Note that none of it is reserved any more."""
        self.give_up(dict(self.back))


@dataclass(slots=True, eq=False)
class Fall:
    """A fall that no end explains. ``partly``: several may have ended, each of which a part of it explains."""

    at: float
    amounts: Amounts
    partly: bool = False

    def shows(self, amounts: Amounts) -> bool:
        """Say whether the end of one that was charged this much explains it, or a part of it.

        The rest then is the fall of others: it has all of these ceilings, or lacks them all.
        """
        if not covers(self.amounts, amounts, partly=self.partly):
            return False
        return self.partly or len({self.amounts[ceiling] > amount for ceiling, amount in amounts.items()}) == 1

    def take(self, amounts: Amounts) -> Amounts:
        """Explain so much of it, or as much as there is; return how much that was."""
        taken = {c: min(amount, self.amounts[c]) for c, amount in amounts.items() if c in self.amounts}
        for ceiling, amount in taken.items():
            _take(self.amounts, ceiling, amount)
        return taken


def covers(amounts: Amounts, asked: Amounts, *, partly: bool = False) -> bool:
    """Say whether the amounts have all of what is asked; ``partly``: any of it."""
    if partly:
        return any(amounts.get(ceiling) for ceiling in asked)
    return bool(asked) and all(amounts.get(ceiling, 0) >= amount for ceiling, amount in asked.items())


def _take(amounts: Amounts, ceiling: Ceiling, amount: int) -> None:
    rest = amounts.get(ceiling, 0) - amount
    if rest:
        amounts[ceiling] = rest
    else:
        amounts.pop(ceiling, None)

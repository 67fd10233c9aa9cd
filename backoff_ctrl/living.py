"""Creates of ours that are known to live: no count of what is used can be lower, whatever a recount says.

The quota controller counts what its own cache holds, and in a busy second that lacks what was created a moment ago.
Where the ends of what we create are told, ``used`` is at least the charges of what has not ended: what a quota says
below that is *doubt*, no room. Told of every end, we are wrong only where something is charged less than we believe
or is given back before its end. Then the doubt does not go away: after a second of it nothing is doubted any more,
and what lives is counted anew from the next create on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from .ceilings import Ceiling
    from .holds import Charges

FOREVER: Final = float("inf")
LIVES_MAX: Final = 50_000  # of one namespace; what is created beyond is not counted, so that less is doubted
ENDED_MAX: Final = 1024  # ends that came before their answer: more do not come between a create and its answer
LASTING: Final = 1.0  # seconds: no recount lacks a create for longer


class Life:
    """One create of ours, from its 201 to its end. It counts once its charge is handed over to ``used``."""

    __slots__ = ("_charged", "_living", "_over")

    def __init__(self, living: Living) -> None:
        """Begin; nothing is handed over yet."""
        self._living = living
        self._charged: Charges = ()
        self._over = False

    def count(self, charges: Charges) -> None:
        """Count what one quota charges it, now that no hold stands for it any more."""
        if self._over:
            return
        self._charged += charges
        for ceiling, amount in charges:
            ceiling.live(amount)
            if ceiling.doubt:
                self._living.doubtful = True

    def end(self) -> bool:
        """Count it no more; say whether that leaves less to doubt."""
        self._over = True
        less = False
        for ceiling, amount in self._charged:
            less = ceiling.live(-amount) or less
        return less


class Living:
    """The creates of one namespace that live, by the name that their ends will be told by.

    ``doubtful`` asks for a ``look``; ``look_at`` is when the next one is due anyway.
    """

    __slots__ = ("_ended", "_lives", "doubtful", "look_at", "told")

    def __init__(self, *, told: bool) -> None:
        """Begin with none."""
        self.told = told
        self.doubtful = False
        self.look_at = FOREVER
        self._lives: dict[str, Life] = {}
        self._ended: dict[str, None] = {}

    def follow(self, *, told: bool) -> None:
        """Take in that every end from here on will be told, or that some may be missed."""
        self.told = told
        self._forget()

    def begin(self, stored: str) -> Life | None:
        """Take in a create that was answered; None: its end was told already, or will not be."""
        if not self.told or not stored or stored in self._ended or len(self._lives) >= LIVES_MAX:
            return None
        life = self._lives[stored] = Life(self)
        return life

    def end(self, stored: str) -> bool:
        """Take in an end; say whether it leaves less to doubt."""
        life = self._lives.pop(stored, None)
        if life is not None:
            return life.end()
        self._ended[stored] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return False

    def look(self, ceilings: Collection[Ceiling], now: float) -> bool:
        """Let a doubt go that has lasted; say whether one did."""
        self.doubtful = False
        lasted = now >= self.look_at and any(ceiling.least_doubt > 0 for ceiling in ceilings)
        if lasted:
            self._forget()
        if now >= self.look_at or self.look_at == FOREVER:
            self.look_at = now + LASTING if any(ceiling.doubt for ceiling in ceilings) else FOREVER
            for ceiling in ceilings:
                ceiling.least_doubt = ceiling.doubt
        return lasted

    def _forget(self) -> None:
        for life in self._lives.values():
            life.end()
        self._lives.clear()

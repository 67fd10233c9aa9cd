"""Creates of ours that are known to live: no count of what is used can be lower, whatever a recount says.

The quota controller counts what its own cache holds, and in a busy second that lacks what was created a moment ago.
Where the ends of what we create are told, ``used`` is at least the charges of what has not ended: what a quota says
below that is *doubt*, no room. We are wrong where something is charged less than we believe, or is given back before
its end is told. That shows: no recount lacks a create for more than a second, so none is lower than the least that
lived within the last one. Then nothing is taken to live any more but what is created from there on. In a busy namespace
it may not show, since what comes and goes hides it: after half a minute of doubts the old are taken to live no more.

What ends while a recount is in doubt may be what that lacked: the next one finds it, if it has not heard of the end. So
the young *linger* until there is a next one, or for a moment where nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .backoff import FOREVER
from .holds import TRAILS_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .ceilings import Ceiling
    from .holds import Charges

LIVES_MAX: Final = 50_000  # of one namespace; what is created beyond is not counted, so that less is doubted
ENDED_MAX: Final = 1024  # ends that came before their answer: more do not come between a create and its answer
DOUBTED_MAX: Final = 30.0  # seconds of doubts that come and go
OLD: Final = 10.0  # seconds since its 201: what is younger may well be what the doubts are about
LINGERS_MAX: Final = 0.2  # seconds after an end: a controller that may write 20 times a second has come round again
SHORT: Final = 0.05  # seconds of a life: of what lived for less, the controller hears of both ends at once


class Life:
    """One create of ours, from its 201 to its end. It counts once its charge is handed over to ``used``."""

    __slots__ = ("_charged", "_living", "_over", "began", "known")

    def __init__(self, living: Living, now: float) -> None:
        """Begin; nothing is handed over yet."""
        self.began = now
        self._living = living
        self._charged: Charges = ()
        self._over = False
        self.known = True  # to live, or to have ended

    def count(self, charges: Charges) -> None:
        """Count what one quota charges it, now that no hold stands for it any more."""
        if self._over or not self.known:
            return
        self._charged += charges
        for ceiling, amount in charges:
            ceiling.live(amount)
            if ceiling.doubt:
                self._living.doubtful = True

    def end(self, now: float) -> bool:
        """Count it no more, since it has ended; say whether that leaves less to doubt."""
        self._over = True
        young = SHORT < now - self.began < TRAILS_MAX
        less = False
        for ceiling, amount in self._charged:
            if young and ceiling.doubt:
                ceiling.linger(amount, now + LINGERS_MAX)
                self._living.look_at = min(self._living.look_at, ceiling.leave_at)
            else:
                less = ceiling.live(-amount) or less
        return less

    def forget(self) -> None:
        """Count it no more: whether it lives is not known."""
        self.known = False
        for ceiling, amount in self._charged:
            ceiling.live(-amount)


class Living:
    """The creates of one namespace that live, by the name that their ends will be told by.

    ``doubtful`` asks for a ``look``; ``look_at`` is when the next one is due anyway.
    """

    __slots__ = (
        "_calm_at", "_doubted", "_ended", "_lives", "_turned_at",
        "doubtful", "look_at", "told",
    )  # fmt: skip

    def __init__(self, *, told: bool) -> None:
        """Begin with none."""
        self.told = told
        self.doubtful = False
        self.look_at = FOREVER
        self._turned_at = -FOREVER
        self._calm_at = 0.0  # the last turn after a span without a doubt
        self._doubted = False  # in the present span
        self._lives: dict[str, Life] = {}
        self._ended: dict[str, None] = {}

    def follow(self, ceilings: Iterable[Ceiling], *, told: bool) -> None:
        """Take in that every end from here on will be told, or that some may be missed."""
        self.told = told
        self._forget_all(ceilings)

    def begin(self, stored: str, now: float) -> Life | None:
        """Take in a create that was answered; None: it counts already, its end was told, or it will not be."""
        lives = self._lives
        if not self.told or not stored or stored in lives or stored in self._ended or len(lives) >= LIVES_MAX:
            return None
        life = lives[stored] = Life(self, now)
        return life

    def end(self, stored: str, now: float) -> bool:
        """Take in an end; say whether it leaves less to doubt."""
        life = self._lives.pop(stored, None)
        if life is not None:
            return life.end(now)
        self._ended[stored] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return False

    def look(self, ceilings: Collection[Ceiling], now: float) -> bool:
        """Forget what lives where a quota shows that it does not, and what lingers; say whether there was such."""
        self.doubtful = False
        due = [ceiling for ceiling in ceilings if ceiling.leave_at <= now]
        for ceiling in due:
            ceiling.leave()
        if now >= self._turned_at + TRAILS_MAX:
            self._turn(ceilings, now)
        wrong = True
        if any(ceiling.belied for ceiling in ceilings):
            self._calm_at = now
            self._forget_all(ceilings)
        elif now >= self._calm_at + DOUBTED_MAX:
            self._calm_at = now
            self._forget(now - OLD)
        else:
            wrong = False
        doubted = any(ceiling.doubt for ceiling in ceilings)
        self._doubted = self._doubted or doubted
        turn_at = self._turned_at + TRAILS_MAX if doubted else FOREVER
        self.look_at = min(turn_at, *(ceiling.leave_at for ceiling in ceilings), FOREVER)
        return wrong or bool(due)

    def _turn(self, ceilings: Iterable[Ceiling], now: float) -> None:
        """Begin a new span of a second, or of as long as there was no doubt."""
        if not self._doubted or now >= self._turned_at + 2 * TRAILS_MAX:
            self._calm_at = now
        self._turned_at, self._doubted = now, False
        for ceiling in ceilings:
            ceiling.turn()

    def _forget_all(self, ceilings: Iterable[Ceiling]) -> None:
        """Forget what lives, and what lingers."""
        self._forget(FOREVER)
        for ceiling in ceilings:
            ceiling.leave()

    def _forget(self, limit: float) -> None:
        """Forget what began until then; the oldest come first."""
        for name, life in list(self._lives.items()):
            if life.began > limit:
                return
            del self._lives[name]
            life.forget()

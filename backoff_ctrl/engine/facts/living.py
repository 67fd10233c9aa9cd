"""Our creates that are known to live: ``used`` cannot be less than their charges, even if a recount says so.

The quota controller recounts from a cache of its own. In a busy second that cache lacks what was created a moment ago,
and the recount says too little. Where the ends of our creates are reported to us, we know better: ``used`` is at least
the charges of those that have not ended. What a quota says below that is *doubt*, and does not count as room.

The bound is too high where an object is charged less than we believe, or where its charge is given back before its end
is reported. This shows: no recount lacks a create for more than a second, so it is proved when ``used`` is below what
was alive all through the last second. Then all lives are forgotten, and only later creates are counted. In a busy
namespace, creates and ends may hide the error. Therefore the older lives are forgotten after half a minute of doubts.

A create that ends while a recount is in doubt may be one that this recount lacked. The next recount then adds it,
unless the controller has seen its end by then. Therefore young creates *linger*: they are counted until the next
recount, or for a moment if no recount comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.backoff import FOREVER

from .ceilings import Ceiling, Charges
from .entries import LINGERS_FOR, MISSED_FOR

if TYPE_CHECKING:
    from .quotas import Quota

LIVES_MAX: Final = 50_000  # per namespace; further creates are not counted, which makes the bound lower
ENDED_MAX: Final = 1024  # ends kept because they may come before the create's own answer; fewer come within that time
DOUBTED_MAX: Final = 30.0  # seconds with a doubt in each, after which the older lives are forgotten
OLD: Final = 10.0  # seconds since the 201: a younger create may be one that the recounts really lacked
SHORT: Final = 0.05  # seconds of life: the controller sees begin and end of a shorter one at once


class Life:
    """One of our creates, from its 201 to its end. It is counted when its hold has ended, not before."""

    __slots__ = ("_living", "_over", "began", "charged", "known")

    def __init__(self, living: Living, now: float) -> None:
        """Begin at the 201, while its holds still stand."""
        self.began = now
        self._living = living
        self.charged: tuple[tuple[Quota, Charges], ...] = ()
        self._over = False
        self.known = True  # whether we know that it lives, or that it has ended

    def count(self, quota: Quota, charges: Charges) -> None:
        """Count what one quota charges it, now that its hold there has ended."""
        if self._over or not self.known:
            return
        self.charged += ((quota, charges),)
        for ceiling, amount in charges:
            ceiling.live(amount)
            if ceiling.doubt:
                self._living.doubtful = True

    def end(self, now: float) -> bool:
        """Stop counting it, since it has ended; say whether the doubt became smaller."""
        self._over = True
        young = SHORT < now - self.began < MISSED_FOR
        less = False
        for ceiling, amount in self.meets:
            if young and ceiling.doubt:
                ceiling.linger(amount, now + LINGERS_FOR)
                self._living.look_at = min(self._living.look_at, ceiling.leave_at)
            else:
                less = ceiling.live(-amount) or less
        return less

    @property
    def meets(self) -> Iterator[tuple[Ceiling, int]]:
        """What it is charged by all quotas."""
        return (charge for _, charges in self.charged for charge in charges)

    def forget(self) -> None:
        """Stop counting it: we no longer know whether it lives."""
        self.known = False
        for ceiling, amount in self.meets:
            ceiling.live(-amount)


class Living:
    """Our living creates in one namespace, by the name under which their ends are reported.

    ``followed``: every end is reported. ``doubtful`` asks for a ``look``; ``look_at`` is when one is due in any case.
    """

    __slots__ = (
        "_calm_at",
        "_doubted",
        "_ended",
        "_lives",
        "_turned_at",
        "doubtful",
        "followed",
        "look_at",
    )  # fmt: skip

    def __init__(self, *, followed: bool) -> None:
        self.followed = followed
        self.doubtful = False
        self.look_at = FOREVER
        self._turned_at = -FOREVER
        self._calm_at = 0.0  # the last turn after a span without a doubt
        self._doubted = False  # in the present span
        self._lives: dict[str, Life] = {}
        self._ended: dict[str, None] = {}

    def follow(self, ceilings: Iterable[Ceiling], *, followed: bool) -> None:
        """Note whether every end is reported from now on. Forget all lives, since we may have missed some ends."""
        self.followed = followed
        self._forget_all(ceilings)

    def begin(self, stored: str, now: float) -> Life | None:
        """Note a create that was answered 201.

        None: it is counted already, its end was reported before its answer, or its end will not be reported.
        """
        lives = self._lives
        if not self.followed or not stored or stored in lives or stored in self._ended or len(lives) >= LIVES_MAX:
            return None
        life = lives[stored] = Life(self, now)
        return life

    def has_ended(self, stored: str) -> bool:
        """Say whether an end was reported, a moment ago, of something that was not known to live."""
        return stored in self._ended

    def charged(self, stored: str) -> tuple[tuple[Quota, Charges], ...]:
        """Return what each quota charges a create that is known to live."""
        life = self._lives.get(stored)
        return () if life is None else life.charged

    def end(self, stored: str, now: float) -> bool:
        """Note an end; say whether the doubt became smaller."""
        life = self._lives.pop(stored, None)
        if life is not None:
            return life.end(now)
        self._ended[stored] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return False

    def look(self, ceilings: Collection[Ceiling], now: float) -> bool:
        """Forget lives that a quota contradicts, and what has lingered long enough; say whether there were any."""
        self.doubtful = False
        due = [ceiling for ceiling in ceilings if ceiling.leave_at <= now]
        for ceiling in due:
            ceiling.stop_lingering()
        if now >= self._turned_at + MISSED_FOR:
            self._turn(ceilings, now)
        wrong = True
        if any(ceiling.overcounted for ceiling in ceilings):
            self._calm_at = now
            self._forget_all(ceilings)
        elif now >= self._calm_at + DOUBTED_MAX:
            self._calm_at = now
            self._forget(now - OLD)
        else:
            wrong = False
        doubted = any(ceiling.doubt for ceiling in ceilings)
        self._doubted = self._doubted or doubted
        turn_at = self._turned_at + MISSED_FOR if doubted else FOREVER
        self.look_at = min(turn_at, *(ceiling.leave_at for ceiling in ceilings), FOREVER)
        return wrong or bool(due)

    def _turn(self, ceilings: Iterable[Ceiling], now: float) -> None:
        """Begin a new span. It lasts a second, or longer if no count is in doubt."""
        if not self._doubted or now >= self._turned_at + 2 * MISSED_FOR:
            self._calm_at = now
        self._turned_at, self._doubted = now, False
        for ceiling in ceilings:
            ceiling.turn()

    def _forget_all(self, ceilings: Iterable[Ceiling]) -> None:
        self._forget(FOREVER)
        for ceiling in ceilings:
            ceiling.stop_lingering()

    def _forget(self, limit: float) -> None:
        """Forget the lives that began by ``limit``; they are stored oldest first."""
        for name, life in list(self._lives.items()):
            if life.began > limit:
                return
            del self._lives[name]
            life.forget()

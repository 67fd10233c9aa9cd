"""What is known of each quota, from which fact, and from when. A fact teaches only what it proves.

A *ceiling* is one (quota, resource): ``limited`` and ``used`` as last heard, *learned* from a rejection or
*observed* from the quota object. Headroom is a hint with an age, never a proof: the server decides.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .backoff import FOREVER
from .demand import Selector
from .holds import Holds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .blocks import Block
    from .tickets import Rejected, Request

HISTORY: Final = 16  # observed states kept to tell a stale refusal; at 200 changes/s that is 80 ms
STALE_FOR: Final = 1.0  # seconds: a state replaced longer ago than this is no server's present any more
NEVER_HEARD: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class ObservedQuota:
    """A quota object as read or watched: nano-units by resource.

    ``spec`` is what was asked for (settles never-fits), ``hard`` what is enforced now, ``used`` what is charged;
    ``selector`` says which scope classes it applies to. ``recounted`` are the resources whose ``used`` was changed
    last by the quota controller's recount rather than by a charge, where the object tells.
    """

    spec: Mapping[str, int]
    hard: Mapping[str, int]
    used: Mapping[str, int]
    selector: Selector = field(default_factory=Selector)
    recounted: frozenset[str] = frozenset()


class Ceiling:
    """One resource of one quota. All amounts are nano-units.

    ``room`` = limited - used - unsettled - held; a request fits when its amount <= room. ``unsettled`` is room that
    was heard of less than the settle time ago. ``credit`` is rise of ``used`` that no hold has claimed yet.
    ``used`` is what the others leave of ``limited``: a hold that ends while ``room`` stays has become used. What a
    fact says of it below what of ours is ``living`` or ``lingers`` is ``doubt``, and no room.
    """

    __slots__ = (
        "answered",
        "block", "credit", "doubt", "epoch", "heard", "held", "keep_best", "keep_grown", "keeper", "leave_at",
        "limited", "lingers", "living", "lowest", "lowest_before", "quota", "resource", "room", "seen", "unsettled",
    )  # fmt: skip

    def __init__(self, quota: Quota, resource: str, limited: int, used: int) -> None:
        """Start from one fact."""
        self.quota = quota
        self.resource = resource
        self.held = 0
        self.credit = 0
        self.living = 0  # charges of our creates that live and are handed over
        self.lingers = 0  # of ours that has ended since, where the last recount may have lacked it
        self.leave_at = FOREVER
        self.doubt = 0
        self.lowest = 0  # that was living since the last turn
        self.lowest_before = 0  # between that and the turn before
        self.epoch = 0
        self.block: Block | None = None
        self.keeper: Request | None = None
        self.keep_best = 0
        self.keep_grown = NEVER_HEARD
        self.answered = NEVER_HEARD  # when the newest fact about it was received
        self.seen = used  # as last observed: a rejection's amounts do not touch it, so that no rise is missed
        self.believe(limited, used)

    limited: int
    heard: int  # ``used`` by the newest fact
    unsettled: int
    room: int

    def believe(self, limited: int, used: int) -> None:
        """Replace both amounts by a fact's; room that was still settling is part of it or gone."""
        self.limited = limited
        self.unsettled = 0
        self.epoch += 1
        self.heard = used
        self.room = limited - used - self.held
        if self.living or self.lingers:
            self.doubt = 0
            self._doubt()

    @property
    def used(self) -> int:
        """What is charged already, as far as known."""
        return self.limited - self.unsettled - self.held - self.room

    @property
    def left(self) -> int:
        """Headroom now: limited - used - held."""
        return self.room + self.unsettled

    def observe(self, limited: int, used: int, *, recounted: bool = False) -> int:
        """Take an observed state; room that it adds is unsettled at first. Return that room.

        A recount may miss creates that were charged a moment before, and find them the next time: their charges
        were seen before, so that such a rise is nobody's credit.
        """
        rise = used - self.seen
        self.seen = used
        if rise < 0 or (recounted and rise):  # nothing else makes it fall, whether or not the object tells who wrote it
            self.lingers, self.leave_at = 0, FOREVER
        elif rise:
            self.credit = min(self.credit + rise, self.held)
        added = (limited - used) - (self.left + self.doubt + self.held)
        self.limited = limited
        self.heard = used
        if added > 0:
            self.unsettled += added
        else:
            self.room += added  # what goes takes from the settled room, and never more than there is of the unsettled
        free = max(0, self._doubt() + min(0, added))  # what was doubted and no longer is
        self.room -= free
        self.unsettled += free
        return max(0, added) + free

    def live(self, amount: int) -> bool:
        """Count so much more of ours as living, or less; say whether that leaves less to doubt."""
        self.living += amount
        self.lowest = min(self.lowest, self.living)
        return self._doubt() > 0

    def linger(self, amount: int, until: float) -> None:
        """Let what has ended stand for itself until the next recount, which may find it again.

        Without one nothing lingers on from ``until`` of the first that did.
        """
        if not self.lingers:
            self.leave_at = until
        self.lingers += amount
        self.live(-amount)

    def leave(self) -> None:
        """Let nothing linger any more."""
        self.lingers, self.leave_at = 0, FOREVER
        self._doubt()

    def turn(self) -> None:
        """Begin a new span of time for the least that was living in it."""
        self.lowest_before, self.lowest = self.lowest, self.living

    @property
    def belied(self) -> bool:
        """Whether less is used than was living at any time of the present span and the one before."""
        return self.heard < min(self.lowest, self.lowest_before)

    def _doubt(self) -> int:
        """Doubt what the newest fact says of ``used`` below what lives or lingers; return how much less that is."""
        less = self.doubt - max(0, self.living + self.lingers - self.heard)
        self.doubt -= less
        self.room += less
        return less

    def settles(self, room: int) -> None:
        """Let unsettled room count."""
        self.unsettled -= room
        self.room += room

    def unsettle(self) -> int:
        """Set all present room aside as unsettled: the server does not see it yet. Return it."""
        room = max(0, self.room)
        self.unsettled += room
        self.room -= room
        return room

    def disprove(self, over: int) -> None:
        """Lower ``used`` by what an admission proved was not there. The ceiling itself stays."""
        self.room += over

    def charge(self, amount: int) -> None:
        """Count this amount as used."""
        self.room -= amount

    def reserve(self, amount: int) -> None:
        """Begin a hold of this amount."""
        self.held += amount
        self.room -= amount

    def release(self, amount: int) -> None:
        """End a hold of this amount: its create was not charged, or ``used`` contains it by now."""
        self.held -= amount
        self.room += amount
        if self.credit:
            self.credit = min(self.credit, self.held)


class Quota:
    """One quota of a namespace: its ceilings, to whom it applies, and when it was last heard of."""

    __slots__ = (
        "ceilings",
        "classes",
        "history",
        "holds",
        "name",
        "observed",
        "selector",
        "spec",
    )

    def __init__(self, name: str) -> None:
        """Know nothing but the name."""
        self.name = name
        self.ceilings: dict[str, Ceiling] = {}
        self.classes: dict[frozenset[str], bool] = {}
        self.selector: Selector | None = None
        self.spec: Mapping[str, int] = {}
        self.observed = False
        self.history: deque[tuple[float, dict[str, tuple[int, int]]]] = deque(maxlen=HISTORY)
        self.holds = Holds()

    def applies(self, scopes: frozenset[str]) -> bool | None:
        """Say whether this scope class is charged here; None when nobody has found out."""
        if self.selector is None or self.classes.get(scopes):  # a refusal proves yes, whatever a spec says
            return self.classes.get(scopes)
        return self.selector.applies(scopes)

    def note_history(self, now: float) -> None:
        """Remember the state that is replaced at ``now``, so that a refusal by it can be told later."""
        self.history.append((now, {name: (c.seen, c.limited) for name, c in self.ceilings.items()}))

    def stale_since(self, rejected: Rejected, sent: float) -> float | None:
        """Return when we saw the state replaced, for the last time, that the refusal of a create sent then speaks of.

        None: it is the present state, or none that was replaced a moment ago.
        """
        named = {name: (used, rejected.limited.get(name)) for name, used in rejected.used.items()}
        now = {name: (c.seen, c.limited) for name, c in self.ceilings.items()}
        if not named or all(now.get(name) == state for name, state in named.items()):
            return None
        for replaced, old in reversed(self.history):
            if all(old.get(name) == state for name, state in named.items()):
                return replaced if sent <= replaced + STALE_FOR else None
        return None

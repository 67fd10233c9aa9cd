"""What is known of one resource of one quota, from which fact, and how old that is. A fact teaches only what it proves.

A *ceiling* is one (quota, resource): ``limited`` and ``used`` by the newest fact, which was *learned* from a rejection
or *observed* in the quota object. Headroom is a hint with an age, never a proof: the server decides.
"""

from __future__ import annotations

from math import exp, sqrt
from typing import Final, TypeAlias

from backoff_ctrl.engine.backoff import FOREVER

NO_FACT: Final = float("-inf")
TREND_SPAN: Final = 150.0
"""Seconds: a trend looks back one to two of them."""
FADES: Final = 1200.0  # seconds of waiting after which a rate counts for a third
_ENOUGH: Final = 8.0  # creates that got in, faded: fewer show no rate
AHEAD_MIN: Final = 5  # a wait for fewer is chance: the next one that ends decides it, soon or late


class Drain:
    """How fast a ceiling's waiting creates get in, and what that says of a create's wait: an estimate, never a promise.

    A smaller create passes larger ones that wait. So amounts are counted by size, in classes of powers of two, and a
    create is taken to wait for those of its own class and below. Old rates fade; time without a waiter does not
    count. Rates are floats: they take part in no decision, and no amount is ever derived from one.
    """

    __slots__ = ("_classes",)

    def __init__(self) -> None:
        self._classes: dict[int, list[float]] = {}  # by bit length: amount, seconds, creates, and when it faded last

    def add(self, amount: int, since: float, now: float) -> None:
        """Count a create of this amount that was admitted; the line has not been empty ``since`` then."""
        of_class = self._classes.get(amount.bit_length())
        if of_class is None:
            self._classes[amount.bit_length()] = [0.0, 0.0, 1.0, now]  # time begins to count
            return
        _fade(of_class, since, now)
        of_class[0] += amount
        of_class[2] += 1.0

    def seconds_for(
        self, amount: int, ahead: int, largest: int, since: float, now: float
    ) -> tuple[float, float] | None:
        """Estimate the seconds until ``amount`` got in, and those in which it is in 19 times of 20; None: no basis.

        It belongs to ``ahead`` creates, the asking one included, of at most the size class of ``largest``. The second
        is for creates that get in at random at that rate, and rather too long: for one, 3.7 times the mean time.
        """
        rate = count = 0.0
        for size, of_class in self._classes.items():
            if size <= largest.bit_length():
                _fade(of_class, since, now)
                count += of_class[2]
                rate += of_class[0] / of_class[1] if of_class[1] else 0.0
        if count < _ENOUGH or not rate:
            return None
        mean, number = amount / rate, max(1, ahead)
        return mean, mean * (1 + 1.65 / sqrt(number) + 1 / number)


def _fade(of_class: list[float], since: float, now: float) -> None:
    passed = now - max(of_class[3], since)
    of_class[3] = now
    if passed > 0:
        rest = exp(-passed / FADES)
        of_class[0] *= rest
        of_class[1] = of_class[1] * rest + FADES * (1.0 - rest)
        of_class[2] *= rest


class Ceiling:
    """One resource of one quota. All amounts are nano-units.

    ``room`` = limited - used - unsettled - held - reserved; a request fits if its amount <= room. ``unsettled`` is
    room that was reported less than the settle time ago. ``reserved`` is what gangs may still draw; it is no hold.
    ``credit`` is the part of the observed rise of ``used`` that has confirmed no hold yet. ``used`` is not stored: it
    is what the others leave of ``limited``. So an amount that leaves ``held`` and does not enter ``room`` becomes used.
    ``kept`` is the part of ``reserved`` of the gangs that keep their room, ``members`` what their living members are
    charged. Room may be below zero by ``returning``, ``early``, ``twice`` and ``unclear`` without any gang lacking it.
    ``doubt`` is how far the newest fact's ``used`` falls short of the charges of our own creates (``living`` and
    ``lingers``); that much does not count as room. The trend is by what was used when the present span of time began
    (``used_at_span``) and one span before (``used_before``; None: not known yet).
    """

    __slots__ = (
        "answered",
        "credit", "doubt", "drain", "early", "epoch", "fact_used", "held", "kept", "leave_at", "limited", "lingers",
        "living", "lowest", "lowest_before", "members", "quota", "reserved", "resource", "returning", "room", "seen",
        "span_at", "twice", "unclear", "unsettled", "used_at_span", "used_before",
    )  # fmt: skip

    def __init__(self, quota: str, resource: str, limited: int, used: int) -> None:
        """Start from one fact; ``quota`` is the quota's name."""
        self.quota = quota
        self.resource = resource
        self.held = 0
        self.reserved = 0
        self.kept = 0
        self.members = 0
        self.returning = 0  # reserved again, and still charged to members that have ended
        self.early = 0  # of the last rises, what no hold claimed: members may have been charged it that are not known
        self.twice = 0  # held for members that have appeared, and perhaps charged as well
        self.unclear = 0  # the part of ``unsettled`` that may be that of a member whose end is not known yet
        self.credit = 0
        self.living = 0  # charges of our living creates whose holds have ended
        self.lingers = 0  # charges of our creates that have ended, but that the next recount may still include
        self.leave_at = FOREVER
        self.doubt = 0
        self.lowest = 0  # the lowest value of ``living`` in the present span of time
        self.lowest_before = 0  # and in the span before
        self.epoch = 0
        self.drain: Drain | None = None  # how fast creates get in that wait here
        self.answered = NO_FACT  # when the newest fact about it was received
        self.span_at = NO_FACT  # when the trend's present span began; not before the second fact
        self.used_at_span = used
        self.used_before: int | None = None
        self.seen = used  # as last observed: a rejection's amounts leave it alone, so that no rise is missed
        self.limited = limited
        self.fact_used = used  # by the newest fact
        self.unsettled = 0
        self.room = limited - used

    @property
    def used(self) -> int:
        """What is charged already, as far as known."""
        return self.limited - self.unsettled - self.held - self.reserved - self.room

    @property
    def left(self) -> int:
        """Headroom now: limited - used - held - reserved."""
        return self.room + self.unsettled

    @property
    def unused(self) -> int:
        """What is left of ``limited`` beside ``used``, as far as known: headroom, held and reserved."""
        return self.room + self.unsettled + self.held + self.reserved

    @property
    def lacking(self) -> int:
        """By how much more is reserved than there is room for."""
        return max(0, -(self.room + self.returning + self.early + self.twice + self.unclear))

    def observe(self, limited: int, used: int, *, recounted: bool = False) -> int:
        """Take an observed state; return the room that it adds, which is unsettled at first.

        A recount may miss creates that were charged a moment before, and the next recount adds them again. We saw those
        charges when they were made, so a rise that a recount wrote adds no credit.
        """
        rise = used - self.seen
        self.seen = used
        if rise < 0 or (recounted and rise):  # only a recount lowers ``used``, whether or not the object shows it
            self.lingers, self.leave_at = 0, FOREVER
        elif rise:
            credit, self.credit = self.credit, min(self.credit + rise, self.held)
            if self.kept or self.unclear:
                self.early = min(self.early + rise - (self.credit - credit), self.kept + self.unclear)
        added = (limited - used) - (self.unused + self.doubt)
        self.limited = limited
        self.fact_used = used
        if added > 0:
            self.unsettled += added
        else:
            self.room += added  # lost room comes out of the settled room; ``left`` stays right
        free = max(0, self._doubt() + min(0, added))  # no longer doubted
        self.room -= free
        self.unsettled += free
        return max(0, added) + free

    def learn(self, limited: int, used: int, now: float) -> int:
        """Take the amounts of a refusal; return by how much the headroom grew, less than 0 if it shrank.

        Room that was still settling is part of them, or is gone.
        """
        left = self.room + self.unsettled + self.doubt
        if now >= self.span_at + TREND_SPAN:
            self.note_use(now)
        self.limited = limited
        self.fact_used = used
        self.unsettled = self.unclear = 0
        self.epoch += 1
        self.answered = now
        room = self.room = limited - used - self.held - self.reserved
        if self.living or self.lingers:
            self.doubt = 0
            self._doubt()
        return room - left

    def note_use(self, now: float) -> None:
        """Note for the trend what is used up to now, before a newer fact replaces it."""
        if self.span_at == NO_FACT:
            if self.answered == NO_FACT:
                return
            self.span_at = self.answered
        passed = (now - self.span_at) // TREND_SPAN
        if passed > 0:
            used = self.used
            self.used_before = self.used_at_span if passed == 1 else used
            self.used_at_span = used
            self.span_at += passed * TREND_SPAN

    def trend(self, now: float) -> int | None:
        """Return by how much ``used`` rose (or fell) in the last one to two spans; None: not known for so long."""
        if self.span_at == NO_FACT:
            return 0 if now - self.answered >= TREND_SPAN else None
        passed = (now - self.span_at) // TREND_SPAN
        used = self.used
        before = self.used_before if passed < 1 else self.used_at_span if passed == 1 else used
        return None if before is None else used - before

    def live(self, amount: int) -> bool:
        """Add to (or take from) what our living creates are charged; say whether the doubt became smaller."""
        self.living += amount
        self.lowest = min(self.lowest, self.living)
        return self._doubt() > 0

    def linger(self, amount: int, until: float) -> None:
        """Keep counting the charges of a create that has ended, since the next recount may still include it.

        That stops for all such creates at the next recount, or else at the ``until`` of the first of them.
        """
        if not self.lingers:
            self.leave_at = until
        self.lingers += amount
        self.live(-amount)

    def leave(self) -> None:
        """Stop counting creates that have ended."""
        self.lingers, self.leave_at = 0, FOREVER
        self._doubt()

    def turn(self) -> None:
        """Begin a new span of time, and the search for its lowest ``living``."""
        self.lowest_before, self.lowest = self.lowest, self.living

    @property
    def overcounted(self) -> bool:
        """Whether ``used`` is below what we counted as living all through this span and the last: some are gone."""
        return self.fact_used < min(self.lowest, self.lowest_before)

    def _doubt(self) -> int:
        """Recompute the doubt from the newest fact's ``used``; return by how much it fell."""
        less = self.doubt - max(0, self.living + self.lingers - self.fact_used)
        self.doubt -= less
        self.room += less
        return less

    def settles(self, room: int) -> None:
        """Let unsettled room count."""
        self.unsettled -= room
        self.room += room

    def unsettle(self) -> int:
        """Make all present room unsettled, since the server does not know of it yet; return how much that is."""
        room = max(0, self.room)
        self.unsettled += room
        self.room -= room
        return room

    def disprove(self, over: int) -> None:
        """Lower ``used`` by ``over``: the server admitted a create that did not fit by our amounts."""
        self.room += over

    def charge(self, amount: int) -> None:
        self.room -= amount

    def reserve(self, amount: int) -> None:
        self.held += amount
        self.room -= amount

    def set_apart(self, amount: int, *, keeps: bool = False) -> None:
        """Reserve so much more (or less) for gangs; ``keeps``: for one that keeps its room."""
        self.reserved += amount
        self.room -= amount
        if keeps:
            self.kept += amount
            self.early = min(self.early, self.kept + self.unclear)

    def release(self, amount: int) -> None:
        """End a hold of this amount: its create was not charged, or ``used`` contains it by now."""
        self.held -= amount
        self.room += amount
        if self.credit:
            self.credit = min(self.credit, self.held)


Charges: TypeAlias = tuple[tuple[Ceiling, int], ...]
"""What one create is charged: ceilings and amounts in nano-units."""

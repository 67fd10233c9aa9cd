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
    """One resource of one quota. Amounts are nano-units. Only this module writes and sums them.

        room    = limited - max(used, living) - pending - reserved - fresh - doubted
        doubted = min(fallen, members + min(risen, kept))
        lacking = -(room + fresh + doubted + maybe + min(risen, kept)), at least 0

    ``room`` is what is surely free: no more is given. ``lacking`` is what gangs surely lost: no more is taken.

    - ``used``: by the newest fact. ``seen``: as last observed; a refusal leaves it alone, so that no rise is missed.
    - ``living``: what our creates are charged that live (see ``living``), the lingering included: ``used`` is no less.
    - ``pending``: our creates and members of gangs that ``used`` may lack.
    - ``reserved``: what gangs may still draw; ``kept`` the part of it of gangs that keep their room.
    - ``fresh``: room that was reported less than the settle time ago.
    - ``risen``, ``fallen``: rises of ``seen`` that are no known create's, and falls that no known end explains.
    - ``members``: what living members are charged. So much of what has fallen may be theirs, or of those that rose and
      have not appeared: it is ``doubted``.
    - ``maybe``: what may be counted twice, as pending or reserved, and in ``used``.

    The trend is by what was used when the present span of time began (``used_at_span``) and one span before
    (``used_before``; None: not known yet).
    """

    __slots__ = (
        "answered", "drain", "epoch", "fallen", "fresh", "kept", "leave_at", "limited", "lingers", "living", "lowest",
        "lowest_before", "maybe", "members", "pending", "quota", "reserved", "resource", "risen", "room", "seen",
        "span_at", "used", "used_at_span", "used_before",
    )  # fmt: skip

    def __init__(self, quota: str, resource: str, limited: int, used: int) -> None:
        """Start from one fact; ``quota`` is the quota's name."""
        self.quota = quota
        self.resource = resource
        self.limited = limited
        self.used = self.seen = used
        self.living = self.lingers = 0
        self.leave_at = FOREVER  # when the lingering end
        self.lowest = 0  # the lowest value of ``living`` in the present span of time, without the lingering
        self.lowest_before = 0  # and in the span before
        self.pending = self.reserved = self.kept = self.fresh = self.maybe = 0
        self.risen = self.fallen = self.members = 0
        self.room = limited - used
        self.epoch = 0  # counts the refusals that were learned from: what was fresh before is no longer
        self.drain: Drain | None = None  # how fast creates get in that wait here
        self.answered = NO_FACT  # when the newest fact about it was received
        self.span_at = NO_FACT  # when the trend's present span began; not before the second fact
        self.used_at_span = used
        self.used_before: int | None = None

    # -- what follows from the sums ---------

    @property
    def charged(self) -> int:
        """What is charged already, as far as known. What a probe disproved may have made ``used`` less than 0."""
        return self.living if self.living > self.used and self.living else self.used

    @property
    def doubt(self) -> int:
        """How far the newest fact falls short of our living creates."""
        return self.charged - self.used

    @property
    def doubted(self) -> int:
        """How much of what has fallen may be members'."""
        return min(self.fallen, self.members + min(self.risen, self.kept)) if self.fallen else 0

    @property
    def left(self) -> int:
        """Headroom now: what is limited and neither charged, pending nor reserved."""
        return self.room + self.fresh + self.doubted

    @property
    def lacking(self) -> int:
        """How much of what is reserved is surely gone."""
        return max(0, -(self.left + self.maybe + min(self.risen, self.kept)))

    @property
    def over(self) -> int:
        """How much more than the limit is used and pending. What is held back besides proves nothing of ``used``."""
        return self.used + self.pending - self.maybe - self.limited

    # -- the one writer ---------

    def freshen(self, amount: int) -> None:
        """Let so much more (or less) room be fresh."""
        self.fresh += amount
        self.room -= amount

    def count_twice(self, amount: int) -> None:
        """Note that so much more (or less) may be counted twice."""
        self.maybe += amount

    def _sum_up(self) -> None:  # written out: each change of a quota comes here
        used, living = self.used, self.living
        charged = living if living > used and living else used
        self.room = self.limited - charged - self.pending - self.reserved - self.fresh
        if self.fallen:
            self.room -= self.doubted

    def set_apart(self, amount: int, *, keeps: bool = False) -> None:
        """Reserve so much more (or less) for gangs; ``keeps``: for one that keeps its room."""
        self.reserved += amount
        if keeps:
            self.kept += amount
        self._sum_up()

    def count_member(self, amount: int) -> None:
        """Count what a living member is charged, or (less than 0) no longer."""
        self.members += amount
        self._sum_up()

    def rise(self, amount: int) -> None:
        """Note a rise that is no known create's, or (less than 0) whose it was, or that it is too old."""
        self.risen += amount
        if self.fallen:
            self._sum_up()

    def fall(self, amount: int) -> None:
        """Note a fall that no known end explains, or (less than 0) whose it was, or that it is too old."""
        self.fallen += amount
        self._sum_up()

    def restart(self) -> None:
        """Drop the sums of what is pending, reserved and counted twice, and of members: they are added again."""
        self.pending = self.reserved = self.kept = self.members = self.maybe = 0
        self._sum_up()

    # -- facts ---------

    def observe(self, limited: int, used: int, *, recounted: bool) -> tuple[int, int]:
        """Take an observed state; return by how much ``used`` rose, and the room gained.

        A recount ends the lingering: it has them, or has seen their end. Only a recount lowers ``used``, whether or
        not the object shows it.
        """
        rise, before = used - self.seen, self.room
        if self.lingers and (rise < 0 or (recounted and rise)):
            self._stop_lingering()
        self.limited, self.used, self.seen = limited, used, used
        self._sum_up()
        return rise, self.room - before

    def learn(self, limited: int, used: int, now: float) -> int:
        """Take the amounts of a refusal; return by how much the headroom grew, less than 0 if it shrank.

        Room that was fresh is part of them, or is gone.
        """
        if now >= self.span_at + TREND_SPAN:
            self.note_use(now)
        grown = (limited - used) - (self.limited - self.used)
        self.limited, self.used = limited, used
        self.fresh = 0
        self.epoch += 1
        self.answered = now
        self._sum_up()
        return grown

    def begin_watch(self, used: int) -> None:
        """Let a first observed state be no rise: it may contain creates that were counted before."""
        self.seen = used

    def disprove(self, over: int) -> None:
        """Lower ``used``: the server admitted a create that did not fit by our amounts."""
        self.used -= over
        self._sum_up()

    def date(self, now: float) -> None:
        """Note when the newest fact was received."""
        self.answered = now

    def note_drain(self, amount: int, since: float, now: float) -> None:
        """Learn how fast creates get in while others wait; the first of those joined ``since``."""
        if self.drain is None:
            self.drain = Drain()
        self.drain.add(amount, since, now)

    # -- the trend ---------

    def note_use(self, now: float) -> None:
        """Note for the trend what is used up to now, before a newer fact replaces it."""
        if self.span_at == NO_FACT:
            if self.answered == NO_FACT:
                return
            self.span_at = self.answered
        passed = (now - self.span_at) // TREND_SPAN
        if passed > 0:
            used = self.charged
            self.used_before = self.used_at_span if passed == 1 else used
            self.used_at_span = used
            self.span_at += passed * TREND_SPAN

    def trend(self, now: float) -> int | None:
        """Return by how much was used more (or less) one to two spans ago; None: not known for so long."""
        if self.span_at == NO_FACT:
            return 0 if now - self.answered >= TREND_SPAN else None
        passed = (now - self.span_at) // TREND_SPAN
        used = self.charged
        before = self.used_before if passed < 1 else self.used_at_span if passed == 1 else used
        return None if before is None else used - before

    # -- our creates that live ---------

    def live(self, amount: int) -> bool:
        """Add to (or take from) what our living creates are charged; say whether that makes room."""
        room = self.room
        living = self.living = self.living + amount
        self.lowest = min(self.lowest, living - self.lingers)
        self._sum_up()
        return self.room > room

    def linger(self, amount: int, until: float) -> None:
        """Keep counting the charges of a create that has ended, since the next recount may still include it.

        That stops for all such creates at the next recount, or else at the ``until`` of the first of them.
        """
        if not self.lingers:
            self.leave_at = until
        self.lingers += amount
        self.live(0)

    def stop_lingering(self) -> None:
        """Stop counting creates that have ended."""
        self._stop_lingering()
        self._sum_up()

    def _stop_lingering(self) -> None:
        self.living -= self.lingers
        self.lingers, self.leave_at = 0, FOREVER

    def turn(self) -> None:
        """Begin a new span of time, and the search for its lowest ``living``."""
        self.lowest_before, self.lowest = self.lowest, self.living - self.lingers

    @property
    def overcounted(self) -> bool:
        """Whether ``used`` is below what we counted as living all through this span and the last: some are gone."""
        return self.used < min(self.lowest, self.lowest_before)


Charges: TypeAlias = tuple[tuple[Ceiling, int], ...]
"""What one create is charged: ceilings and amounts in nano-units."""


def send(charges: Charges) -> None:
    """Count a create as pending that is about to be sent. Written out: every create passes here."""
    for ceiling, amount in charges:
        ceiling.pending += amount
        ceiling.room -= amount


def use(charges: Charges) -> None:
    """Count a pending create as used, since no watch will show its charge: a later state that has it is no rise."""
    for ceiling, amount in charges:
        ceiling.pending -= amount
        ceiling.used += amount
        ceiling.seen += amount
        if ceiling.living:
            ceiling.live(0)


def unsend(charges: Charges) -> None:
    """Count a create as pending no longer: it was not stored, or ``used`` contains it by now."""
    for ceiling, amount in charges:
        ceiling.pending -= amount
        ceiling.room += amount

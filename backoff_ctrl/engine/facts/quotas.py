"""One quota of a namespace: its ceilings, whom it applies to, and its entries, which each fact is compared with.

``Quota.read`` compares: a rise is the charge of pending creates, oldest first, and what falls is the release of those
that have ended. What is left over waits for news of pods (``appeared``, ``ended``), or for its lifetime's end.

The watch of pods reports ends in the order in which they happened, and a recount that has seen one has seen all before
it. So a fall shows the oldest ends first, and a fall of exactly what one was charged is its own, or an equal one's.
What no end explains may be a member's of a gang that keeps its room: as much as members are charged is doubted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from backoff_ctrl.engine.backoff import FOREVER

from .ceilings import NO_FACT, Ceiling, Charges, send, unsend, use
from .demand import Selector
from .entries import (
    APPEARS_IN,
    BESIDE_GANGS,
    LEFT_FOR,
    LINGERS_FOR,
    LOST_FOR,
    MISSED_FOR,
    RISES_MAX,
    Amounts,
    Claims,
    Fall,
    Left,
    Pending,
    Rise,
    covers,
)
from .outcomes import Rejected

HISTORY: Final = 16  # observed states kept to recognise a stale refusal; at 200 changes/s that is 80 ms
STALE_FOR: Final = 1.0  # seconds: no server still decides by a state that was replaced longer ago than this


@dataclass(frozen=True, slots=True)
class ObservedQuota:
    """A quota object as read or watched: nano-units by resource.

    ``spec`` is what its owner asks for (it settles never-fits), ``hard`` what is enforced now, ``used`` what is
    charged; ``selector`` says which scope classes it applies to. ``recounted`` are the resources whose ``used`` was
    last changed by the quota controller's recount rather than by a charge, where the object shows that.
    """

    spec: Mapping[str, int]
    hard: Mapping[str, int]
    used: Mapping[str, int]
    selector: Selector = field(default_factory=Selector)
    recounted: frozenset[str] = frozenset()


NO_AMOUNTS: Final[Amounts] = {}


@dataclass(slots=True)
class Context:
    """What all quotas of a namespace have in common. ``facts`` counts the states of quotas that were seen.

    ``gangs``: there were gangs, so that it matters whose a fall is. ``lag``: how much later than a fall its end is
    reported at the most, in seconds. ``told_at``: since when every end is reported; None: some may be missed, since
    ``lost_at``.
    """

    settling: Settling
    lag: float
    gangs: bool = False
    told_at: float | None = NO_FACT
    lost_at: float = NO_FACT
    facts: int = 0

    def told_by(self, seen: float) -> float:
        """Return by when the pods' watch has reported the end or the begin behind a change that was ``seen`` then."""
        if self.told_at is None:
            return max(seen + self.lag, self.lost_at + LOST_FOR)
        return max(seen, self.told_at) + self.lag

    def follow(self, now: float, *, told: bool) -> None:
        """Note whether every end is reported from now on."""
        if not told and self.told_at is not None:
            self.lost_at = now
        self.told_at = now if told else None


class Quota:
    """What is known of one quota. ``classes`` are the scope classes that it was found to apply to, or not to.

    Entries, each list oldest first: ``pending``, ``ended`` (those that were pending a second ago), ``rises``, ``left``
    and ``falls``.
    """

    __slots__ = (
        "ceilings", "classes", "context", "ended", "falls", "history", "left", "name", "observed", "pending", "rises",
        "selector", "spec", "stale",
    )  # fmt: skip

    def __init__(self, name: str, context: Context) -> None:
        self.name = name
        self.context = context
        self.ceilings: dict[str, Ceiling] = {}
        self.classes: dict[frozenset[str], bool] = {}
        self.selector: Selector | None = None
        self.spec: Mapping[str, int] = {}
        self.observed = False
        self.history: deque[tuple[float, dict[str, tuple[int, int]]]] = deque(maxlen=HISTORY)
        self.stale = 0  # refusals by a state that was older than ours
        self.pending: deque[Pending] = deque()
        self.ended: deque[Pending] = deque()
        self.rises: deque[Rise] = deque()
        self.left: list[Left] = []
        self.falls: list[Fall] = []

    def applies(self, scopes: frozenset[str]) -> bool | None:
        """Say whether creates of this scope class are charged here; None while that is unknown."""
        if self.selector is None or self.classes.get(scopes):  # a refusal proves more than the spec
            return self.classes.get(scopes)
        return self.selector.applies(scopes)

    # -- states that the server decides by ---------

    def note_history(self, now: float) -> None:
        """Keep the state that is replaced at ``now``, so that a later refusal by it is recognised as stale."""
        self.history.append((now, {name: (c.seen, c.limited) for name, c in self.ceilings.items()}))

    def stale_since(self, rejected: Rejected, sent: float) -> float | None:
        """Return when the state that this refusal speaks of was last replaced, if the refusal is stale.

        None: it speaks of the present state, or of one that was not replaced shortly before the create was ``sent``.
        """
        named = {name: (used, rejected.limited.get(name)) for name, used in rejected.used.items()}
        now = {name: (c.seen, c.limited) for name, c in self.ceilings.items()}
        if not named or all(now.get(name) == state for name, state in named.items()):
            return None
        for replaced, old in reversed(self.history):
            if all(old.get(name) == state for name, state in named.items()):
                return replaced if sent <= replaced + STALE_FOR else None
        return None

    def read(self, seen: ObservedQuota, now: float, settled_at: float, recount_lag: float) -> list[Ceiling]:
        """Take in an observed state, at ceilings that exist; return those that gain room, or of which less is used."""
        rose: Amounts = {}
        found: Amounts = {}
        fell: Amounts = {}
        gained: Amounts = {}
        for resource, limited in seen.hard.items():
            ceiling = self.ceilings[resource]
            ceiling.note_use(now)
            ceiling.date(now)
            recount = resource in seen.recounted
            rise, room = ceiling.observe(limited, seen.used.get(resource, 0), recounted=recount)
            if rise > 0:
                (found if recount else rose)[ceiling] = rise
            elif rise:
                fell[ceiling] = -rise
            if room > 0:
                gained[ceiling] = room
        if rose:
            self._rose(rose, now)
        if found and self.falls:
            self._found_again(found)
        counted, unsure = NO_AMOUNTS, gained
        if fell and self.context.gangs:
            counted, unsure = self._fell(fell, now)
        for ceiling, room in gained.items():
            if (fresh := room - counted.get(ceiling, 0)) > 0:
                young = self._young(ceiling, now, recount_lag) if ceiling.resource in seen.recounted else ()
                self.context.settling.add(settled_at, ceiling, fresh, unsure.get(ceiling, 0), young)
        return [*gained, *(ceiling for ceiling in fell if ceiling not in gained)]

    # -- what is pending, and rises ---------

    def answered(self, pending: Pending) -> bool:
        """Let a create that was answered 201, or a member that appeared, be pending; say whether any is no longer."""
        self.pending.append(pending)
        return bool(self.rises) and self.confirm()

    def appeared(self, charges: Charges, now: float, *, member: bool) -> None:
        """Note a pod that others created: a rise is its charge, or a ``member`` is pending, perhaps counted twice."""
        old = (rise.facts for rise in self.rises if rise.at + APPEARS_IN < now)
        appeared = Pending(now, charges, max(old, default=-1), None, BESIDE_GANGS, member=True)
        if self.claim(charges, appeared.facts) or not member:
            return
        send(charges)
        for ceiling, amount in charges:
            ceiling.count_twice(amount)
        self.pending.append(appeared)

    def _rose(self, rose: Amounts, now: float) -> None:
        """Note a rise that pending creates, or a gang's members to come, may explain."""
        context = self.context
        while self.rises and (len(self.rises) >= RISES_MAX or self._is_over(self.rises[0], now)):
            self._drop_rise()
        for waits in rose:
            if waits.pending or waits.kept:
                self.rises.append(Rise(now, context.facts, rose))
                for ceiling, amount in rose.items():
                    ceiling.rise(amount)
                return

    def _is_over(self, rise: Rise, now: float) -> bool:
        return (self.context.told_by(rise.at) if self.context.gangs else rise.at + MISSED_FOR) <= now

    def _drop_rise(self) -> None:
        self._drop(self.rises.popleft())

    @staticmethod
    def _drop(rise: Rise) -> None:
        for ceiling, amount in rise.amounts.items():
            ceiling.rise(-amount)

    def confirm(self) -> bool:
        """End what is pending and has risen, oldest first; say whether any ended."""
        ended = False
        while self.pending and self.rises and self.claim(self.pending[0].charges, self.pending[0].facts):
            self._count_in()
            ended = True
        return ended

    def claim(self, charges: Charges, facts: int) -> bool:
        """Say whether rises that were seen after state number ``facts`` have this charge; they are its own then.

        The newest first: what is left over was a stranger's, and is old soonest.
        """
        for ceiling, amount in charges:
            if ceiling.risen < amount:
                return False
        if self.rises[-1].facts > facts and self.rises[-1].amounts == dict(charges):
            self._drop(self.rises.pop())
            return True
        rises = [rise for rise in self.rises if rise.facts > facts]
        if len(rises) < len(self.rises) and any(
            sum(rise.amounts.get(ceiling, 0) for rise in rises) < amount for ceiling, amount in charges
        ):
            return False
        for ceiling, amount in charges:
            ceiling.rise(-amount)
            left = amount
            for rise in reversed(rises):
                left -= rise.take(ceiling, left)
        for end in (0, -1):
            while self.rises and not self.rises[end].amounts:
                del self.rises[end]
        return True

    def end_old(self, now: float, lasting: float) -> bool:
        """End by time what is pending: ``used`` has what was answered ``lasting`` seconds ago; say if there was any."""
        ended = False
        while self.pending and self.oldest_ends(lasting) <= now:
            self._count_in()
            ended = True
        return ended

    def oldest_ends(self, lasting: float) -> float:
        """Return when the oldest pending create, which there is, ends by time. Those behind it end no earlier."""
        return self.pending[0].at + self.pending[0].times * lasting

    def _count_in(self) -> None:
        """Count the oldest pending create as used; from now on its life is counted instead."""
        pending = self.pending.popleft()
        unsend(pending.charges)
        self._end(pending)
        ended = self.ended
        ended.append(pending)
        while ended[0].at < pending.at - MISSED_FOR:
            ended.popleft()

    def _end(self, pending: Pending) -> None:
        if pending.member:
            for ceiling, amount in pending.charges:
                ceiling.count_twice(-amount)
        if pending.life is not None:
            pending.life.count(self, pending.charges)

    def fold(self, before: float) -> None:
        """Without a watch, count as used what was answered before then: each later answer of the server has it."""
        while self.pending and self.pending[0].at < before:
            self._fold_oldest()

    def fold_old(self, now: float, lasting: float) -> None:
        """Without a watch, count as used what was answered ``lasting`` seconds ago: no event will show its charge."""
        while self.pending and self.pending[0].at + lasting <= now:
            self._fold_oldest()

    def _fold_oldest(self) -> None:
        pending = self.pending.popleft()
        use(pending.charges)
        self._end(pending)

    def _young(self, ceiling: Ceiling, now: float, lag: float) -> Iterator[tuple[float, int]]:
        """Yield of each create that a recount may have missed until when that may be, and its charge; newest first.

        One whose life is known is no less than ``used``: that it was missed shows, but for what a stranger's charge
        hides. Where there are gangs, that is doubted, too, and for longer.
        """
        gangs = self.context.gangs
        lag = max(lag, LINGERS_FOR) if gangs else lag
        for pending in reversed(self.ended):
            if pending.at + lag <= now:
                return
            if gangs or pending.life is None or not pending.life.known:
                for charged, amount in pending.charges:
                    if charged is ceiling:
                        yield pending.at + lag, amount

    # -- ends, and falls ---------

    def _fell(self, fell: Amounts, now: float) -> tuple[Amounts, Amounts]:
        """Explain a fall by those that have ended.

        Return what was reserved before, which is not fresh, since all other room was free then; and the unexplained.
        """
        open_, rest = dict(fell), dict(fell)
        counted: Amounts = {}
        for left in self._explaining(open_):
            amounts = {c: min(amount, open_[c]) for c, amount in left.amounts.items() if open_.get(c)}
            for ceiling, amount in amounts.items():
                open_[ceiling] -= amount
            for older in self.left[: self.left.index(left)]:
                older.passed = True
            once = left.take(amounts)
            if not left.amounts:
                self.left.remove(left)
            if left.passed or left.at + self.context.lag < now:
                continue  # its own fall was missed, perhaps, and this is a member's
            for ceiling, amount in amounts.items():
                rest[ceiling] -= amount
            for ceiling, amount in once.items():
                counted[ceiling] = counted.get(ceiling, 0) + amount
        rest = {ceiling: amount for ceiling, amount in rest.items() if amount}
        if rest:
            self._note_fall(Fall(now, rest))
        return counted, rest

    def _note_fall(self, fall: Fall) -> None:
        self.falls.append(fall)
        for ceiling, amount in fall.amounts.items():
            ceiling.fall(amount)

    def _found_again(self, found: Amounts) -> None:
        """Drop the fall of exactly what a recount adds: the one before had missed it. It confirms no pending create."""
        for number in reversed(range(len(self.falls))):
            if self.falls[number].amounts == found:
                self._drop_fall(number)
                return

    def _explaining(self, rest: Amounts) -> Iterator[Left]:
        """Yield what has left and this may be the fall of: the one of exactly this much, else the oldest first."""
        exact = next((left for left in self.left if left.amounts == rest), None)
        if exact is not None:
            yield exact
            return
        for left in list(self.left):
            if covers(rest, left.amounts, partly=left.partly):
                yield left

    def has_ended(
        self, charges: Charges, now: float, *, member: bool, gang: Claims | None = None, back: Amounts | None = None
    ) -> None:
        """Note an end. Of a ``member``, ``back`` is what its ``gang`` has reserved again.

        A fall that was seen before is explained by it, else it is expected.
        """
        if not member and any(fall.partly for fall in self.falls):
            return  # changes were missed: whether this fall was among them is unknown
        amounts = dict(charges)
        back = {} if back is None else back
        if fall := self._fall_of(amounts):
            for ceiling, amount in fall.take(amounts).items():
                ceiling.fall(-amount)
            if not fall.amounts:
                self.falls.remove(fall)
        else:
            self._expect(Left(now, amounts, gang, back))

    def _expect(self, left: Left) -> None:
        """Expect a fall; until then what is reserved again is counted twice."""
        self.left.append(left)
        if left.gang is not None:
            for ceiling, amount in left.back.items():
                ceiling.count_twice(amount)
                left.gang.expect(ceiling, amount)

    def _fall_of(self, amounts: Amounts) -> Fall | None:
        """Return the fall that an end explains: the newest of exactly this much, else the newest that it is part of."""
        part = None
        for fall in reversed(self.falls):
            if fall.amounts == amounts:
                return fall
            if part is None and fall.shows(amounts):
                part = fall
        return part

    def expect(self, gang: Claims, back: Amounts, now: float) -> None:
        """Expect falls of what a gang has reserved that was taken over: its members live, or have just ended."""
        self._expect(Left(now, dict(back), gang, back, partly=True))

    def give_up(self, gang: Claims, amounts: Mapping[Ceiling, int], *, ended: bool) -> None:
        """Note that so much of a gang's room is wanted no more. Not ``ended``: no member has, and no fall will come."""
        rest = dict(amounts)
        for left in list(self.left):
            if left.gang is gang:
                taken = {c: n for c, most in left.back.items() if (n := min(most, rest.get(c, 0)))}
                for ceiling, amount in taken.items():
                    rest[ceiling] -= amount
                if ended:
                    left.give_up(taken)
                else:
                    left.take(taken)
                    if not left.amounts:
                        self.left.remove(left)

    def move(self, gang: Claims, to: Claims) -> None:
        """Note that another gang absorbs this one: what falls is that one's."""
        for left in self.left:
            if left.gang is gang:
                left.gang = to
                for ceiling, amount in left.back.items():
                    gang.expect(ceiling, -amount)
                    to.expect(ceiling, amount)

    def let_go(self, gang: Claims) -> None:
        """Note that a gang is over: what falls is anybody's."""
        for left in self.left:
            if left.gang is gang:
                left.give_up_all()
                left.gang = None

    def forget_others(self) -> None:
        """Expect falls of gangs' room alone: those of all other room may have been missed."""
        self.left = [left for left in self.left if left.back]

    def shown_again(self, now: float) -> None:
        """Note that changes were missed: any member may have ended, so as much room as they are charged is doubted."""
        while self.left:
            self.left.pop().give_up_all()
        while self.rises:
            self._drop_rise()
        while self.falls:
            self._drop_fall()
        charged = {ceiling: ceiling.members for ceiling in self.ceilings.values() if ceiling.members}
        if charged:
            self._note_fall(Fall(now, charged, partly=True))

    def add_again(self) -> None:
        """Add what is pending, and counted twice, to sums that were dropped."""
        for pending in self.pending:
            send(pending.charges)
            if pending.member:
                for ceiling, amount in pending.charges:
                    ceiling.count_twice(amount)
        for left in self.left:
            for ceiling, amount in left.back.items():
                ceiling.count_twice(amount)

    # -- time ---------

    def next_at(self) -> float:
        """Return when the lifetime of a rise, a fall or what has left ends; infinity without any."""
        at = FOREVER
        if self.falls:
            at = self.context.told_by(self.falls[0].at)
        if self.rises:
            at = min(at, self.context.told_by(self.rises[0].at))
        if self.left:
            at = min(at, self.left[0].at + LEFT_FOR)
        return at

    def lapse(self, now: float) -> bool:
        """Drop the rises, falls and what has left whose lifetimes end; say whether there were any."""
        any_due = False
        while self.rises and self._is_over(self.rises[0], now):
            self._drop_rise()
            any_due = True
        while self.left and self.left[0].at + LEFT_FOR <= now:
            self.left.pop(0).give_up_all()
            any_due = True
        while self.falls and self.context.told_by(self.falls[0].at) <= now:
            self._drop_fall()
            any_due = True
        return any_due

    def _drop_fall(self, number: int = 0) -> None:
        fall = self.falls.pop(number)
        for ceiling, amount in fall.amounts.items():
            ceiling.fall(-amount)


class Settling:
    """The fresh room of one namespace, ordered by the time it counts from.

    It was reported, but the server may not see it yet: its admission cache trails its own watch.
    """

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ceiling, int, int]] = []
        self._count = 0

    def add(
        self, at: float, ceiling: Ceiling, room: int, unsure: int = 0, young: Iterable[tuple[float, int]] = ()
    ) -> None:
        """Let this much room count from ``at`` on, unless a newer fact replaces it first.

        So much of it, ``unsure``, may be there only because a recount missed ``young`` creates of ours: as much as each
        was charged counts from the time given with it.
        """
        ceiling.freshen(room)
        for until, amount in young:
            missed = min(unsure, room, amount)
            if missed:
                self._push(max(at, until), ceiling, missed)
                unsure -= missed
                room -= missed
        if room:
            self._push(at, ceiling, room)

    def _push(self, at: float, ceiling: Ceiling, room: int) -> None:
        self._count += 1
        heappush(self._heap, (at, self._count, ceiling, room, ceiling.epoch))

    def set_aside(self, quota: Quota, rejected: Rejected, at: float) -> None:
        """Count no room before ``at`` where a stale refusal shows that the server does not see it yet."""
        for name in rejected.limited:
            ceiling = quota.ceilings.get(name)
            if ceiling is not None and ceiling.room > 0:
                self.add(at, ceiling, ceiling.room)

    def next_at(self) -> float:
        """Return when the next room settles; infinity if all has settled."""
        return self._heap[0][0] if self._heap else FOREVER

    def release(self, now: float) -> bool:
        """Let the room that is due count; say whether there was any."""
        any_room = False
        while self._heap and self._heap[0][0] <= now:
            _, _, ceiling, room, epoch = heappop(self._heap)
            if ceiling.epoch == epoch:
                ceiling.freshen(-room)
                any_room = True
        return any_room

"""One quota of a namespace: its ceilings, whom it applies to, what our creates hold there, and room that settles."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, TypeAlias

from backoff_ctrl.engine.backoff import FOREVER

from .ceilings import Ceiling, Charges
from .demand import Selector
from .living import TRAILS_MAX, Life
from .outcomes import Rejected

HISTORY: Final = 16  # observed states kept to recognise a stale refusal; at 200 changes/s that is 80 ms
STALE_FOR: Final = 1.0  # seconds: no server still decides by a state that was replaced longer ago than this

Answered: TypeAlias = "tuple[float, Charges, Life | None, float]"
"""When its 201 came, what it holds, its life, and how many times as long as others it lasts."""


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


class Holds:
    """What our creates hold at one quota from their 201 until ``used`` has them: never dropped, never counted twice.

    The charge of a create may be observed before or after its answer. Each observed rise of ``used`` adds credit; the
    credit confirms answered holds, oldest first, and a confirmed hold ends. Credit never exceeds what is held, so the
    charges of other clients confirm no more than what we have in flight. A fall adds no credit, nor does a rise by
    which a recount corrects an earlier one. As long as only we create, holds end by no more than ``used`` rose, so
    ``used + held`` is never below the truth.

    Those that ended within the last ``TRAILS_MAX`` seconds are remembered.
    """

    __slots__ = ("_recent", "answered")

    def __init__(self) -> None:
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

        Creates whose life is known are left out: they are not in doubt.
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
        """Without a watch, count the holds answered before then as used: later answers of the server contain them."""
        while self.answered and self.answered[0][0] < before:
            self._use_oldest()

    def use_old(self, now: float, lasting: float) -> None:
        """Without a watch, count holds answered ``lasting`` seconds ago as used: no event will end them."""
        while self.answered and self.answered[0][0] + lasting <= now:
            self._use_oldest()

    def _use_oldest(self) -> None:
        """Turn the oldest hold into ``used``. The rise that shows its charge later confirms no other hold."""
        for ceiling, amount in self.answered.popleft()[1]:
            ceiling.held -= amount
            ceiling.seen += amount
            ceiling.credit = min(ceiling.credit, ceiling.held)


class Quota:
    """What is known of one quota. ``classes`` are the scope classes that it was found to apply to, or not to."""

    __slots__ = ("ceilings", "classes", "history", "holds", "name", "observed", "selector", "spec", "stale")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ceilings: dict[str, Ceiling] = {}
        self.classes: dict[frozenset[str], bool] = {}
        self.selector: Selector | None = None
        self.spec: Mapping[str, int] = {}
        self.observed = False
        self.history: deque[tuple[float, dict[str, tuple[int, int]]]] = deque(maxlen=HISTORY)
        self.holds = Holds()
        self.stale = 0  # refusals by a state that was older than ours

    def applies(self, scopes: frozenset[str]) -> bool | None:
        """Say whether creates of this scope class are charged here; None while that is unknown."""
        if self.selector is None or self.classes.get(scopes):  # a refusal proves more than the spec
            return self.classes.get(scopes)
        return self.selector.applies(scopes)

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


class Settling:
    """The unsettled room of one namespace, ordered by the time it counts from.

    It was reported, but the server may not see it yet: its admission cache trails its own watch.
    """

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ceiling, int, int]] = []
        self._count = 0

    def add(self, at: float, ceiling: Ceiling, room: int) -> None:
        """Let this much of a ceiling's unsettled room count from ``at`` on, unless a newer fact replaces it first."""
        self._count += 1
        heappush(self._heap, (at, self._count, ceiling, room, ceiling.epoch))

    def add_recounted(
        self, at: float, ceiling: Ceiling, room: int, young: Iterable[tuple[float, int]], lag: float
    ) -> None:
        """Do as ``add`` with room that may be there only because a recount missed creates of ours.

        ``young`` says of each such create when it was answered and what it was charged. As much of the room as that
        charge counts only ``lag`` seconds after the answer.
        """
        for answered, amount in young:
            doubted = min(room, amount)
            self.add(max(at, answered + lag), ceiling, doubted)
            room -= doubted
            if not room:
                return
        self.add(at, ceiling, room)

    def set_aside(self, quota: Quota, rejected: Rejected, at: float) -> None:
        """Count no room before ``at`` where a stale refusal shows that the server does not see it yet."""
        for name in rejected.limited:
            ceiling = quota.ceilings.get(name)
            if ceiling is not None and (room := ceiling.unsettle()):
                self.add(at, ceiling, room)

    def next_at(self) -> float:
        """Return when the next room settles; infinity if all has settled."""
        return self._heap[0][0] if self._heap else FOREVER

    def release(self, now: float) -> bool:
        """Let the room that is due count; say whether there was any."""
        any_room = False
        while self._heap and self._heap[0][0] <= now:
            _, _, ceiling, room, epoch = heappop(self._heap)
            if ceiling.epoch == epoch:
                ceiling.settles(room)
                any_room = True
        return any_room

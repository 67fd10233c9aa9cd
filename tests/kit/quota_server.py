"""An API server with one quota in virtual time, the controller that recounts it, and the watches that tell of both.

The quota's ``used`` is what the server admits by. It is exact but for two things that were measured on a real one:

- The admission's cache trails the watch by a millisecond: a create that is sent at once on the news of a fall was
  refused in 2 to 4 % of all cases, one that is sent 2 ms later never.
- The quota controller recounts from a cache that is late. So a recount misses what was created a moment ago, or charges
  what has ended a moment ago, and writes so into ``used``. Its next recount mends that: such a recount *lies*.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from backoff_ctrl.engine import Rejected

Amounts = dict[str, int]
News = TypeVar("News")

QUOTA: Final = "compute"
TRAILS_MAX: Final = 0.0015
"""Seconds by which the admission's cache trails a fall at the most."""
RECOUNTS_EVERY: Final = (0.004, 0.02, 0.05, 0.05, 0.05, 0.4)
"""Seconds from one recount to the next: the controller writes 20 times a second by default, and is held up at times."""
RECOUNTS_UNASKED: Final = 0.02
"""Share of recounts that no end of a pod causes: of other objects, and of resyncs."""
CACHE_LAGS: Final = (0.0, 0.0, 0.001, 0.003, 0.01, 0.03)
"""Seconds by which the controller's cache usually is late."""
CACHE_LAG_MAX: Final = 0.4
CACHE_LATE: Final = 0.03
"""Share of recounts whose cache is late by anything up to the most."""
FORGOTTEN_AFTER: Final = 2.0
"""Seconds for which an ended pod is kept, so that a late cache still has it."""


class Agenda:
    """What happens when: a clock that goes from one thing to the next."""

    def __init__(self) -> None:
        """Start at time 0."""
        self.now = 0.0
        self._things: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, moment: float, do: Callable[[], None]) -> None:
        """Plan a thing; of two of one moment the one that was planned first comes first."""
        self._count += 1
        heappush(self._things, (moment, self._count, do))

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Plan a thing for so many seconds from now."""
        self.at(self.now + seconds, do)

    def next(self) -> float:
        """Return when the next thing happens: never, if there is none."""
        return self._things[0][0] if self._things else float("inf")

    def step(self) -> None:
        """Do the next thing."""
        self.now, _, do = heappop(self._things)
        do()


class Watch(Generic[News]):
    """Tells of changes in their order, each a while after it happened. While it is cut, news waits or is cleared."""

    def __init__(self, agenda: Agenda, tell: Callable[[News], None]) -> None:
        """Start connected."""
        self.up = True
        self.news: deque[News] = deque()
        self._agenda = agenda
        self._tell = tell
        self._last_at = 0.0

    def add(self, news: News, delay: float) -> None:
        """Note a change, which is told so many seconds later, and after all earlier ones."""
        self._last_at = max(self._last_at, self._agenda.now + delay)
        self.news.append(news)
        if self.up:
            self._agenda.at(self._last_at, self._give)

    def cut(self) -> None:
        """Tell no more."""
        self.up = False

    def resume(self) -> list[News]:
        """Be connected again, and return what was missed."""
        self.up = True
        self._last_at = self._agenda.now
        missed = list(self.news)
        self.news.clear()
        return missed

    def _give(self) -> None:
        if self.up and self.news:
            self._tell(self.news.popleft())


@dataclass(eq=False)
class StoredPod:
    """A pod at the server. ``ours``: the engine knows who made it, or keeps room for it."""

    uid: str
    amounts: Amounts
    born: float
    ours: bool
    ended_at: float | None = None
    counted: bool = True
    """Whether the last recount's cache had it."""

    @property
    def alive(self) -> bool:
        """Say whether it is charged by the truth."""
        return self.ended_at is None


class Observer(Protocol):
    """Whom the server tells of its changes."""

    def quota_changed(self, recounted: frozenset[str]) -> None:
        """Note a new state of the quota; a recount wrote these resources."""

    def pod_changed(self, pod: StoredPod, *, ended: bool) -> None:
        """Note a pod that was stored or has ended."""


class QuotaServer:
    """One quota, the pods that it charges, and the controller that recounts them."""

    def __init__(self, agenda: Agenda, dice: random.Random, hard: Amounts, observer: Observer, *, lies: bool) -> None:
        """Start empty. ``lies``: the controller's cache is late."""
        self.hard = hard
        self.used = dict.fromkeys(hard, 0)
        self.version = 1
        self.pods: dict[str, StoredPod] = {}
        self._agenda, self._dice, self._observer, self._lies = agenda, dice, observer, lies
        self._falls: list[tuple[float, Amounts]] = []  # until when the admission's cache still has an older state
        self._recount_due = False

    def charge(self, amounts: Amounts) -> Rejected | None:
        """Charge a create, or return the refusal: it names the resources that are exceeded."""
        used = self._admitted_by()
        over = [each for each, amount in amounts.items() if amount and used[each] + amount > self.hard[each]]
        if over:
            asked, limited = ({each: of[each] for each in over} for of in (amounts, self.hard))
            return Rejected(QUOTA, asked, {each: used[each] for each in over}, limited)
        self.used = {each: amount + amounts.get(each, 0) for each, amount in self.used.items()}
        self.version += 1
        self._observer.quota_changed(frozenset())
        return None

    def store(self, uid: str, amounts: Amounts, *, ours: bool) -> StoredPod:
        """Store a pod that was charged."""
        pod = StoredPod(uid, amounts, self._agenda.now, ours)
        self.version += 1
        self.pods[uid] = pod
        self._observer.pod_changed(pod, ended=False)
        return pod

    def end(self, pod: StoredPod) -> None:
        """Let a pod end: the next recount frees its room."""
        if pod.alive:
            pod.ended_at = self._agenda.now
            self.version += 1
            self._recount_due = True
            self._observer.pod_changed(pod, ended=True)

    def living(self) -> Amounts:
        """Add up what lives by the truth, without strangers' pods that the last recount has missed.

        The server itself takes the room of these for free.
        """
        return self._sum(pod for pod in self.pods.values() if pod.ended_at is None and (pod.ours or pod.counted))

    def recount(self) -> None:
        """Recount now and then: at once after an end, or for no reason."""
        self._agenda.later(self._dice.choice(RECOUNTS_EVERY), self.recount)
        if not self._recount_due and self._dice.random() > RECOUNTS_UNASKED:
            return
        seen_at = self._agenda.now - self._cache_lag()
        for pod in self.pods.values():
            pod.counted = pod.born <= seen_at
        for uid in [pod.uid for pod in self.pods.values() if not _alive_at(pod, seen_at - FORGOTTEN_AFTER)]:
            del self.pods[uid]
        used = self._sum(pod for pod in self.pods.values() if pod.born <= seen_at and _alive_at(pod, seen_at))
        self._recount_due = used != self._sum(pod for pod in self.pods.values() if pod.alive)
        if changed := frozenset(each for each in used if used[each] != self.used[each]):
            self._falls = [each for each in self._falls if each[0] > self._agenda.now]
            self._falls.append((self._agenda.now + self._dice.uniform(0, TRAILS_MAX), self.used))
            self.used = used
            self.version += 1
            self._observer.quota_changed(changed)

    def _admitted_by(self) -> Amounts:
        """Return what admission takes to be used: it sees falls a moment later."""
        used = self.used
        for until, older in self._falls:
            if until > self._agenda.now:
                used = {each: max(amount, older[each]) for each, amount in used.items()}
        return used

    def _cache_lag(self) -> float:
        if not self._lies:
            return 0.0
        if self._dice.random() > CACHE_LATE:
            return self._dice.choice(CACHE_LAGS)
        return self._dice.uniform(0, CACHE_LAG_MAX)

    def _sum(self, pods: Iterable[StoredPod]) -> Amounts:
        total = dict.fromkeys(self.hard, 0)
        for pod in pods:
            for each, amount in pod.amounts.items():
                total[each] += amount
        return total


def _alive_at(pod: StoredPod, moment: float) -> bool:
    """Say whether a pod had not ended at a moment."""
    return pod.ended_at is None or pod.ended_at > moment

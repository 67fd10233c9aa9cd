"""Observes what tells of room in namespaces: ResourceQuotas, the ends of pods, and OpenShift's ClusterResourceQuotas
where the server has them.

A permission that is refused is asked for again from time to time; meanwhile the gate learns from refusals. How well
it sees is in the book, for status pages and metrics. Nothing that is told or breaks ends the watch.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.backoff import delay

from .follower import Follower
from .observers import ClusterQuotaObserver, PodObserver, QuotaObserver, QuotasTold
from .reading import CLUSTER_QUOTAS, WatchAbsentError, WatchBrokenError, WatchForbiddenError
from .status import EVERYWHERE, WatchBook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .follower import Observer, Source
    from .observers import Ledger

log = logging.getLogger(__name__)

NAMESPACES_MAX: Final = 256
"""Namespaces that are watched one by one, over two connections each; of one more the least used is left to learning."""
FIRST_ASK: Final = 1.0
"""Seconds until a refused permission is asked for again; four times as long after each refusal in a row.

A kube-apiserver that has just started answers 403 to everybody until it has read the roles.
"""
ABSENCES: Final = 5
"""So often in a row must a kind that was there be said to be absent, until nobody asks any more."""
ONE_BY_ONE: Final = "the namespaces in use are asked one by one"


class QuotaWatch:
    """Keeps a ledger told of the quotas of some namespaces, or of all (``namespaces=None``).

    Where all may not be watched, those in use (``add``) are, one by one. ``longest_pause`` bounds the jittered
    exponential back-off between attempts and ``ask_again`` is how long a refused permission is left alone in the
    end, both in seconds.
    """

    def __init__(
        self,
        desk: Ledger,
        source: Source,
        namespaces: Iterable[str] | None = None,
        *,
        longest_pause: float = 30.0,
        ask_again: float = 300.0,
        book: WatchBook | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare; ``run`` begins."""
        self.book = book if book is not None else WatchBook()
        self._ledger = desk
        self._source = source
        self._everywhere = namespaces is None
        self._one_by_one = not self._everywhere
        self._in_use = dict.fromkeys(namespaces or ())
        self._most = max(NAMESPACES_MAX, len(self._in_use))
        self._longest_pause = longest_pause
        self._ask_again = ask_again
        self._rng = rng if rng is not None else random.Random()
        self._told = QuotasTold(desk)
        self._cluster = ClusterQuotaObserver(self._told, self.book, self._wants)
        self._tasks: dict[str, tuple[asyncio.Task[None], QuotaObserver]] = {}
        self._pods: dict[str, tuple[asyncio.Task[None], PodObserver]] = {}
        self._all_listed = False
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Observe until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                group.create_task(self._follow_cluster_quotas())
                if self._everywhere:
                    observer = QuotaObserver(self._told, self.book, None, self._leave_to_one)
                    group.create_task(self._follow_everywhere(observer))
                for namespace in list(self._in_use):
                    self.add(namespace)
                await asyncio.Event().wait()
            finally:
                self._group = None  # a group that ends takes no more tasks

    def add(self, namespace: str) -> None:
        """Observe one namespace more, or again. Call it in the loop of ``run``."""
        new = namespace not in self._in_use
        self._in_use.pop(namespace, None)
        self._in_use[namespace] = None  # the last one is the one used last
        if len(self._in_use) > self._most:
            self._drop(next(iter(self._in_use)))
        if self._group is None:
            return
        if self._one_by_one and namespace not in self._tasks:
            self._start(namespace)
        elif self._all_listed:
            self._start_pods(namespace, None)
        if new:
            self._cluster.follow(namespace)

    def _wants(self, namespace: str) -> bool:
        return self._everywhere or namespace in self._in_use

    # -- one namespace ---------

    def _start(self, namespace: str) -> None:
        if self._group is None:
            return
        self._stop_pods(namespace)
        observer = QuotaObserver(self._told, self.book, namespace, partial(self._start_pods, namespace, self.book))
        self._tasks[namespace] = self._group.create_task(self._follow(namespace, observer)), observer

    def _stop(self, namespace: str) -> None:
        self._stop_pods(namespace)
        if (found := self._tasks.pop(namespace, None)) is not None:
            found[1].retire()
            found[0].cancel()
            self.book.close(namespace)

    def _start_pods(self, namespace: str, book: WatchBook | None) -> None:
        """Follow the ends of pods too, once it is known how well quotas are seen."""
        if namespace not in self._pods and self._group is not None:
            observer = PodObserver(self._ledger, book, namespace)
            self._pods[namespace] = self._group.create_task(self._follow_pods(observer)), observer

    def _stop_pods(self, namespace: str) -> None:
        if (found := self._pods.pop(namespace, None)) is not None:
            found[1].retire()
            found[0].cancel()

    def _drop(self, namespace: str) -> None:
        """Leave a namespace to learning."""
        del self._in_use[namespace]
        if namespace in self._tasks:
            self._tasks[namespace][1].forget()
            self._ledger.watch_lost(namespace)
        self._stop(namespace)
        if not self._everywhere:
            self._cluster.unfollow(namespace)

    async def _follow(self, namespace: str, observer: QuotaObserver) -> None:
        while True:
            try:
                await self._follower(observer).run()
            except (WatchForbiddenError, WatchAbsentError) as error:
                self._refused(observer, namespace, error)
            self._start_pods(namespace, self.book)
            await self._pause(observer.refusals)

    async def _follow_pods(self, observer: PodObserver) -> None:
        while True:
            try:
                await self._follower(observer).run()
            except (WatchForbiddenError, WatchAbsentError) as error:
                self.book.counts.forbidden += 1
                observer.refused(error)
            observer.refusals += 1
            await self._pause(observer.refusals)

    # -- all namespaces ---------

    async def _follow_everywhere(self, observer: QuotaObserver) -> None:
        while True:
            try:
                await self._follower(observer).run()
            except (WatchForbiddenError, WatchAbsentError) as error:
                self._refused(observer, EVERYWHERE, error)
            self._one_by_one, self._all_listed = True, False
            for namespace in list(self._in_use):
                if namespace not in self._tasks:
                    self._start(namespace)
            await self._pause(observer.refusals)

    def _leave_to_one(self) -> None:
        """Stop watching namespaces one by one: all are watched. What was told of them stays told."""
        self._one_by_one, self._all_listed = False, True
        for namespace in list(self._tasks):
            self._stop(namespace)
        for namespace in self._in_use:
            self._start_pods(namespace, None)

    def _refused(self, observer: QuotaObserver, place: str, error: Exception) -> None:
        self.book.counts.forbidden += 1
        observer.refusals += 1
        if observer.refusals > 1:  # not by the first: see FIRST_ASK
            observer.forget(others=self._tasks if place == EVERYWHERE else ())
        if place == EVERYWHERE:
            self.book.quotas(place, seen=False, why=str(error), instead=ONE_BY_ONE)
        else:  # what is seen of pods is known in a moment
            self.book.quotas(place, seen=False, why=str(error), patient=True)

    # -- quotas over namespaces ---------

    async def _follow_cluster_quotas(self) -> None:
        """Follow them where there are any. Where the server has never heard of them it is asked once."""
        absences, observer = 0, self._cluster
        while True:
            longest = self._ask_again
            try:
                if not observer.listed_once and not await self._source.is_served(CLUSTER_QUOTAS.path):
                    break
                await self._follower(observer).run()
            except WatchBrokenError as error:  # of the question whether they are served: the follower survives its own
                log.debug("%s: %s", CLUSTER_QUOTAS.path, error)
                longest = self._longest_pause
            except WatchAbsentError:
                absences = absences + 1 if observer.refusals else 1
                if absences >= ABSENCES or not observer.listed_once:
                    break
            except WatchForbiddenError as error:
                self.book.counts.forbidden += 1
                self.book.quotas(CLUSTER_QUOTAS.plural, seen=False, why=str(error))
            observer.refusals += 1
            await self._pause(observer.refusals, longest)
        self.book.close(CLUSTER_QUOTAS.plural)

    def _follower(self, observer: Observer) -> Follower:
        return Follower(self._source, observer, self.book, self._rng, self._longest_pause)

    async def _pause(self, refusals: int, longest: float | None = None) -> None:
        """Wait before a permission is asked for again: soon at first, for a server that starts refuses everybody."""
        wait = delay(2 * min(refusals - 1, 100), FIRST_ASK, self._ask_again if longest is None else longest)
        await asyncio.sleep(wait * self._rng.uniform(0.8, 1.2))

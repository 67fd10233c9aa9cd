"""Watches what shows free room in namespaces: ResourceQuotas, the ends of pods, and OpenShift's ClusterResourceQuotas
where the server has them.

Where permission is refused, it is tried again from time to time; meanwhile the gate learns from refusals. The book
holds the status of each namespace, for pages and metrics. No malformed event or broken connection ends the watch.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from backoff_ctrl.engine.backoff import delay

from .follower import Follower
from .gang_watch import MARGIN, GangWatch
from .observers import ClusterQuotaObserver, PodObserver, QuotaObserver, QuotasTold
from .reading import CLUSTER_QUOTAS, WatchAbsentError, WatchBrokenError, WatchForbiddenError
from .status import EVERYWHERE, WatchBook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .follower import Observer, Source
    from .gang_pods import LabelledPods
    from .gang_pods import Ledger as GangLedger
    from .gang_pods import Source as GangSource
    from .observers import Ledger as QuotaLedger

    class Ledger(QuotaLedger, GangLedger, Protocol):
        """What it reports to."""

    class WholeSource(Source, GangSource, Protocol):
        """Where everything comes from."""


log = logging.getLogger(__name__)

NAMESPACES_MAX: Final = 256
"""Namespaces watched separately, over two connections each; beyond that, the least recently used is dropped and its
limits are learned from refusals.
"""
FIRST_ASK: Final = 1.0
"""Seconds until the next try after a 403; four times as long after each further one in a row.

A kube-apiserver that has just started answers 403 to every request until it has loaded the roles.
"""
ABSENCES: Final = 5
"""Consecutive 404s after which a kind that existed before is no longer asked for."""
ONE_BY_ONE: Final = "watching each namespace in use instead"


class QuotaWatch:
    """Keeps a ledger informed of the quotas of some namespaces, or of all (``namespaces=None``).

    If watching all namespaces is forbidden, those in use (``add``) are watched separately. ``longest_pause`` is the
    maximum of the jittered exponential back-off after failures, ``ask_again`` the maximum pause after 403s, both in
    seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        source: WholeSource,
        namespaces: Iterable[str] | None = None,
        *,
        longest_pause: float = 30.0,
        ask_again: float = 300.0,
        book: WatchBook | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare to report to ``ledger`` what ``source`` yields; ``run`` starts it."""
        self.book = book if book is not None else WatchBook()
        self._ledger = ledger
        self._source = source
        self._everywhere = namespaces is None
        self._one_by_one = not self._everywhere
        self._in_use = dict.fromkeys(namespaces or ())
        self._most = max(NAMESPACES_MAX, len(self._in_use))
        self._longest_pause = longest_pause
        self._ask_again = ask_again
        self._rng = rng if rng is not None else random.Random()
        self._told = QuotasTold(ledger)
        self._cluster = ClusterQuotaObserver(self._told, self.book, self._wants)
        self._tasks: dict[str, tuple[asyncio.Task[None], QuotaObserver]] = {}
        self._pods: dict[str, tuple[asyncio.Task[None], PodObserver]] = {}
        self._gangs: dict[str, tuple[GangWatch, asyncio.Task[None]] | None] = {}  # None: to be started with ``run``
        self.gang_margin = MARGIN
        """Seconds for which the pods of gangs are watched after the last gang of a namespace."""
        self._all_listed = False
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                group.create_task(self._follow_cluster_quotas())
                if self._everywhere:
                    observer = QuotaObserver(self._told, self.book, None, self._leave_to_one)
                    group.create_task(self._follow_everywhere(observer))
                for namespace in list(self._in_use):
                    self.add(namespace)
                for namespace in list(self._gangs):
                    self.add_gang(namespace)
                await asyncio.Event().wait()
            finally:
                self._group = None  # an ending task group accepts no tasks

    def add(self, namespace: str) -> None:
        """Watch a namespace, or mark it as used again. Must be called in the event loop of ``run``."""
        new = namespace not in self._in_use
        self._in_use.pop(namespace, None)
        self._in_use[namespace] = None  # ordered by last use
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

    def add_gang(self, namespace: str) -> None:
        """Watch the pods that others make for gangs of a namespace, as long as the ledger looks for any; look again.

        Must be called in the event loop of ``run``.
        """
        self.add(namespace)
        found = self._gangs.setdefault(namespace)
        if found is not None:
            found[0].look()
        elif self._group is not None:
            watch = GangWatch(
                self._ledger, self._source, self.book, namespace, self._follow_pods, margin=self.gang_margin
            )
            self._gangs[namespace] = watch, self._group.create_task(self._run_gangs(namespace, watch))

    async def _run_gangs(self, namespace: str, watch: GangWatch) -> None:
        try:
            await watch.run()
        except Exception as error:  # noqa: BLE001 - law 18: a bug of ours must not end the other watches
            self.book.failed(error, f"the pods of gangs in {namespace}")
        self._gangs.pop(namespace, None)

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
        """Follow the ends of pods too; called once it is known whether quotas can be watched."""
        if namespace not in self._pods and self._group is not None:
            observer = PodObserver(self._ledger, book, namespace)
            self._pods[namespace] = self._group.create_task(self._follow_pods(observer)), observer

    def _stop_pods(self, namespace: str) -> None:
        if (found := self._pods.pop(namespace, None)) is not None:
            found[1].retire()
            found[0].cancel()

    def _drop(self, namespace: str) -> None:
        """Stop watching a namespace; its limits are learned from refusals."""
        del self._in_use[namespace]
        if (gangs := self._gangs.pop(namespace, None)) is not None:
            gangs[1].cancel()
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

    async def _follow_pods(self, observer: PodObserver | LabelledPods) -> None:
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
        """Stop watching namespaces separately, since all are watched. The ledger keeps their quotas."""
        self._one_by_one, self._all_listed = False, True
        for namespace in list(self._tasks):
            self._stop(namespace)
        for namespace in self._in_use:
            self._start_pods(namespace, None)

    def _refused(self, observer: QuotaObserver, place: str, error: Exception) -> None:
        self.book.counts.forbidden += 1
        observer.refusals += 1
        if observer.refusals > 1:  # not after the first one: see FIRST_ASK
            observer.forget(others=self._tasks if place == EVERYWHERE else ())
        if place == EVERYWHERE:
            self.book.quotas(place, seen=False, why=str(error), instead=ONE_BY_ONE)
        else:  # patient: whether pods can be watched is known in a moment
            self.book.quotas(place, seen=False, why=str(error), patient=True)

    # -- cluster quotas ---------

    async def _follow_cluster_quotas(self) -> None:
        """Follow ClusterResourceQuotas. A server that does not have the kind is asked only once."""
        absences, observer = 0, self._cluster
        while True:
            longest = self._ask_again
            try:
                if not observer.listed_once and not await self._source.is_served(CLUSTER_QUOTAS.path):
                    break
                await self._follower(observer).run()
            except WatchBrokenError as error:  # from is_served: the follower handles its own
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
        """Wait before the next try after a 403: briefly at first, since a server that starts refuses every request."""
        wait = delay(2 * min(refusals - 1, 100), FIRST_ASK, self._ask_again if longest is None else longest)
        await asyncio.sleep(wait * self._rng.uniform(0.8, 1.2))

"""Watches what shows free room in namespaces: ResourceQuotas, the ends of pods, and OpenShift's ClusterResourceQuotas
where the server has them. ``QuotaWatch`` decides what is watched where.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from backoff_ctrl.k8s.cluster.session import ClusterSession
from backoff_ctrl.k8s.gate.ledger import Ledger

from .gangs import MARGIN, GangWatch
from .informer import Informer, Observer, pause_after_refusal
from .objects import CLUSTER_QUOTAS, WatchBrokenError, WatchForbiddenError
from .observers import ClusterQuotaObserver, KnownQuotas, PodObserver, QuotaObserver
from .source import ClusterSource
from .status import EVERYWHERE, WatchRecord

log = logging.getLogger(__name__)

NAMESPACES_MAX: Final = 256
"""Namespaces watched separately, over two connections each; beyond that, the least recently used is dropped and its
limits are learned from refusals.
"""
ONE_BY_ONE: Final = "watching each namespace in use instead"


class QuotaWatch:
    """Keeps a ledger informed of the quotas of some namespaces, or of all (``namespaces=None``).

    If watching all namespaces is forbidden, those in use (``add``) are watched separately. ``longest_pause`` is the
    maximum of the jittered exponential back-off after failures, ``ask_again`` the maximum pause after 403s, both in
    seconds. ``gang_margin``: seconds for which the pods of gangs are watched after the last gang of a namespace.
    ``record`` goes on with the status of an earlier watch.
    """

    def __init__(
        self,
        ledger: Ledger,
        namespaces: Iterable[str] | None = None,
        *,
        longest_pause: float = 30.0,
        ask_again: float = 300.0,
        rng: random.Random | None = None,
        record: WatchRecord | None = None,
    ) -> None:
        self.record = record if record is not None else WatchRecord()
        self.gang_margin = MARGIN
        self._ledger = ledger
        self._everywhere = namespaces is None
        self._one_by_one = not self._everywhere
        self._all_listed = False
        self._in_use = dict.fromkeys(namespaces or ())
        self._most = max(NAMESPACES_MAX, len(self._in_use))
        self._longest_pause = longest_pause
        self._ask_again = ask_again
        self._rng = rng if rng is not None else random.Random()
        self._known = KnownQuotas(ledger)
        self._cluster = ClusterQuotaObserver(self._known, self.record, self._wants)
        self._tasks: dict[str, tuple[asyncio.Task[None], QuotaObserver]] = {}
        self._pods: dict[str, tuple[asyncio.Task[None], PodObserver]] = {}
        self._gangs: dict[str, tuple[GangWatch, asyncio.Task[None]] | None] = {}  # None: to be started with ``run``
        self._group: asyncio.TaskGroup | None = None

    async def run_with(self, configuration: Any) -> None:
        """Watch with a client's configuration, until cancelled."""
        async with ClusterSession(configuration, hooks_block=True) as session:
            await self.run(ClusterSource(session, calm=lambda: not self._ledger.counts.waiting))

    async def run(self, source: ClusterSource) -> None:
        """Watch what ``source`` yields, until cancelled."""
        self._source = source
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                group.create_task(self._follow_cluster_quotas())
                if self._everywhere:
                    group.create_task(
                        self._inform(
                            QuotaObserver(self._known, self.record, None, self._leave_to_one, self._refused_everywhere)
                        )
                    )
                for namespace in list(self._in_use):
                    self.add(namespace)
                for namespace in list(self._gangs):
                    self.add_gang(namespace)
                await asyncio.Event().wait()
            finally:
                self._group = None  # an ending task group accepts no tasks

    def add(self, namespace: str) -> None:
        """Watch a namespace, or mark it as used again: from ``run`` on. Must be called in its event loop."""
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
            watch = GangWatch(self._ledger, self._source, self.record, namespace, self._inform, margin=self.gang_margin)
            self._gangs[namespace] = watch, self._group.create_task(self._run_gangs(namespace, watch))

    async def _run_gangs(self, namespace: str, watch: GangWatch) -> None:
        try:
            await watch.run()
        except Exception as error:  # noqa: BLE001 - law 18: a bug of ours must not end the other watches
            self.record.failed(error, f"the pods of gangs in {namespace}")
        self._gangs.pop(namespace, None)

    async def _inform(self, observer: Observer) -> None:
        await Informer(
            self._source, observer, self.record, self._rng, longest_pause=self._longest_pause, ask_again=self._ask_again
        ).run()

    def _wants(self, namespace: str) -> bool:
        return self._everywhere or namespace in self._in_use

    # -- one namespace ---------

    def _start(self, namespace: str) -> None:
        if self._group is None:
            return
        self._stop_pods(namespace)
        start_pods = partial(self._start_pods, namespace, self.record)
        observer = QuotaObserver(self._known, self.record, namespace, start_pods, self._refused)
        self._tasks[namespace] = self._group.create_task(self._inform(observer)), observer

    def _stop(self, namespace: str) -> None:
        self._stop_pods(namespace)
        if (found := self._tasks.pop(namespace, None)) is not None:
            found[1].retired = True
            found[0].cancel()
            self.record.close(namespace)

    def _start_pods(self, namespace: str, record: WatchRecord | None) -> None:
        """Follow the ends of pods too; called once it is known whether quotas can be watched."""
        if namespace not in self._pods and self._group is not None:
            observer = PodObserver(self._ledger, record, namespace)
            self._pods[namespace] = self._group.create_task(self._inform(observer)), observer

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

    def _refused(self, observer: QuotaObserver, error: Exception, times: int) -> None:
        namespace = observer.namespace or ""
        if times > 1:  # not after the first one: see FIRST_ASK
            observer.forget()
        # patient: whether pods can be watched is known in a moment
        self.record.quotas(namespace, seen=False, why=str(error), patient=True)
        self._start_pods(namespace, self.record)

    # -- all namespaces ---------

    def _refused_everywhere(self, observer: QuotaObserver, error: Exception, times: int) -> None:
        if times > 1:
            observer.forget(others=self._tasks)
        self.record.quotas(EVERYWHERE, seen=False, why=str(error), instead=ONE_BY_ONE)
        self._one_by_one, self._all_listed = True, False
        for namespace in list(self._in_use):
            if namespace not in self._tasks:
                self._start(namespace)

    def _leave_to_one(self) -> None:
        """Stop watching namespaces separately, since all are watched. The ledger keeps their quotas."""
        self._one_by_one, self._all_listed = False, True
        for namespace in list(self._tasks):
            self._stop(namespace)
        for namespace in self._in_use:
            self._start_pods(namespace, None)

    async def _follow_cluster_quotas(self) -> None:
        """Follow ClusterResourceQuotas. A server that does not have the kind is asked only once."""
        tries = 0
        while True:
            try:
                if await self._source.is_served(CLUSTER_QUOTAS.path):
                    await self._inform(self._cluster)
                break
            except (WatchBrokenError, WatchForbiddenError) as error:
                log.debug("%s: %s", CLUSTER_QUOTAS.path, error)
                tries += 1
                await asyncio.sleep(pause_after_refusal(tries, self._longest_pause, self._rng))
        self.record.close(CLUSTER_QUOTAS.plural)

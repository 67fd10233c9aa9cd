"""What is watched where, and how it reaches the ledger.

``QuotaWatch`` decides what is watched: ResourceQuotas, the ends of pods, and OpenShift's ClusterResourceQuotas where
the server has them. Its observers pass quotas and ends of pods on to the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.answers.objects import Key, Object
from backoff_ctrl.k8s.kube.charges.quotas import ClusterQuota, read_cluster_quota, read_quota
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource, Informer, Observer, Refusal, pause_after_refusal
from backoff_ctrl.k8s.kube.watching.objects import (
    CLUSTER_QUOTAS,
    LIVE_MAX,
    LIVE_PODS,
    QUOTAS,
    Event,
    Ignored,
    IgnoredError,
    Order,
    WatchBrokenError,
    WatchedKind,
    WatchForbiddenError,
    read_object,
)
from backoff_ctrl.k8s.kube.watching.status import EVERYWHERE, STOPPED, WatchRecord

from .gangs import MARGIN, GangWatch

CLUSTER_QUOTAS_MAX: Final = 1_000
SELECTED_MAX: Final = 1_000
"""Namespaces per ClusterResourceQuota for which the ledger learns its amounts; in the others refusals teach it."""
ABSENCES: Final = 5
"""404s since the last list after which ClusterResourceQuotas, which existed before, are no longer asked for."""


class KnownQuotas:
    """Which quotas the ledger has, and from which kind of object: a ResourceQuota and a ClusterResourceQuota may share
    a name.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._kinds: dict[Key, WatchedKind] = {}

    def put(self, key: Key, kind: WatchedKind, seen: ObservedQuota) -> None:
        """Pass a quota on. Raises ``IgnoredError`` for a cluster quota with the name of one of the namespace's own."""
        if kind is not QUOTAS and self._kinds.get(key) is QUOTAS:
            raise IgnoredError(Ignored.NAME_TAKEN, f"{key[1]}: namespace {key[0]} has a ResourceQuota of that name")
        self._kinds[key] = kind
        self.ledger.observe_quota(*key, seen)

    def forget(self, key: Key, kind: WatchedKind) -> None:
        """Drop a quota from the ledger if it came from this kind of object."""
        if self._kinds.get(key) is kind:
            del self._kinds[key]
            self.ledger.forget_quota(*key)

    def of(self, kind: WatchedKind, namespace: str | None) -> set[Key]:
        """Return the ledger's quotas that came from this kind of object, in one namespace or (None) in all."""
        return {key for key, by in self._kinds.items() if by is kind and namespace in (None, key[0])}


class _AnyQuotaObserver(Observer, ABC):
    """What both kinds of quotas have in common: late and repeated events are ignored, what a list lacks is dropped."""

    def __init__(
        self, known: KnownQuotas, record: WatchRecord, kind: WatchedKind, namespace: str | None, most: int
    ) -> None:
        super().__init__(kind, namespace)
        self._quotas = known
        self._record = record
        self._order = Order(live_max=most)
        self._listed: set[Key] = set()

    def begin(self) -> None:
        self._order.begin()
        self._listed = set()

    def item(self, body: object) -> None:
        found = read_object(body, self.kind, self.namespace)
        self._order.list(found)
        self.put(found)
        self._listed.add(found.key)

    def listed(self, version: str) -> None:
        self._order.listed(version)
        for key in self._passed_on() - self._listed:
            self._forget(key)
        self._listed = set()

    def take(self, event: Event) -> None:
        self._order.take(event)
        super().take(event)

    def put(self, found: Object) -> None:
        try:
            self._pass_on(found)
        except FieldError as error:
            self._forget(found.key)
            name = "/".join(part for part in found.key if part)
            raise IgnoredError(Ignored.UNREADABLE, f"{name}: {error}; its limits are learned from refusals") from error

    def remove(self, gone: Object) -> None:
        self._forget(gone.key)

    def _passed_on(self) -> set[Key]:
        return self._quotas.of(self.kind, self.namespace)

    @abstractmethod
    def _pass_on(self, found: Object) -> None: ...

    @abstractmethod
    def _forget(self, key: Key) -> None: ...


class QuotaObserver(_AnyQuotaObserver):
    """Observes the ResourceQuotas of one namespace, or of all (None).

    ``on_listed`` is called when a list is complete, before the ledger is notified; ``on_refused`` after a 403 or 404.
    """

    def __init__(
        self,
        known: KnownQuotas,
        record: WatchRecord,
        namespace: str | None,
        on_listed: Callable[[], None],
        on_refused: Callable[[QuotaObserver, Exception, int], None],
    ) -> None:
        super().__init__(known, record, QUOTAS, namespace, LIVE_MAX)
        self._on_listed = on_listed
        self._on_refused = on_refused
        self._place = EVERYWHERE if namespace is None else namespace
        self._healthy = False
        self.retired = False
        """Stop reporting: another observer has taken over the namespace, or it is no longer watched."""

    def listed(self, version: str) -> None:
        super().listed(version)
        self._healthy = True
        self._on_listed()
        self._record.quotas(self._place, seen=True)
        self._quotas.ledger.watching(self.namespace)  # last: from here on a quota that is not known counts as absent

    def lost(self, error: BaseException) -> None:
        if not self.retired:
            if self._healthy:  # otherwise it knows, and some namespaces may have watches of their own by now
                self._quotas.ledger.watch_lost(self.namespace)
            self._healthy = False
            self._record.quotas(self._place, seen=False, why=_why(error), patient=True)

    def refused(self, error: Refusal, times: int) -> bool:
        self._on_refused(self, error, times)
        return True

    def forget(self, others: Container[str] = ()) -> None:
        """Drop this observer's quotas, which may be outdated, except those of ``others``: they are still watched."""
        for key in self._passed_on():
            if key[0] not in others:
                self._forget(key)

    def _pass_on(self, found: Object) -> None:
        self._quotas.put(found.key, QUOTAS, read_quota(found.body))

    def _forget(self, key: Key) -> None:
        self._quotas.forget(key, QUOTAS)


class ClusterQuotaObserver(_AnyQuotaObserver):
    """Observes ClusterResourceQuotas: each is a quota of every namespace that it selects and that is ``wanted``.

    Headroom is counted in each namespace separately. Creates in flight in another namespace are not considered, so two
    namespaces may be admitted to the same room; the server refuses one of them, and the refusal corrects the amounts.
    """

    def __init__(self, known: KnownQuotas, record: WatchRecord, wanted: Callable[[str], bool]) -> None:
        super().__init__(known, record, CLUSTER_QUOTAS, None, CLUSTER_QUOTAS_MAX)
        self._wanted = wanted  # whether a namespace is in use
        self._known: dict[Key, ClusterQuota] = {}
        self._listed_once = False
        self._absences = 0

    def listed(self, version: str) -> None:
        super().listed(version)
        self._listed_once, self._absences = True, 0
        self._record.quotas(CLUSTER_QUOTAS.plural, seen=True)

    def lost(self, error: BaseException) -> None:
        """Drop all: the ledger would wait for updates that never come, since the namespace's own watch lacks them."""
        for key in [*self._known]:
            self._forget(key)
        self._record.quotas(CLUSTER_QUOTAS.plural, seen=False, why=_why(error), patient=True)

    def refused(self, error: Refusal, times: int) -> bool:  # noqa: ARG002
        if isinstance(error, WatchForbiddenError):
            self._record.quotas(CLUSTER_QUOTAS.plural, seen=False, why=str(error))
            return True
        self._absences += 1
        return self._listed_once and self._absences < ABSENCES

    def follow(self, namespace: str) -> None:
        """Pass on the quotas that select this namespace, which is wanted from now on."""
        for (_, name), quota in self._known.items():
            if namespace in quota.namespaces:
                self._put(namespace, name, quota)

    def unfollow(self, namespace: str) -> None:
        for key in self._quotas.of(CLUSTER_QUOTAS, namespace):
            self._quotas.forget(key, CLUSTER_QUOTAS)

    def _passed_on(self) -> set[Key]:
        return {*self._known}

    def _pass_on(self, found: Object) -> None:
        name, quota, before = found.key[1], read_cluster_quota(found.body), self._known.get(found.key)
        self._known[found.key] = quota
        for namespace in set(before.namespaces if before else ()) - set(quota.namespaces):
            self._quotas.forget((namespace, name), CLUSTER_QUOTAS)
        for namespace in islice(filter(self._wanted, quota.namespaces), SELECTED_MAX):
            self._put(namespace, name, quota)

    def _put(self, namespace: str, name: str, quota: ClusterQuota) -> None:
        try:
            self._quotas.put((namespace, name), CLUSTER_QUOTAS, quota.seen)
        except IgnoredError as error:  # it concerns this namespace only
            self._record.ignored(error, CLUSTER_QUOTAS.plural)

    def _forget(self, key: Key) -> None:
        quota = self._known.pop(key, None)
        for namespace in quota.namespaces if quota else ():
            self._quotas.forget((namespace, key[1]), CLUSTER_QUOTAS)


class PodObserver(Observer):
    """Observes the ends of pods in a namespace. It stores no pods.

    Where quotas can't be watched, an end is a reason to send a probe soon. Where they are, the engine takes ``used`` to
    be at least what its own pods that have not ended are charged. Without a ``record`` it records no status.
    """

    def __init__(self, ledger: Ledger, record: WatchRecord | None, namespace: str) -> None:
        super().__init__(LIVE_PODS, namespace)
        self._name = namespace
        self._ledger = ledger
        self._record = record
        self._missed = self._healthy = False

    def listed(self, version: str) -> None:  # noqa: ARG002
        """The watch is healthy. If it was interrupted, pods may have ended meanwhile."""
        if self._record is not None:
            self._record.pods(self._name, seen=True)
        self._healthy = True
        self._ledger.ends_told(self._name, told=True)
        if self._missed:
            self._missed = False
            self._ledger.hint_release(self._name)

    def remove(self, gone: Object) -> None:
        """Report a pod that was deleted or has finished: both leave the selection of live pods."""
        self._ledger.ended(self._name, gone.uid)

    def lost(self, error: BaseException) -> None:
        self._missed = True
        if self._healthy:
            self._healthy = False
            self._ledger.ends_told(self._name, told=False)
        if self._record is not None:
            self._record.pods(self._name, seen=False, why=_why(error), patient=True)

    def refused(self, error: Refusal, times: int) -> bool:  # noqa: ARG002
        if self._record is not None:
            self._record.pods(self._name, seen=False, why=str(error))
        return True

    def retire(self) -> None:
        """Record no more status: another observer does, or the namespace is no longer watched."""
        self._record = None


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
    ``record`` continues the status of an earlier watch.
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
        except Exception as error:  # noqa: BLE001 - fails open: a bug of ours must not end the other watches
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


def _why(error: BaseException) -> str:
    return STOPPED if isinstance(error, asyncio.CancelledError) else str(error) or type(error).__name__

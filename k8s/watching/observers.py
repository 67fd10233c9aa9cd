"""The observers of a watch: they pass quotas and the ends of pods on to the ledger."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from backoff_ctrl.k8s.charges.quotas import UnreadableQuotaError, read_cluster_quota, read_quota

from .reading import CLUSTER_QUOTAS, LIVE_PODS, QUOTAS, Ignored, IgnoredError, Order, read_object
from .status import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from backoff_ctrl.engine.quotas import ObservedQuota
    from backoff_ctrl.k8s.charges.quotas import ClusterQuota

    from .reading import Event, Kind, Place, Told
    from .status import WatchBook

CLUSTER_QUOTAS_MAX: Final = 1_000
SELECTED_MAX: Final = 1_000
"""Namespaces per ClusterResourceQuota for which the ledger learns its amounts; in the others refusals teach it."""


class Ledger(Protocol):
    """What the observers report to: the methods of ``gate.ledger.Ledger`` that they use."""

    def observe_quota(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """Take in the present state of a quota."""

    def forget_quota(self, namespace: str, quota: str) -> None:
        """Drop a quota that was deleted or can no longer be watched."""

    def watching(self, namespace: str | None) -> None:
        """The ledger has all quotas of the namespace (None: of all namespaces), and changes will follow."""

    def watch_lost(self, namespace: str | None) -> None:
        """Changes of the namespace's quotas (None: of all namespaces) may be missed from now on."""

    def ends_told(self, namespace: str, *, told: bool) -> None:
        """The end of every pod of the namespace will be reported (``told``), or some may be missed (not ``told``)."""

    def ended(self, namespace: str, uid: str) -> None:
        """A pod has finished or was deleted."""

    def hint_release(self, namespace: str) -> None:
        """Something in the namespace may have ended."""


class QuotasTold:
    """Which quotas the ledger has, and from which kind of object: a ResourceQuota and a ClusterResourceQuota may share
    a name.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Start with none."""
        self.ledger = ledger
        self._told: dict[str, dict[str, Kind]] = {}

    def tell(self, place: Place, kind: Kind, seen: ObservedQuota) -> None:
        """Pass a quota on. Raises ``IgnoredError`` for a cluster quota with the name of one of the namespace's own."""
        of_namespace = self._told.setdefault(place[0], {})
        if kind is not QUOTAS and of_namespace.get(place[1]) is QUOTAS:
            raise IgnoredError(Ignored.NAME_TAKEN, f"{place[1]}: namespace {place[0]} has a ResourceQuota of that name")
        of_namespace[place[1]] = kind
        self.ledger.observe_quota(*place, seen)

    def forget(self, place: Place, kind: Kind) -> None:
        """Drop a quota from the ledger if it came from this kind of object."""
        of_namespace = self._told.get(place[0], {})
        if of_namespace.get(place[1]) is kind:
            del of_namespace[place[1]]
            if not of_namespace:
                del self._told[place[0]]
            self.ledger.forget_quota(*place)

    def told_by(self, kind: Kind, namespace: str | None) -> set[Place]:
        """Return the ledger's quotas that came from this kind of object, in one namespace or (None) in all."""
        names = list(self._told) if namespace is None else [namespace]
        return {(n, name) for n in names for name, by in self._told.get(n, {}).items() if by is kind}


class QuotaObserver:
    """Observes the ResourceQuotas of one namespace, or of all (None).

    ``on_listed`` is called when a list is complete, before the ledger is notified.
    """

    kind = QUOTAS

    def __init__(self, told: QuotasTold, book: WatchBook, namespace: str | None, on_listed: Callable[[], None]) -> None:
        """Start before the first list."""
        self.namespace = namespace
        self._told = told
        self._book = book
        self._on_listed = on_listed
        self._place = EVERYWHERE if namespace is None else namespace
        self._order = Order()
        self._now: set[Place] = set()
        self._healthy = False
        self._retired = False
        self.refusals = 0  # consecutive 403s and 404s

    def begin(self) -> None:
        """Start to collect the names of a list, to find out which quotas are gone."""
        self._order.begin()
        self._now = set()

    def item(self, body: object) -> None:
        """Pass on a quota of the list. The ledger drops one that can't be read. Raises ``IgnoredError``."""
        told = read_object(body, QUOTAS, self.namespace)
        self._order.list(told)
        self._tell(told)
        self._now.add(told.place)

    def listed(self, version: str) -> None:
        """Drop the quotas that were not in the list; the watch is healthy."""
        if self._retired:
            return
        self._order.listed(version)
        for gone in self._told.told_by(QUOTAS, self.namespace) - self._now:
            self._told.forget(gone, QUOTAS)
        self._now = set()
        self.refusals = 0
        self._healthy = True
        self._on_listed()
        self._book.quotas(self._place, seen=True)
        self._told.ledger.watching(self.namespace)

    def take(self, event: Event) -> None:
        """Pass on a change. Raises ``IgnoredError``."""
        self._order.take(event)
        if event.type == "DELETED":
            self._told.forget(event.told.place, QUOTAS)
        else:
            self._tell(event.told)

    def lost(self, error: BaseException) -> None:
        """Notify the ledger that changes may be missed."""
        if not self._retired:
            if self._healthy:  # otherwise it knows, and some namespaces may have watches of their own by now
                self._told.ledger.watch_lost(self.namespace)
            self._healthy = False
            self._book.quotas(self._place, seen=False, why=str(error) or "stopped", patient=True)

    def forget(self, others: Container[str] = ()) -> None:
        """Drop this observer's quotas, which may be outdated, except those of ``others``: they are still watched."""
        for place in self._told.told_by(QUOTAS, self.namespace):
            if place[0] not in others:
                self._told.forget(place, QUOTAS)

    def retire(self) -> None:
        """Report nothing more: another observer has taken over the namespace."""
        self._retired = True

    def _tell(self, told: Told) -> None:
        if self._retired:
            return
        try:
            self._told.tell(told.place, QUOTAS, read_quota(told.body))
        except UnreadableQuotaError as error:
            self._told.forget(told.place, QUOTAS)
            raise _unreadable(told, error) from error


class PodObserver:
    """Observes the ends of pods in a namespace. It stores no pods.

    Where quotas can't be watched, an end is a reason to send a probe soon. Where they are, the engine takes ``used`` to
    be at least what its own pods that have not ended are charged.
    """

    kind = LIVE_PODS

    def __init__(self, ledger: Ledger, book: WatchBook | None, namespace: str) -> None:
        """Start before the first list. Without a ``book`` it records no status."""
        self.namespace: str | None = namespace
        self._name = namespace
        self._ledger = ledger
        self._book = book
        self._missed = False
        self._healthy = False
        self.refusals = 0

    def begin(self) -> None:
        """Nothing to do: only the list's version is of interest."""

    def item(self, body: object) -> None:
        """Nothing to do: pods that run are not stored."""

    def listed(self, version: str) -> None:  # noqa: ARG002 - part of the interface
        """The watch is healthy. If it was interrupted, pods may have ended meanwhile."""
        if self._book is not None:
            self._book.pods(self._name, seen=True)
        self.refusals = 0
        self._healthy = True
        self._ledger.ends_told(self._name, told=True)
        if self._missed:
            self._missed = False
            self._ledger.hint_release(self._name)

    def take(self, event: Event) -> None:
        """Report a pod that was deleted or has finished: both leave the selection of live pods."""
        if event.type == "DELETED":
            self._ledger.ended(self._name, event.told.uid)

    def lost(self, error: BaseException) -> None:
        """Notify the ledger that ends may be missed."""
        self._missed = True
        if self._healthy:
            self._healthy = False
            self._ledger.ends_told(self._name, told=False)
        if self._book is not None:
            self._book.pods(self._name, seen=False, why=str(error) or "stopped", patient=True)

    def refused(self, error: Exception) -> None:
        """Record that pods can't be watched, by a 403 or 404."""
        if self._book is not None:
            self._book.pods(self._name, seen=False, why=str(error))

    def retire(self) -> None:
        """Record no more status: another observer does, or the namespace is no longer watched."""
        self._book = None


class ClusterQuotaObserver:
    """Observes ClusterResourceQuotas: each is a quota of every namespace that it selects and that is ``wanted``.

    Headroom is counted in each namespace separately. Creates in flight in another namespace are not considered, so two
    namespaces may be admitted to the same room; the server refuses one of them, and the refusal corrects the amounts.
    """

    kind = CLUSTER_QUOTAS
    namespace: str | None = None

    def __init__(self, told: QuotasTold, book: WatchBook, wanted: Callable[[str], bool]) -> None:
        """Start with none known. ``wanted`` says whether a namespace is in use."""
        self._told = told
        self._book = book
        self._wanted = wanted
        self._order = Order(live_max=CLUSTER_QUOTAS_MAX)
        self._known: dict[str, ClusterQuota] = {}
        self._now: set[str] = set()
        self.refusals = 0
        self.listed_once = False

    def begin(self) -> None:
        """Start to collect the names of a list, to find out which quotas are gone."""
        self._order.begin()
        self._now = set()

    def item(self, body: object) -> None:
        """Pass on a quota of the list. Raises ``IgnoredError``."""
        told = read_object(body, CLUSTER_QUOTAS, None)
        self._order.list(told)
        self._tell(told)
        self._now.add(told.place[1])

    def listed(self, version: str) -> None:
        """Drop the quotas that were not in the list."""
        self._order.listed(version)
        self.refusals, self.listed_once = 0, True
        for name in [*self._known]:
            if name not in self._now:
                self._forget(name)
        self._book.quotas(CLUSTER_QUOTAS.plural, seen=True)

    def take(self, event: Event) -> None:
        """Tell a change. Raises ``IgnoredError``."""
        self._order.take(event)
        if event.type == "DELETED":
            self._forget(event.told.place[1])
        else:
            self._tell(event.told)

    def lost(self, error: BaseException) -> None:
        """Drop all: otherwise the ledger would rely on the namespace's own watch and wait in vain for their updates."""
        for name in [*self._known]:
            self._forget(name)
        self._book.quotas(CLUSTER_QUOTAS.plural, seen=False, why=str(error) or "stopped", patient=True)

    def follow(self, namespace: str) -> None:
        """Pass on the quotas that select this namespace, which is wanted from now on."""
        for name, quota in self._known.items():
            if namespace in quota.namespaces:
                try:
                    self._told.tell((namespace, name), CLUSTER_QUOTAS, quota.seen)
                except IgnoredError as error:
                    self._book.ignored(error, CLUSTER_QUOTAS.plural)

    def unfollow(self, namespace: str) -> None:
        """Drop the cluster quotas of a namespace that is no longer wanted."""
        for place in self._told.told_by(CLUSTER_QUOTAS, namespace):
            self._told.forget(place, CLUSTER_QUOTAS)

    def _tell(self, told: Told) -> None:
        name = told.place[1]
        try:
            quota = read_cluster_quota(told.body)
        except UnreadableQuotaError as error:
            self._forget(name)
            raise _unreadable(told, error) from error
        before = self._known.get(name)
        self._known[name] = quota
        for namespace in set(before.namespaces if before else ()) - set(quota.namespaces):
            self._told.forget((namespace, name), CLUSTER_QUOTAS)
        taken: IgnoredError | None = None
        for namespace in islice(filter(self._wanted, quota.namespaces), SELECTED_MAX):
            try:
                self._told.tell((namespace, name), CLUSTER_QUOTAS, quota.seen)
            except IgnoredError as error:
                taken = error
        if taken is not None:
            raise taken

    def _forget(self, name: str) -> None:
        quota = self._known.pop(name, None)
        for namespace in quota.namespaces if quota else ():
            self._told.forget((namespace, name), CLUSTER_QUOTAS)


def _unreadable(told: Told, error: UnreadableQuotaError) -> IgnoredError:
    name = "/".join(part for part in told.place if part)
    return IgnoredError(Ignored.UNREADABLE, f"{name}: {error}; its limits are learned from refusals")

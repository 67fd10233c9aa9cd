"""What is done with what a watch tells: quotas and the ends of pods are handed to the ledger."""

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
"""Namespaces of one ClusterResourceQuota that are told of it; in the others its refusals teach."""


class Ledger(Protocol):
    """Who wants to know: the desk."""

    def observe_quota(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """Hear what a quota says now."""

    def forget_quota(self, namespace: str, quota: str) -> None:
        """Hear that a quota is gone, or not seen any more."""

    def watching(self, namespace: str | None) -> None:
        """Hear that all quotas of a namespace were told, and that changes will be."""

    def watch_lost(self, namespace: str | None) -> None:
        """Hear that changes may be missed."""

    def ends_told(self, namespace: str, *, told: bool) -> None:
        """Hear that the end of every pod of a namespace will be told, or that some may be missed."""

    def ended(self, namespace: str, uid: str) -> None:
        """Hear that a pod ended or went."""

    def hint_release(self, namespace: str) -> None:
        """Hear that something may have ended."""


class QuotasTold:
    """Which quotas the ledger was told of, and by which kind of object: two kinds may have one name."""

    def __init__(self, ledger: Ledger) -> None:
        """Begin with none."""
        self.ledger = ledger
        self._told: dict[str, dict[str, Kind]] = {}

    def tell(self, place: Place, kind: Kind, seen: ObservedQuota) -> None:
        """Hand a quota over. Raises ``IgnoredError`` for a cluster's quota where the namespace has one of its name."""
        of_namespace = self._told.setdefault(place[0], {})
        if kind is not QUOTAS and of_namespace.get(place[1]) is QUOTAS:
            raise IgnoredError(Ignored.NAME_TAKEN, f"namespace {place[0]} has a quota {place[1]} of its own")
        of_namespace[place[1]] = kind
        self.ledger.observe_quota(*place, seen)

    def forget(self, place: Place, kind: Kind) -> None:
        """Let the ledger forget a quota that this kind of object told it of."""
        of_namespace = self._told.get(place[0], {})
        if of_namespace.get(place[1]) is kind:
            del of_namespace[place[1]]
            if not of_namespace:
                del self._told[place[0]]
            self.ledger.forget_quota(*place)

    def told_by(self, kind: Kind, namespace: str | None) -> set[Place]:
        """List what the ledger was told of by this kind of object, in one namespace or all."""
        names = list(self._told) if namespace is None else [namespace]
        return {(n, name) for n in names for name, by in self._told.get(n, {}).items() if by is kind}


class QuotaObserver:
    """ResourceQuotas of one namespace, or of all. ``on_listed`` is called before the ledger hears of a list's end."""

    kind = QUOTAS

    def __init__(self, told: QuotasTold, book: WatchBook, namespace: str | None, on_listed: Callable[[], None]) -> None:
        """Begin with nothing told."""
        self.namespace = namespace
        self._told = told
        self._book = book
        self._on_listed = on_listed
        self._place = EVERYWHERE if namespace is None else namespace
        self._order = Order()
        self._now: set[Place] = set()
        self._healthy = False
        self._retired = False
        self.refusals = 0  # of a permission, in a row

    def begin(self) -> None:
        """Compare what is told from here on with what was told before."""
        self._order.begin()
        self._now = set()

    def item(self, body: object) -> None:
        """Tell one of the list. One that can't be read is not there, as far as the ledger knows."""
        told = read_object(body, QUOTAS, self.namespace)
        self._order.list(told)
        self._tell(told)
        self._now.add(told.place)

    def listed(self, version: str) -> None:
        """Let go what the list did not have; the watch is healthy."""
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
        """Tell a change. Raises ``IgnoredError``."""
        self._order.take(event)
        if event.type == "DELETED":
            self._told.forget(event.told.place, QUOTAS)
        else:
            self._tell(event.told)

    def lost(self, error: BaseException) -> None:
        """Say that changes may be missed."""
        if not self._retired:
            if self._healthy:  # else it knows; and of all namespaces some are watched one by one by now
                self._told.ledger.watch_lost(self.namespace)
            self._healthy = False
            self._book.quotas(self._place, seen=False, why=str(error) or "stopped", patient=True)

    def forget(self, others: Container[str] = ()) -> None:
        """Let the ledger forget: who may not look any more must not judge by what was. ``others`` are still seen."""
        for place in self._told.told_by(QUOTAS, self.namespace):
            if place[0] not in others:
                self._told.forget(place, QUOTAS)

    def retire(self) -> None:
        """Leave the namespace to another observer: say nothing more."""
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
    """The ends of pods in a namespace; it keeps nothing.

    Each is a reason to ask soon where quotas can't be watched; where they are, used is not below what has not ended.
    """

    kind = LIVE_PODS

    def __init__(self, ledger: Ledger, book: WatchBook | None, namespace: str) -> None:
        """Begin with nothing seen. Without a book it is not noted how well it sees."""
        self.namespace: str | None = namespace
        self._name = namespace
        self._ledger = ledger
        self._book = book
        self._missed = False
        self._healthy = False
        self.refusals = 0

    def begin(self) -> None:
        """Only the list's version is of interest."""

    def item(self, body: object) -> None:
        """Nothing is known of pods that run."""

    def listed(self, version: str) -> None:  # noqa: ARG002 - nothing of it is kept
        """The watch is healthy; pods may have ended meanwhile."""
        if self._book is not None:
            self._book.pods(self._name, seen=True)
        self.refusals = 0
        self._healthy = True
        self._ledger.ends_told(self._name, told=True)
        if self._missed:
            self._missed = False
            self._ledger.hint_release(self._name)

    def take(self, event: Event) -> None:
        """Tell of each pod that is gone, or has come to its end."""
        if event.type == "DELETED":
            self._ledger.ended(self._name, event.told.uid)

    def lost(self, error: BaseException) -> None:
        """Ends may be missed from now on."""
        self._missed = True
        if self._healthy:
            self._healthy = False
            self._ledger.ends_told(self._name, told=False)
        if self._book is not None:
            self._book.pods(self._name, seen=False, why=str(error) or "stopped", patient=True)

    def refused(self, error: Exception) -> None:
        """Note that the ends of pods may not be seen."""
        if self._book is not None:
            self._book.pods(self._name, seen=False, why=str(error))

    def retire(self) -> None:
        """Note nothing more of how well it sees: another one does, or nobody asks."""
        self._book = None


class ClusterQuotaObserver:
    """ClusterResourceQuotas: each is a quota of every namespace that it selects, as far as ``wanted`` says.

    Room is counted for each namespace by itself: creates under way in another one are not seen, so that the server
    may refuse what two namespaces were promised. Such a refusal teaches.
    """

    kind = CLUSTER_QUOTAS
    namespace: str | None = None

    def __init__(self, told: QuotasTold, book: WatchBook, wanted: Callable[[str], bool]) -> None:
        """Begin with none known."""
        self._told = told
        self._book = book
        self._wanted = wanted
        self._order = Order(live_max=CLUSTER_QUOTAS_MAX)
        self._known: dict[str, ClusterQuota] = {}
        self._now: set[str] = set()
        self.refusals = 0
        self.listed_once = False

    def begin(self) -> None:
        """Compare what is told from here on with what was told before."""
        self._order.begin()
        self._now = set()

    def item(self, body: object) -> None:
        """Tell one of the list."""
        told = read_object(body, CLUSTER_QUOTAS, None)
        self._order.list(told)
        self._tell(told)
        self._now.add(told.place[1])

    def listed(self, version: str) -> None:
        """Let go what the list did not have."""
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
        """Let go of all: the ledger would take the namespace's own watch for theirs, and wait for news in vain."""
        for name in [*self._known]:
            self._forget(name)
        self._book.quotas(CLUSTER_QUOTAS.plural, seen=False, why=str(error) or "stopped", patient=True)

    def follow(self, namespace: str) -> None:
        """Tell what is known of a namespace that is wanted from now on."""
        for name, quota in self._known.items():
            if namespace in quota.namespaces:
                try:
                    self._told.tell((namespace, name), CLUSTER_QUOTAS, quota.seen)
                except IgnoredError as error:
                    self._book.ignored(error, CLUSTER_QUOTAS.plural)

    def unfollow(self, namespace: str) -> None:
        """Let go of a namespace that is not wanted any more."""
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
    return IgnoredError(Ignored.UNREADABLE, f"{name}: {error}; only its refusals teach")

"""What controllers make of objects beside their pods, where quotas limit more than its number, or it makes pods itself.

A Service, a claim or a Job is charged when it is made: by a JobSet's controller even while the JobSet is suspended, for
an ephemeral volume when its pod appears. ``Children`` keeps those that exist by the object that controls each, so that
no child counts twice, as charged and as room that is still reserved. Kinds that can be let in are noted by who follows
them anyway; of the others a watch begins once an object needs it. What may not be watched counts as made.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.kube.answers.fields import FieldError, mapping, metadata_of, text
from backoff_ctrl.k8s.kube.answers.objects import Object
from backoff_ctrl.k8s.kube.charges.device_claims import Devices, claim_charge
from backoff_ctrl.k8s.kube.charges.footprint import charge
from backoff_ctrl.k8s.kube.charges.resources import CLAIMS, DEVICE_CLAIMS, SERVICES
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource, Informer, Observer, Refusal
from backoff_ctrl.k8s.kube.watching.objects import WatchedKind, read_object
from backoff_ctrl.k8s.kube.watching.shares import Shares
from backoff_ctrl.k8s.kube.watching.status import WatchRecord

from .kinds import JOB_SET, controller_of

log = logging.getLogger(__name__)

FOLLOWED: Final[Mapping[str, WatchedKind]] = {
    CLAIMS: WatchedKind("/api/v1", CLAIMS, frozenset({"PersistentVolumeClaim"})),
    SERVICES: WatchedKind("/api/v1", SERVICES, frozenset({"Service"})),
    DEVICE_CLAIMS: WatchedKind("/apis/resource.k8s.io/v1", "resourceclaims", frozenset({"ResourceClaim"})),
}
"""By their resource. Whole objects: their amounts are in their specs."""
SPEC_MAX: Final = 64 << 10
"""Bytes of memory of the spec of a ResourceClaim that is kept."""
OF_NAMESPACE: Final = 16 << 20
OF_ALL: Final = 64 << 20
GUARANTEED: Final = 1 << 20
"""Bytes of what is kept of all children: of one namespace (8,000 claims of volumes), of all, and of each at least."""
BESIDE: Final = 2 << 10
"""Bytes that a child costs beside its spec. One for which there is no room counts as not made by its controller."""
LISTED_WITHIN: Final = 10.0
"""Seconds for which an object waits at most for the first list of a kind."""
DEPTH: Final = 5
JOB_SET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
"""The label that all objects of a JobSet have."""
LONGEST_PAUSE: Final = 10.0
ASK_AGAIN: Final = 60.0


@dataclass(frozen=True, slots=True)
class Child:
    """An object that a controller has made of another one, ``owner``.

    ``charged`` is None where that can't be read, and for a ResourceClaim: that depends on its ``devices``.
    """

    uid: str
    resource: str
    namespace: str
    name: str
    owner: Owner
    charged: Demand | None
    devices: Mapping[str, Any] | None = None
    """The spec of a ResourceClaim."""

    def charge(self, devices: Devices) -> Demand | None:
        """Return what it is charged; None: it can't be read."""
        return self.charged if self.devices is None else claim_charge(self.devices, devices)


K = TypeVar("K")

Seen = Callable[[Child, bool], object]
"""Takes a child that was made, or (True) is gone."""


class Children:
    """See the module. Everything happens on the event loop of the one who admits."""

    def __init__(
        self,
        source: ClusterSource,
        record: WatchRecord,
        places: Sequence[str | None],
        noted_anyway: Iterable[str],
        seen: Seen,
    ) -> None:
        """``places`` are the namespaces to watch; None: all. ``noted_anyway``: the resources that its owner notes."""
        self._noted_anyway = frozenset(noted_anyway)
        self._source = source
        self._record = record
        self._places = tuple(places)
        self._seen = seen
        self._shares = Shares(SPEC_MAX, OF_NAMESPACE, OF_ALL, GUARANTEED, BESIDE)
        self._known: dict[str, Child] = {}
        self._by_owner: dict[tuple[str, str], dict[str, Child]] = {}  # by namespace, too: any uid may be named anywhere
        self._by_namespace: dict[str, dict[str, Child]] = {}
        self._watches: dict[str, list[_Watch]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def note(self, resource: str, found: Object, owner: Owner | None, *, gone: bool) -> None:
        """Take in an object that exists, or is gone; one that no controller (``owner``) has made is no child."""
        uid, body = found.uid, found.body
        owner = owner or _retained_for(found)
        if gone:
            self.remove(uid)
        elif owner is not None and uid and uid not in self._known:
            namespace, name = found.key
            devices = mapping(body.get("spec")) if resource == DEVICE_CLAIMS else None
            if self._shares.take(namespace, uid, devices or {}) is not None:
                return
            charged = _charged(resource, body) if resource in FOLLOWED and resource != DEVICE_CLAIMS else None
            child = Child(uid, resource, namespace, name, owner, charged, devices)
            self._known[uid] = child
            self._by_owner.setdefault((namespace, owner.uid), {})[uid] = child
            self._by_namespace.setdefault(namespace, {})[uid] = child
            self._seen(child, False)

    def remove(self, uid: str) -> None:
        child = self._known.pop(uid, None)
        if child is None:
            return
        self._shares.give_back(child.namespace, uid)
        _drop(self._by_owner, (child.namespace, child.owner.uid), uid)
        _drop(self._by_namespace, child.namespace, uid)
        self._seen(child, True)

    # -- questions ---------

    async def need(self, resources: set[str]) -> None:
        """Follow these kinds from now on, as far as they are not followed anyway, and wait until they are."""
        for resource in resources & FOLLOWED.keys():
            if resource not in self._watches:
                self._watches[resource] = [self._follow(resource, place) for place in self._places]
        waited_for = [watch.read.wait() for resource in resources for watch in self._watches.get(resource, ())]
        try:
            async with asyncio.timeout(LISTED_WITHIN):
                await asyncio.gather(*waited_for)
        except TimeoutError:
            log.warning("not all of %s is read yet: it counts as made", ", ".join(sorted(resources)))

    def _follow(self, resource: str, place: str | None) -> _Watch:
        watch = _Watch(self, resource, place)
        informer = Informer(
            self._source, watch, self._record, random.Random(), longest_pause=LONGEST_PAUSE, ask_again=ASK_AGAIN
        )
        self._tasks.append(asyncio.create_task(informer.run()))
        return watch

    def follows(self, resource: str) -> bool:
        """Return whether all objects of a kind that controllers make are known."""
        if resource not in FOLLOWED:
            return resource in self._noted_anyway
        watches = self._watches.get(resource)
        return bool(watches) and all(watch.fed for watch in watches or ())

    def below(self, namespace: str, owner: str, depth: int = DEPTH) -> Iterator[Child]:
        """Yield what controllers have made of an object, and of that in turn, as far as it is known here."""
        for child in list(self._by_owner.get((namespace, owner), {}).values()):
            yield child
            if depth > 1:
                yield from self.below(namespace, child.uid, depth - 1)

    def within(self, namespace: str, resources: Container[str]) -> list[Child]:
        return [child for child in self._by_namespace.get(namespace, {}).values() if child.resource in resources]

    def find(self, uid: str) -> Child | None:
        return self._known.get(uid)

    def of_watch(self, resource: str, place: str | None) -> list[Child]:
        return [
            child for child in self._known.values()
            if child.resource == resource and place in (None, child.namespace)
        ]  # fmt: skip

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _charged(resource: str, body: Mapping[str, Any]) -> Demand | None:
    """Return what an object is charged: a few amounts, however large it is. None: it can't be read."""
    try:
        metadata = {"annotations": mapping(metadata_of(body).get("annotations"))}
        return charge({"metadata": metadata, "spec": mapping(body.get("spec"))}, resource)
    except FieldError as error:
        log.debug("what an object of %s is charged can't be read: %s", resource, error)
        return None


def _drop(index: dict[K, dict[str, Child]], key: K, uid: str) -> None:
    index[key].pop(uid)
    if not index[key]:
        del index[key]


def kept_for(namespace: str, name: str) -> str:
    """Return what stands for the uid of a JobSet as the owner of claims that outlive it: it does not control those."""
    return f"{JOB_SET_NAME}={namespace}/{name}"


def _retained_for(found: Object) -> Owner | None:
    name = text(found.labels.get(JOB_SET_NAME))
    if not name:
        return None
    uid = kept_for(found.namespace, name)
    return Owner(JOB_SET.api_version, JOB_SET.kind, name, uid)


class _Watch(Observer):
    """Follows one kind in one namespace, or (None) in all. ``read``: it was listed once, or may not be."""

    def __init__(self, children: Children, resource: str, place: str | None) -> None:
        super().__init__(FOLLOWED[resource], place)
        self.read = asyncio.Event()
        self.fed = False
        self._children = children
        self._resource = resource
        self._listed: set[str] = set()

    def begin(self) -> None:
        self._listed = set()

    def item(self, body: object) -> None:
        found = read_object(body, self.kind, self.namespace)
        self._listed.add(found.uid)
        self.put(found)

    def listed(self, version: str) -> None:  # noqa: ARG002
        for child in self._children.of_watch(self._resource, self.namespace):
            if child.uid not in self._listed:
                self._children.remove(child.uid)
        self.fed = True
        self.read.set()

    def put(self, found: Object) -> None:
        self._children.note(self._resource, found, controller_of(found.body), gone=False)

    def remove(self, gone: Object) -> None:
        self._children.remove(gone.uid)

    def lost(self, error: BaseException) -> None:  # noqa: ARG002
        self._listed = set()

    def refused(self, error: Refusal, times: int) -> bool:
        self.fed = False
        self.read.set()
        if times == 2:  # a server that has just started refuses everything once
            log.warning(
                "%s in %s can't be watched, so they count as made already: %s",
                self.kind.plural,
                self.namespace or "all namespaces",
                error,
            )
        return True

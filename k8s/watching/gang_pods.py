"""The observers of pods that others make for gangs: by the gang's label, and by the objects that own them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from backoff_ctrl.k8s.creates.naming import GANG_LABEL

from .owners import Metadata, Owner, Owners, owners_of
from .reading import (
    GANG_PODS,
    OWNED_PODS,
    WatchAbsentError,
    WatchBrokenError,
    WatchForbiddenError,
    read_object,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from backoff_ctrl.k8s.gate.expected_pods import Expectation

    from .reading import Event, Told

log = logging.getLogger(__name__)

UNCLAIMED: Final = 2048
"""Pods of no gang that are remembered: their owner's create may be answered later than their own is told."""
AT_A_TIME: Final = 8
"""Pods that are read at a time."""
TRIES: Final = 3
PAUSE: Final = 0.2


class Ledger(Protocol):
    """What these observers ask and report to: the methods of ``gate.ledger.Ledger`` that they use."""

    def look_for(self, namespace: str) -> Expectation | None:
        """Which pods are to be looked for; None: none."""

    def label_of(self, uid: str) -> str | None:
        """The label of the gang that created this object."""

    def member_seen(self, label: str, uid: str, manifest: Mapping[str, Any]) -> None:
        """A pod is of the gang with this label."""


class Source(Metadata, Protocol):
    """Where pods are read."""

    async def named(self, path: str, name: str) -> Mapping[str, Any]:
        """Return the object of this name from the list at ``path``: whoever may list may read it so."""


@dataclass(frozen=True, slots=True)
class _Pod:
    uid: str
    name: str
    owners: tuple[Owner, ...]
    label: str | None


class LabelledPods:
    """Observes the pods that carry the label of a gang, and passes them on with their manifests."""

    kind = GANG_PODS

    def __init__(self, ledger: Ledger, namespace: str) -> None:
        """Start before the first list."""
        self.namespace: str | None = namespace
        self._ledger = ledger
        self._told = False
        self.refusals = 0

    def begin(self) -> None:
        """Nothing to do: the ledger counts each pod once."""

    def item(self, body: object) -> None:
        """Pass on a pod of the list. Raises ``IgnoredError``."""
        self._tell(read_object(body, GANG_PODS, self.namespace))

    def listed(self, version: str) -> None:  # noqa: ARG002 - part of the interface
        """The watch is healthy."""
        self.refusals = 0

    def take(self, event: Event) -> None:
        """Pass on a pod that is new, or has changed: the ledger may know its gang only now."""
        if event.type in ("ADDED", "MODIFIED"):
            self._tell(event.told)

    def lost(self, error: BaseException) -> None:
        """Nothing to do: the next list has all pods."""

    def refused(self, error: Exception) -> None:
        """Say once that these pods can't be watched: what is reserved for them lasts until the gang's limit."""
        if not self._told:
            log.warning("the pods of gangs in %s can't be watched: %s", self.namespace, error)
        self._told = True

    def _tell(self, told: Told) -> None:
        label = _label_of(told.body)
        if label is not None:
            self._ledger.member_seen(label, told.uid, told.body)


class OwnedPods(LabelledPods):
    """Observes the metadata of all pods of a namespace, finds those that a gang's objects own, and reads those whole.

    The watch is never held up: owners are looked up, and pods read, in tasks that ``spawn`` starts.
    """

    kind = OWNED_PODS

    def __init__(
        self,
        ledger: Ledger,
        source: Source,
        namespace: str,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Start before the first list."""
        super().__init__(ledger, namespace)
        self._place = namespace
        self._source = source
        self._spawn = spawn
        self._owners = Owners(source, namespace, ledger.label_of)
        self._unclaimed: OrderedDict[str, _Pod] = OrderedDict()
        self._unread: deque[_Pod] = deque()  # whose owners are to be followed
        self._follows = False
        self._reading = asyncio.Semaphore(AT_A_TIME)

    def item(self, body: object) -> None:
        """Look at a pod of the list. Raises ``IgnoredError``."""
        self._look_at(read_object(body, OWNED_PODS, self.namespace))

    def take(self, event: Event) -> None:
        """Look at a pod that is new, or that was not looked at yet."""
        if event.type == "DELETED":
            self._unclaimed.pop(event.told.uid, None)
        else:
            self._look_at(event.told)

    def look_again(self) -> None:
        """A gang has created something: pods that were nobody's may be of it."""
        self._unread.extend(self._unclaimed.values())
        self._follow()

    def _look_at(self, told: Told) -> None:
        """Claim a pod that a gang's object owns; have the owners of any other followed, unless it is too old."""
        metadata = told.body["metadata"]
        owners = owners_of(metadata)
        wanted = self._ledger.look_for(self._place)
        created = str(metadata.get("creationTimestamp") or "")
        if not owners or not told.uid or self._owners.knows(told.uid) or (wanted and created < wanted.since):
            return
        self._owners.know(told.uid, owners)
        pod = _Pod(told.uid, told.place[1], owners, _label_of(told.body))
        self._unclaimed[pod.uid] = pod
        if len(self._unclaimed) > UNCLAIMED:
            self._unclaimed.popitem(last=False)
        label = next(filter(None, (self._ledger.label_of(owner.uid) for owner in owners)), None)
        if label is not None:
            self._claim(pod, label)
        else:
            self._unread.append(pod)
            self._follow()

    def _follow(self) -> None:
        if self._unread and not self._follows:
            self._follows = True
            self._spawn(self._follow_owners())

    async def _follow_owners(self) -> None:
        """Find out which of the pods that are nobody's are of a gang, one after the other."""
        try:
            while self._unread and self._ledger.look_for(self._place) is not None:
                pod = self._unread.popleft()
                if pod.uid in self._unclaimed:
                    label = await self._owners.gang_of(pod.owners)
                    if label is not None:
                        self._claim(pod, label)
        finally:
            self._unread.clear()
            self._follows = False

    def _claim(self, pod: _Pod, label: str) -> None:
        if self._unclaimed.pop(pod.uid, None) is not None and pod.label != label:  # else its label tells
            self._spawn(self._read(pod, label))

    async def _read(self, pod: _Pod, label: str) -> None:
        """Read a gang's pod whole, and pass it on."""
        path = f"{OWNED_PODS.path}/namespaces/{self._place}/{OWNED_PODS.plural}"
        for number in range(TRIES):
            try:
                async with self._reading:
                    found = await self._source.named(path, pod.name)
            except (WatchAbsentError, WatchForbiddenError):
                return
            except WatchBrokenError as error:
                log.debug("%s/%s: %s", path, pod.name, error)
                await asyncio.sleep(PAUSE * 2**number)
                continue
            if _metadata(found).get("uid") == pod.uid:
                self._ledger.member_seen(label, pod.uid, found)
            return


def _metadata(body: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _label_of(body: Mapping[str, Any]) -> str | None:
    labels = _metadata(body).get("labels")
    label = labels.get(GANG_LABEL) if isinstance(labels, Mapping) else None
    return label if isinstance(label, str) else None

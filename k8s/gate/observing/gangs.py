"""Watches the pods that controllers make for gangs, in one namespace, as long as such gangs exist.

They are known by the gang's label; where an operator may not pass labels on, by who owns them: a Job's pod directly,
others by a chain of owners. Owners on the way (the Job of a JobSet, the RayCluster of a RayJob) are looked up by their
metadata: each once, few at a time, at most ``RATE`` a second, and only for pods no older than what a gang created.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from backoff_ctrl.engine.backoff import Bucket, delay
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.kube.answers.fields import labels_of, mapping, mappings, metadata_of, text
from backoff_ctrl.k8s.kube.answers.objects import Object
from backoff_ctrl.k8s.kube.charges.live import is_released
from backoff_ctrl.k8s.kube.charges.resources import plural_of
from backoff_ctrl.k8s.kube.paths import PathError, group_path, path_to
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource, Observer, Refusal
from backoff_ctrl.k8s.kube.watching.objects import (
    WatchAbsentError,
    WatchBrokenError,
    WatchedKind,
    WatchForbiddenError,
)
from backoff_ctrl.k8s.kube.watching.status import WatchRecord

GANG_PODS: Final = WatchedKind("/api/v1", "pods", frozenset({"Pod"}), labels=GANG_LABEL)
"""Pods that others make for a gang, and that carry its label."""
OWNED_PODS: Final = WatchedKind(
    "/api/v1", "pods", frozenset({"Pod", "PartialObjectMetadata"}), metadata_only=True, whole_list=True
)
"""All pods, to see who owns them."""

log = logging.getLogger(__name__)

CHECK: Final = 5.0  # seconds between two checks for remaining gangs, and for pods that came without their label
MARGIN: Final = 60.0  # seconds without a gang after which the watch ends: the next gang of the namespace may come soon
REMEMBERED: Final = 2048
"""Objects whose owners are remembered, and pods of no gang: their owner's create may be answered after they appear."""
AT_A_TIME: Final = 8  # pods that are read at a time
DEPTH: Final = 5  # owners above a pod that are followed
SIDE_BY_SIDE: Final = 4  # owners of one object that are followed: as a rule there is one, its controller
FOLLOWED: Final = 16  # owners above one pod that are followed in all
RATE: Final = 10.0
BURST: Final = 50
TRIES: Final = 3
PAUSE: Final = 0.2


def owners_of(metadata: Mapping[str, Any]) -> tuple[Owner, ...]:
    """Return who owns an object: its controller first. Malformed entries are left out."""
    found = sorted(mappings(metadata.get("ownerReferences")), key=lambda each: each.get("controller") is not True)
    fields: list[list[Any]] = [[each.get(name) for name in ("apiVersion", "kind", "name", "uid")] for each in found]
    owners = [Owner(*each) for each in fields if all(isinstance(value, str) and value for value in each)]
    return tuple(filter(_has_path, owners))[:SIDE_BY_SIDE]


def path_of(owner: Owner, namespace: str) -> str:
    """Return the path of an owner. The plural of a custom kind is the regular one, as everywhere.

    Raises ``PathError`` for what no object is called: who may write an object names any owner.
    """
    return path_to(group_path(owner.api_version), plural_of(owner.kind), namespace=namespace, name=owner.name)


def _has_path(owner: Owner) -> bool:
    with suppress(PathError):  # a user may write any text as an owner
        return bool(path_of(owner, "any"))
    return False


class GangWatch:
    """The watch of one namespace. By the label at first; by owners too, once the ledger says that a gang needs it.

    ``inform`` keeps an observer up to date.
    """

    def __init__(
        self,
        ledger: Ledger,
        source: ClusterSource,
        record: WatchRecord,
        namespace: str,
        inform: Callable[[Observer], Coroutine[Any, Any, None]],
        *,
        margin: float = MARGIN,
    ) -> None:
        self._ledger = ledger
        self._source = source
        self._record = record
        self._namespace = namespace
        self._inform = inform
        self._margin = margin
        self._tasks: set[asyncio.Task[None]] = set()
        self._owned: OwnedPods | None = None
        self._news = asyncio.Event()

    def look(self) -> None:
        """Wake the watch: there is a gang, or one has created an object."""
        self._news.set()

    async def run(self) -> None:
        """Watch until no gang was left for a while."""
        clock = asyncio.get_running_loop().time
        needed = clock()
        self._start(self._inform(LabelledPods(self._ledger, self._namespace)))
        try:
            while clock() - needed < self._margin:
                if self._look():
                    needed = clock()
                with suppress(TimeoutError):  # without news it still looks now and then
                    async with asyncio.timeout(min(CHECK, self._margin)):
                        await self._news.wait()
                self._news.clear()
        finally:
            for task in list(self._tasks):
                task.cancel()

    def _look(self) -> bool:
        """Watch by owners too if need be; say whether there is a gang."""
        wanted = self._ledger.gangs.look_for(self._namespace)
        if self._owned is not None:
            self._owned.look_again()
        elif wanted is not None and wanted.by_owners:
            self._owned = OwnedPods(self._ledger, self._source, self._namespace, self._start)
            self._start(self._inform(self._owned))
        return wanted is not None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._record.failed(error, f"the pods of gangs in {self._namespace}")


class LabelledPods(Observer):
    """Observes the pods that carry the label of a gang, and passes them on with their manifests.

    The ledger counts each pod once, and may come to know its gang only after the pod: all changes are passed on.
    """

    def __init__(self, ledger: Ledger, namespace: str, kind: WatchedKind = GANG_PODS) -> None:
        super().__init__(kind, namespace)
        self._name = namespace
        self._ledger = ledger
        self._warned = False
        self._listed: set[str] = set()
        ledger.gangs.members_told(namespace, kind.labels, told=False)

    def begin(self) -> None:
        self._listed = set()

    def item(self, body: object) -> None:
        self._listed.add(text(metadata_of(mapping(body)).get("uid")))
        super().item(body)

    def listed(self, version: str) -> None:  # noqa: ARG002
        """Report the members that ended while they were not watched; from now on all ends are reported."""
        self._ledger.gangs.members_listed(self._name, self._listed, labelled=bool(self.kind.labels))
        self._listed = set()
        self._ledger.gangs.members_told(self._name, self.kind.labels, told=True)

    def lost(self, error: BaseException) -> None:
        """Ends may be missed; after we have ended the watch, all are."""
        self._ledger.gangs.members_told(self._name, self.kind.labels, told=isinstance(error, asyncio.CancelledError))

    def remove(self, gone: Object) -> None:
        if self._ledger.gangs.is_member(gone.uid):
            self._ledger.gangs.member_ended(self._name, gone.uid)

    def put(self, found: Object) -> None:
        label = _label_of(found.body)
        if label is not None:
            self._ledger.gangs.member_seen(self._name, label, found.uid, found.body)

    def refused(self, error: Refusal, times: int) -> bool:  # noqa: ARG002
        """Log once that these pods can't be watched: what is reserved for them lasts until the gang's limit."""
        if not self._warned:
            log.warning("the pods of gangs in %s can't be watched: %s", self.namespace, error)
        self._warned = True
        return True


@dataclass(frozen=True, slots=True)
class _Pod:
    uid: str
    name: str
    owners: tuple[Owner, ...]
    label: str | None


class OwnedPods(LabelledPods):
    """Observes the metadata of all pods of a namespace, finds those that a gang's objects own, and reads those whole.

    The watch is never held up: owners are looked up one after the other, and pods read, in tasks that ``spawn`` starts.
    """

    def __init__(
        self,
        ledger: Ledger,
        source: ClusterSource,
        namespace: str,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        super().__init__(ledger, namespace, OWNED_PODS)
        self._source = source
        self._spawn = spawn
        self._owners: OrderedDict[str, tuple[Owner, ...]] = OrderedDict()  # by the uid of what they own
        self._unclaimed: OrderedDict[str, _Pod] = OrderedDict()
        self._claimed: OrderedDict[str, tuple[_Pod, str]] = OrderedDict()  # and the label of their gang
        self._unread: deque[_Pod] = deque()  # whose owners are to be followed
        self._follows = False
        self._forbidden: set[str] = set()  # kinds of owners that may not be read
        self._bucket = Bucket(RATE, BURST)
        self._reading = asyncio.Semaphore(AT_A_TIME)

    def put(self, found: Object) -> None:
        """Claim a new pod that a gang's object owns; have the owners of any other followed, unless it is too old."""
        metadata = found.body["metadata"]
        if is_released({"metadata": metadata}):
            self.remove(found)
            return
        owners = owners_of(metadata)
        wanted = self._ledger.gangs.look_for(self._name)
        created = str(metadata.get("creationTimestamp") or "")
        if not owners or not found.uid or found.uid in self._owners or (wanted and created < wanted.since):
            return
        _remember(self._owners, found.uid, owners)  # a driver's pod owns the executors'
        pod = _Pod(found.uid, found.key[1], owners, _label_of(found.body))
        _remember(self._unclaimed, pod.uid, pod)
        label = next(filter(None, (self._ledger.gangs.label_of(owner.uid) for owner in owners)), None)
        if label is not None:
            self._claim(pod, label)
        else:
            self._unread.append(pod)
            self._follow()

    def listed(self, version: str) -> None:
        """Read the members again that are known by their owners: metadata does not say whether they have ended."""
        super().listed(version)
        for pod, label in self._claimed.values():
            if self._ledger.gangs.is_member(pod.uid):
                self._spawn(self._read(pod, label))

    def remove(self, gone: Object) -> None:
        self._unclaimed.pop(gone.uid, None)
        if self._claimed.pop(gone.uid, None) is not None:  # it may be being read, and not be known as a member yet
            self._ledger.gangs.member_ended(self._name, gone.uid)

    def look_again(self) -> None:
        """A gang has created an object: unclaimed pods may belong to it."""
        self._unread.extend(self._unclaimed.values())
        self._follow()

    def _follow(self) -> None:
        if self._unread and not self._follows:
            self._follows = True
            self._spawn(self._follow_owners())

    async def _follow_owners(self) -> None:
        """Find out, one after the other, which of the unclaimed pods belong to a gang."""
        try:
            while self._unread and self._ledger.gangs.look_for(self._name) is not None:
                pod = self._unread.popleft()
                if pod.uid in self._unclaimed and (label := await self._gang_of(pod.owners)) is not None:
                    self._claim(pod, label)
        finally:
            self._unread.clear()
            self._follows = False

    async def _gang_of(self, owners: tuple[Owner, ...]) -> str | None:
        """Return the label of the gang that created one of these objects or of their owners; None: no gang did."""
        level, followed = list(owners), 0
        for _ in range(DEPTH):
            above: list[Owner] = []
            for owner in level:
                label = self._ledger.gangs.label_of(owner.uid)
                if label is not None:
                    return label
                if followed < FOLLOWED:
                    followed += 1
                    known = self._owners.get(owner.uid)
                    above += await self._look_up(owner) if known is None else known
            level = above
        return None

    async def _look_up(self, owner: Owner) -> tuple[Owner, ...]:
        """Ask the server who owns an owner. One that can't be read, or has another uid, counts as having no owners."""
        kind = f"{plural_of(owner.kind)} of {owner.api_version}"
        if kind in self._forbidden:
            return ()
        try:
            found = await self._tried(path_of(owner, self._name), self._metadata_of)
        except PathError as error:
            log.debug("who owns %s in %s is not known: %s", kind, self._name, error)
            return ()
        except WatchForbiddenError as error:
            self._forbidden.add(kind)
            log.warning(
                "%s in %s may not be read, so the pods that a gang's objects make through them are known only by "
                "the gang's label (%s)",
                kind,
                self._name,
                error,
            )
            return ()
        if found is None:
            return ()  # not remembered: the next pod asks again
        above = owners_of(found) if found.get("uid") == owner.uid else ()
        _remember(self._owners, owner.uid, above)
        return above

    async def _metadata_of(self, path: str) -> Mapping[str, Any]:
        now = asyncio.get_running_loop().time()
        wait = self._bucket.wait_for(1, now)
        self._bucket.take(now)
        await asyncio.sleep(wait)
        return await self._source.metadata(path)

    def _claim(self, pod: _Pod, label: str) -> None:
        if self._unclaimed.pop(pod.uid, None) is not None and pod.label != label:  # else its label identifies it
            _remember(self._claimed, pod.uid, (pod, label))
            self._spawn(self._read(pod, label))

    async def _read(self, pod: _Pod, label: str) -> None:
        with suppress(WatchForbiddenError):  # the watch of these pods needs the same right, and reports its loss
            found = await self._tried(pod.name, self._pod_of)
            if found and metadata_of(found).get("uid") == pod.uid:
                self._ledger.gangs.member_seen(self._name, label, pod.uid, found)

    async def _pod_of(self, name: str) -> Mapping[str, Any]:
        async with self._reading:
            return await self._source.named(path_to(OWNED_PODS.path, OWNED_PODS.plural, namespace=self._name), name)

    async def _tried(self, what: str, ask: Callable[[str], Awaitable[Mapping[str, Any]]]) -> Mapping[str, Any] | None:
        """Ask up to ``TRIES`` times. Empty: it does not exist; None: no answer. Raises ``WatchForbiddenError``."""
        for number in range(TRIES):
            try:
                return await ask(what)
            except WatchAbsentError:
                return {}
            except WatchBrokenError as error:
                log.debug("%s in %s: %s", what, self._name, error)
                await asyncio.sleep(delay(number, PAUSE, 1.0))
        return None


def _remember(known: OrderedDict[str, Any], uid: str, value: object) -> None:
    known[uid] = value
    known.move_to_end(uid)
    if len(known) > REMEMBERED:
        known.popitem(last=False)


def _label_of(body: Mapping[str, Any]) -> str | None:
    return text(labels_of(body).get(GANG_LABEL)) or None

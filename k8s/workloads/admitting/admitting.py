"""``Admitting``: lets suspended objects in while it leads, and follows them from the moment it is entered.

A standby has read everything already: ``lead`` begins with what its watches know. Objects are taken up in the order of
their creation; each waits and is resumed in a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.events.sender import EventSender
from backoff_ctrl.k8s.gate.runtime.places import Path, Places
from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.gate.sharing.process import Share
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.kube.answers.fields import mapping, mappings, metadata_of, text
from backoff_ctrl.k8s.kube.answers.objects import Key, Object, object_of
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.cluster.objects import Objects
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.cache import Cache
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource, Informer, Refusal
from backoff_ctrl.k8s.kube.watching.objects import WatchAbsentError, WatchBrokenError, WatchedKind, WatchForbiddenError
from backoff_ctrl.k8s.kube.watching.shares import Shares
from backoff_ctrl.k8s.kube.watching.status import WatchRecord

from .asking import POD
from .case import Case
from .children import DEPTH, Child, Children
from .desk import Counts, Desk, Patching
from .kinds import KINDS, AdmissibleKind, Left, Subject, controller_of, kind_of, left_waiting, subject_of
from .life import Seen, State, seen_of
from .shape import shaped_pod
from .stubs import Kept, Stub, Stubs
from .surroundings import Surroundings
from .telling import Teller, waiting_document

log = logging.getLogger(__name__)

LONGEST_PAUSE: Final = 10.0
ASK_AGAIN: Final = 60.0
"""The most seconds between two tries of a watch that failed, and of one that is refused: a kind may come later."""
READY: Final = 10.0
"""Seconds for which a leader waits at most for the first lists: those that are late are taken up as they come."""
PATCHES: Final = 32
"""Patches that are under way at a time."""
WHOLE: Final = 4
WHOLE_OF_ONE: Final = 2
"""Objects that are in memory as a whole at a time, in all and of one namespace: for a patch that replaces a list."""
LOOK: Final = 1.0
"""Seconds between two looks at what waits."""
STUCK: Final = 120.0
"""Seconds without such a look after which only a new process can go on."""
RETRY: Final = 60.0
"""Seconds until what was refused is tried again although no quota has changed, and what is beyond a bound is read."""
TOLD_WHY: Final = frozenset({Seen.LEFT, Seen.RUNS})
"""The reason for an object that does not wait although it is asked for."""


class Admitting:
    """See the module. An async context manager; everything happens on the event loop that entered it."""

    def __init__(
        self,
        configuration: Any,
        gate: AsyncGate | None = None,
        *,
        namespaces: Iterable[str] = (),
        kinds: Sequence[AdmissibleKind] = KINDS,
        events: bool = True,
        certain: Callable[[], bool] = lambda: True,
        shares: Shares | None = None,
    ) -> None:
        """Prepare; no connection is opened yet.

        ``configuration`` is one of any official client. Without a ``gate``, objects wait in the ledger that this
        process shares for the server. ``namespaces``: those that are looked after; empty: all. ``events``: whether
        Kubernetes events are written about what waits. ``certain`` returns whether no other process can lead yet; it
        is asked right before each patch. ``shares`` bound what is kept of the objects of each namespace.
        """
        self._shares = shares or Shares()
        self.counts = Counts()
        self.kinds = tuple(kinds)
        self.namespaces = tuple(dict.fromkeys(namespaces))
        self.record = WatchRecord()
        self._configuration = configuration
        self._given_gate = gate
        self._events = events
        self._certain = certain
        self._cases: dict[str, Case] = {}
        self._caches: list[tuple[AdmissibleKind, Cache]] = []
        self._stubs = Stubs(self._caches)
        self._dirty: dict[str, tuple[Subject, bool]] = {}
        self._judging: dict[str, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[None]] = set()  # whose pod has brought something
        self._counted: set[str] = set()  # what controllers made beside pods, and counts as a part of a gang
        self._leads = False

    async def __aenter__(self) -> Self:
        """Begin to follow: from now on a leader loses no time with reading."""
        async with AsyncExitStack() as self._stack:  # an error closes what was opened
            await self._open()
            opened = self._stack.pop_all()
        self._stack = opened
        return self

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        session = await self._stack.enter_async_context(ClusterSession(self._configuration))
        share = Share(self._configuration, self._given_gate, events=False)
        self._stack.callback(share.release)
        self.gate = self._given_gate or AsyncGate(ledger=share.ledger, mode=settings().mode or None)
        self._stack.callback(share.ledger.subscribe(_Listener(self)))
        objects, source = Objects(session), ClusterSource(session)
        self._source = source
        self.surroundings = Surroundings(objects, source, self.kinds)
        sender = EventSender(self._configuration) if self._events else None
        if sender is not None:
            self._stack.callback(sender.stop)
        self._teller = Teller(objects, sender)
        self._stack.push_async_callback(self._teller.aclose)
        self._children = Children(
            source, self.record, self.namespaces or (None,), (kind.resource for kind in self.kinds), self._child
        )
        self._stack.push_async_callback(self._children.aclose)
        self._desk = Desk(
            self.gate,
            objects,
            self._configuration.host,
            self.surroundings.limits,
            self.surroundings.priority,
            self._noted,
            self._seen,
            self._maker,
            partial(self.surroundings.above, whole=True),
            self._teller.say,
            self._pods,
            self._children,
            self._family,
            Patching(self._certain, asyncio.Semaphore(PATCHES)),
            Places(_has_room_for_whole),
            self.counts,
        )
        self._stack.push_async_callback(self._stop_following)
        self._following: list[asyncio.Task[None]] = []
        self._unread: set[Cache] = set()
        self._read = asyncio.Event()
        for kind in self.kinds:
            watched = WatchedKind(kind.path, kind.plural, frozenset({kind.kind}))
            for place in self.namespaces or (None,):
                self._caches.append((kind, self._follow(source, watched, place, (kind.api_version, kind.kind), kind)))
        for what in self.surroundings.watched:
            self._follow(source, what.kind, None, what.made, what)

    def _follow(
        self, source: ClusterSource, kind: WatchedKind, place: str | None, made: tuple[str, str], about: Any
    ) -> Cache:
        def changed(found: Object, gone: bool) -> None:
            if isinstance(about, AdmissibleKind):
                subject = subject_of(about, found.body)
                self._children.note(about.resource, found, subject.owner, gone=gone)
                self._changed(subject, gone)
            else:
                self._compare_all(about.changed(found.body, gone))

        cache: Cache

        def read() -> None:
            self._unread.discard(cache)
            if not self._unread:
                self._read.set()

        def refused(where: str | None, error: Refusal, times: int) -> None:
            read()
            if times == 2 and kind.plural in NEEDED:  # a server that has just started refuses everything once
                log.warning("%s in %s can't be watched: %s", kind.plural, where or "all namespaces", error)

        keeping = Kept(about, self._shares) if isinstance(about, AdmissibleKind) else None
        cache = Cache(kind, place, made, changed, read, refused, keeping)
        self._unread.add(cache)
        informer = Informer(
            source, cache, self.record, random.Random(), longest_pause=LONGEST_PAUSE, ask_again=ASK_AGAIN
        )
        self._following.append(asyncio.create_task(informer.run()))
        return cache

    async def _stop_following(self) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # -- leading ---------

    async def lead(self) -> None:
        """Let in what waits, until cancelled. Then everything is given back: the next leader begins anew."""
        try:
            async with asyncio.timeout(READY):
                await self._read.wait()
        except TimeoutError:
            log.warning("not everything that may wait is read yet; it is taken up as it comes")
        await self._read_anew()
        self._leads, self._looked = True, self._loop.time()
        beside = [asyncio.create_task(self._look()), asyncio.create_task(self._read_again())]
        try:
            await self._stand()
            for kind, cache in self._caches:
                for found in cache.everything():
                    self._changed(subject_of(kind, found.body), False)
            while True:
                await self._news.wait()
                self._news.clear()
                self._take_up()
        finally:
            self._leads = False
            under_way = [*beside, *self._judging.values(), *self._asking]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            cases, self._cases, self._dirty = list(self._cases.values()), {}, {}
            await asyncio.gather(*(case.aclose() for case in cases), return_exceptions=True)

    async def _read_anew(self) -> None:
        """Read all objects once more: a watch that was cut may not be back yet, and who led before has let some in."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READY):
                await asyncio.gather(*(self._read_into(cache) for _, cache in self._caches))

    async def _read_into(self, cache: Cache) -> None:
        try:
            async for page in self._source.pages(cache.kind, cache.namespace, cache.trim):
                for body in mappings(page.get("items")):
                    cache.note(object_of(dict(body)))
                del page  # not kept until the next one is here
        except (WatchAbsentError, WatchForbiddenError, WatchBrokenError) as error:
            log.debug("%s are not read anew: %s", cache.kind.plural, error)

    async def _stand(self) -> None:
        """Reserve first what runs already: what waits, though older, would be given the room of its next pods."""
        for kind, cache in self._caches:
            for found in cache.everything():
                if not kind.is_suspended(found.body):
                    self._changed(subject_of(kind, found.body), False)
        self._take_up()
        end = self._loop.time() + READY
        while under_way := {
            *self._judging.values(),
            *(case.work for case in self._cases.values() if case.work is not None),
        }:
            done, _ = await asyncio.wait(under_way, timeout=end - self._loop.time())
            if not done:
                log.warning("not all that runs has its room reserved yet; what waits is let in all the same")
                return

    def stuck(self) -> str:
        """Return why no object is let in although it leads: its own rounds have stopped; empty: they go on."""
        silent = self._loop.time() - self._looked if self._leads else 0.0
        return f"Jobs that wait were not looked at since {silent:.0f} s" if silent > STUCK else ""

    def waiting(self) -> list[dict[str, Any]]:
        """Return what waits or was refused, the eldest first, as documents for lists and pages."""
        found = [case for case in list(self._cases.values()) if case.state in (State.WAITING, State.REFUSED)]
        return [waiting_document(case) for case in sorted(found, key=lambda each: _age(each.subject))]

    def beyond(self) -> list[str]:
        """Return a sentence for each object that is beyond a bound, so that only a stub of it is kept."""
        return self._stubs.sentences()

    def states(self) -> Mapping[str, int]:
        """Return the number of objects in each state."""
        found = dict.fromkeys(map(str, State), 0)
        for case in list(self._cases.values()):
            found[case.state] += 1
        return found

    # -- what is seen ---------

    def _changed(self, subject: Subject, gone: bool) -> None:
        if self._leads and subject.uid:
            self._dirty[subject.uid] = subject, gone
            self._news.set()
            if (above := self._made_for(subject)) is not None:
                self._changed(above, False)

    async def _pods(self, namespace: str, marked: Mapping[str, str]) -> Sequence[JSON]:
        labels = ",".join(f"{name}={value}" for name, value in sorted(marked.items()))
        pods = WatchedKind("/api/v1", "pods", frozenset({"Pod"}), labels=labels)
        pages = self._source.pages(pods, namespace, shaped_pod)
        return [dict(pod) async for page in pages for pod in mappings(page.get("items"))]

    def _maker(self, kind: AdmissibleKind, body: Mapping[str, Any]) -> tuple[AdmissibleKind, Mapping[str, Any]] | None:
        """Return what says which pods come of an object, with that object's metadata; None: it is not made yet."""
        if not kind.made_through:
            return kind, body
        metadata = metadata_of(body)
        key = text(metadata.get("namespace")), text(metadata.get("name"))
        for each, found in self._named(kind.made_through, key):
            if (owner := controller_of(found)) is not None and owner.uid == metadata.get("uid"):
                return each, found if isinstance(found, Stub) else {**found, "metadata": metadata}
        return None

    def _made_for(self, subject: Subject) -> Subject | None:
        """Return the object of whose pods this one says what they are; None: it was not made for any."""
        owner = subject.owner
        above = None if owner is None else kind_of(owner, self.kinds)
        if owner is None or above is None or above.made_through != subject.kind.resource:
            return None
        named = self._named(above.resource, (subject.namespace, subject.name))
        found = (subject_of(kind, body) for kind, body in named)
        return next((each for each in found if each.uid == owner.uid), None)

    def _named(self, resource: str, key: Key) -> Iterator[tuple[AdmissibleKind, JSON]]:
        """Yield the objects of a resource with this namespace and name."""
        for kind, cache in self._caches:
            if kind.resource == resource and (found := cache.find(key)) is not None:
                yield kind, found.body

    def _noted(self, kind: AdmissibleKind, body: JSON, *, resumed: bool = False) -> Subject:
        found = object_of(body)
        for each, cache in self._caches:
            if each is kind and cache.namespace in (None, found.namespace):
                kept = cache.note(found)
                subject = self._read_before(kept) or subject_of(kind, kept.body)
                if resumed and (subject.is_suspended or subject.is_over):
                    self._changed(subject, False)  # a webhook of others may suspend it at once
                elif resumed and kept.uid in self._dirty and self._dirty[kept.uid][0] is subject:
                    del self._dirty[kept.uid]  # what follows from it is done by its case
                return subject
        raise AssertionError("what waits is in a namespace that is followed")

    def _read_before(self, kept: Object) -> Subject | None:
        """Return an object as the watch has shown it, taken up or not; None: it was not read yet."""
        case, reported = self._cases.get(kept.uid), self._dirty.get(kept.uid)
        if reported is not None and reported[0].body is kept.body:
            return reported[0]
        return case.subject if case is not None and case.subject.body is kept.body else None

    def _take_up(self) -> None:
        """Take up what has changed, in the order of creation. An object that can't be read harms no other."""
        dirty, self._dirty = self._dirty, {}
        for subject, gone in sorted(dirty.values(), key=lambda item: _age(item[0])):
            try:
                self._take(subject, gone=gone)
            except Exception as error:  # noqa: BLE001 - fails open
                self.gate.ledger.failed_open(error)

    def _take(self, subject: Subject, *, gone: bool) -> None:
        uid = subject.uid
        case = self._cases.get(uid)
        if gone:
            if case is not None:
                case.subject = subject
                self._step(case, Seen.GONE)
            return
        if case is None:
            if self._maker(subject.kind, subject.body) is None:
                return  # taken up once its controller has reported what it makes
            case = self._cases[uid] = Case(subject, self._desk)
        case.subject = subject
        above = self.surroundings.known_above(subject.namespace, subject.owner)
        if above is not None:
            self._step(case, seen_of(subject, self._left(subject, above)))
        elif uid not in self._judging:
            task = self._judging[uid] = asyncio.create_task(self._judge(case))
            task.add_done_callback(lambda _: self._judging.pop(uid, None))

    async def _judge(self, case: Case) -> None:
        try:
            while True:
                judged = case.subject
                seen = await self._seen(judged)
                if judged is case.subject:  # else it has changed meanwhile
                    break
        except Exception as error:  # noqa: BLE001 - fails open: one object harms no other
            self.gate.ledger.failed_open(error)
            return
        if self._cases.get(case.uid) is case:
            self._step(case, seen)

    async def _seen(self, subject: Subject) -> Seen:
        above = await self.surroundings.above(subject.namespace, subject.owner)
        return seen_of(subject, self._left(subject, above))

    def _left(self, subject: Subject, above: Sequence[Owner]) -> Left | None:
        by_us = True if self._has_ticket(subject.uid) else None
        waiting_in = self.surroundings.waiting_in
        return left_waiting(subject, kinds=self.kinds, above=above, waiting_in=waiting_in, by_us=by_us)

    def _has_ticket(self, uid: str) -> bool:
        """Return whether a gate of this process has made an object, with room for its pods: not as what is let in."""
        label, case = self.gate.ledger.gangs.label_of(uid), self._cases.get(uid)
        gang = None if case is None else case.room.gang
        return label is not None and not (gang is not None and gang.label == label)

    def _step(self, case: Case, seen: Seen) -> None:
        try:
            case.step(seen)
        except Exception as error:  # noqa: BLE001 - fails open: one object harms no other
            self.gate.ledger.failed_open(error)
        if seen is Seen.LEFT and (why := self._why_it_stays(case)):
            self._teller.say(case, "left-suspended", why)
        if seen in TOLD_WHY and (why := case.subject.why_it_runs()):
            self._teller.say(case, "not-suspended", why)
        if case.state is State.GONE:
            self._cases.pop(case.uid, None)

    def _why_it_stays(self, case: Case) -> str:
        subject = case.subject
        chain = self.surroundings.known_above(subject.namespace, subject.owner) or ()
        return subject.why_it_stays(self._left(subject, chain))

    def _compare_all(self, namespace: str | None) -> None:
        """Look again at what waits in a namespace whose LimitRanges have changed."""
        for case in list(self._cases.values()) if namespace else ():
            if case.namespace == namespace:
                self._changed(case.subject, False)

    # -- what controllers make beside pods ---------

    def _child(self, child: Child, gone: bool) -> None:
        if gone:
            if child.uid in self._counted:
                self._counted.discard(child.uid)
                self.gate.ledger.gangs.member_ended(child.namespace, child.uid)
        elif self._leads:
            case = self._case_of(child.owner.uid, child.namespace)
            if case is not None:
                self._give(case, child)
            elif child.owner.kind == POD and child.namespace in {each.namespace for each in self._cases.values()}:
                task = asyncio.create_task(self._give_later(child))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    def _case_in(self, namespace: str, uid: str) -> Case | None:
        """Return the case of an object; None in other namespaces, where who may write names its uid, too."""
        case = self._cases.get(uid)
        return case if case is not None and case.namespace == namespace else None

    def _case_of(self, uid: str, namespace: str) -> Case | None:
        """Return the case whose object stands above this one, as far as it is known here."""
        for _ in range(DEPTH):
            case, child = self._case_in(namespace, uid), self._children.find(uid)
            if case is not None and case.state is not State.LEFT:
                return case
            uid = child.owner.uid if child is not None else self.gate.ledger.gangs.root_of(uid)
            if not uid:
                break
        return None

    def _give(self, case: Case, child: Child) -> None:
        try:
            if case.child_made(child):
                self._counted.add(child.uid)
        except Exception as error:  # noqa: BLE001 - fails open: one object harms no other
            self.gate.ledger.failed_open(error)

    async def _give_later(self, child: Child) -> None:
        """Ask whose pod has brought it: its event may come before the pod's."""
        case = await self._above(child)
        if case is not None and self._children.find(child.uid) is not None:
            self._give(case, child)

    async def _above(self, child: Child) -> Case | None:
        for each in await self.surroundings.above(child.namespace, child.owner, whole=True):
            case = self._case_in(child.namespace, each.uid)
            if case is not None and case.state is not State.LEFT:
                return case
        return None

    async def _family(self, case: Case, resources: Container[str]) -> Sequence[Child]:
        """Return what controllers have made of an object, and of its pods, of these resources."""
        found = []
        for child in self._children.within(case.namespace, resources):
            above = self._case_of(child.owner.uid, child.namespace)
            if above is None and child.owner.kind == POD:
                above = await self._above(child)
            if above is case:
                found.append(child)
                self._counted.add(child.uid)
        return found

    # -- what others tell, on this loop ---------

    def pod_over(self, pod: Mapping[str, Any]) -> None:
        owner, metadata = controller_of(pod), metadata_of(pod)
        case = None if owner is None else self._cases.get(owner.uid)
        if case is not None:
            phase = text(mapping(pod.get("status")).get("phase"))
            case.pod_over(text(metadata.get("uid")), phase, text(metadata.get("resourceVersion")))

    def quota_edited(self, namespace: str) -> None:
        for case in list(self._cases.values()):
            if case.namespace == namespace and case.state is State.REFUSED:
                self._step(case, Seen.NEWS)

    async def _read_again(self) -> None:
        """Read what was beyond a bound, since others of its namespace may have gone."""
        while True:
            await asyncio.sleep(RETRY)
            try:
                await self._stubs.read_again(self._desk.objects)
            except Exception as error:  # noqa: BLE001 - fails open
                self.gate.ledger.failed_open(error)

    async def _look(self) -> None:
        """Tell of what waits; try again what was refused; stand again what an engine knew that has failed."""
        retried = self._loop.time()
        while True:
            await asyncio.sleep(LOOK)
            self._looked = self._loop.time()
            try:
                await self._teller.look(self._cases.values())
                if (now := self._loop.time()) - retried >= RETRY:
                    retried = now
                    for case in list(self._cases.values()):
                        self._step(case, Seen.NEWS)
                for case in list(self._cases.values()):
                    if case.is_forgotten():
                        self._step(case, Seen.RUNS)
                    case.settle()
            except Exception as error:  # noqa: BLE001 - fails open
                self.gate.ledger.failed_open(error)


NEEDED: Final = frozenset({"jobs", "limitranges", "priorityclasses"})
"""What every server has: others may be missing."""


class _Listener(Subscriber):
    """Hears of pods that end and quotas that are edited, from any thread."""

    def __init__(self, admitting: Admitting) -> None:
        self._admitting = admitting
        self._loop = asyncio.get_running_loop()
        self._specs: dict[tuple[str, str], Mapping[str, int]] = {}

    def member_over(self, pod: Mapping[str, Any]) -> None:
        self._loop.call_soon_threadsafe(self._admitting.pod_over, pod)

    def learned(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        if self._specs.get((namespace, quota)) != seen.spec:
            self._specs[namespace, quota] = seen.spec
            self._loop.call_soon_threadsafe(self._admitting.quota_edited, namespace)


def _has_room_for_whole(places: Places, path: Path) -> bool:
    return places.taken[path] < (WHOLE_OF_ONE if path else WHOLE)


def _age(subject: Subject) -> tuple[str, str, str]:
    """Return the order in which objects wait: that of their creation, of those of one second by version and name."""
    return subject.created, subject.namespace, subject.name

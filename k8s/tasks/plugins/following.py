"""Following the objects of tasks: a cache of what watches report, so that a task's step makes no request.

One informer per kind of object in all namespaces; where that is forbidden, one in each namespace that is asked for. One
more for each label that pods of custom resources carry, and for the Kubernetes events about each kind. ``Monitor``
counts the objects as they change.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from backoff_ctrl.k8s.kube.answers.fields import metadata_of
from backoff_ctrl.k8s.kube.answers.objects import Object
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.cache import Cache, Changed, Whole
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource, Informer, Refusal
from backoff_ctrl.k8s.kube.watching.objects import WatchedKind, WatchForbiddenError
from backoff_ctrl.k8s.kube.watching.shares import Shares
from backoff_ctrl.k8s.kube.watching.status import WatchRecord

from .events import EventBook
from .marks import MARKS, STORE, Key

log = logging.getLogger(__name__)

LONGEST_PAUSE: Final = 30.0
"""Seconds between two attempts after failures."""
ASK_AGAIN: Final = 60.0
"""The most seconds between two attempts after a 403 or a 404: a kind may be installed meanwhile."""
ZERO_FOR: Final = 300.0
"""Seconds for which a number that has fallen to 0 is shown as 0, before it is left out: dashboards must see it fall."""
GOING: Final = "deleting"
ENDED: Final = "ended"
LIVING: Final = "living"
PODS: Final = ("v1", "Pod")
EVENTS: Final = "/apis/events.k8s.io/v1"
EVENT: Final = ("events.k8s.io/v1", "Event")

Place = tuple[str, str, str]
"""Kind (``jobs.batch``), namespace and name; of a number, its state instead of the name."""
OF_OBJECT: Final = 1 << 20
OF_NAMESPACE: Final = 32 << 20
OF_ALL: Final = 96 << 20
"""Bytes of one object, of those of one namespace, and of all, that are kept. Each step of a task reads what is not."""


class EventStream(Cache):
    """An observer that passes events on without caching them: there are many, and few are about our objects."""

    def put(self, found: Object) -> None:
        self._changed(found, False)

    def remove(self, gone: Object) -> None:
        """Ignore the expiry of an event."""


class KindWatch:
    """Keeps the objects of one kind. ``need`` begins; everything runs in the event loop that called it."""

    def __init__(
        self,
        source: ClusterSource,
        kind: WatchedKind,
        made: tuple[str, str],
        changed: Changed,
        record: WatchRecord,
        rng: random.Random,
        keeper: Callable[..., Cache] = Cache,
    ) -> None:
        """``made`` is the API version and the kind of the objects; ``changed`` is called on each change.

        ``keeper`` makes what observes one place.
        """
        self._keeper = keeper
        self._source = source
        self._kind = kind
        self._made = made
        self._changed = changed
        self._record = record
        self._rng = rng
        self._caches: dict[str | None, Cache] = {}
        self._following: dict[str | None, asyncio.Task[None]] = {}
        self._needed: set[str] = set()
        self._apart = False  # all namespaces together are forbidden

    def need(self, namespace: str) -> None:
        self._needed.add(namespace)
        if None not in self._caches:
            self._start(None)
        if self._apart and namespace not in self._caches:
            self._start(namespace)

    def fed(self, namespace: str) -> bool:
        """Return whether all objects of this namespace are known, and changes are reported."""
        return any(cache.knows_all(namespace) for cache in self._of(namespace))

    def is_fed(self) -> bool:
        """Return whether that holds for every namespace that was asked for."""
        return all(self.fed(namespace) for namespace in list(self._needed))

    def find(self, namespace: str, name: str) -> Object | None:
        for cache in self._of(namespace):
            if cache.fed and (found := cache.find((namespace, name))) is not None:
                return found
        return None

    def note(self, found: Object) -> None:
        for cache in self._of(found.namespace):
            cache.note(found)

    async def aclose(self) -> None:
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, namespace: str) -> list[Cache]:
        return list(filter(None, map(self._caches.get, (None, namespace))))

    def _start(self, namespace: str | None) -> None:
        fed = self._together if namespace is None else (lambda: None)
        cache = self._keeper(self._kind, namespace, self._made, self._changed, fed, self._refused)
        informer = Informer(
            self._source, cache, self._record, self._rng, longest_pause=LONGEST_PAUSE, ask_again=ASK_AGAIN
        )
        self._caches[namespace], self._following[namespace] = cache, asyncio.create_task(informer.run())

    def _together(self) -> None:
        """All namespaces are watched together now: end the watches of single ones."""
        self._apart = False
        for namespace in [each for each in self._caches if each is not None]:
            del self._caches[namespace]
            self._following.pop(namespace).cancel()

    def _refused(self, namespace: str | None, error: Refusal, times: int) -> None:
        if times == 2:  # not after the first one: a server that has just started refuses everything
            where = namespace or "all namespaces"
            log.warning("%s in %s can't be watched, each step reads its object: %s", self._kind.plural, where, error)
        if namespace is None and isinstance(error, WatchForbiddenError):
            self._apart = True
            for each in sorted(self._needed - self._caches.keys()):
                self._start(each)


class Watches:
    """What is known of the objects of one store. Each watch begins when it is first asked for."""

    def __init__(
        self,
        session: ClusterSession,
        store: str,
        on_object: Callable[[Kind, Object, bool], object],
        on_pod: Callable[[Key], object],
        events: EventBook,
    ) -> None:
        """``on_object`` gets each object that changed, and whether it is gone; ``on_pod`` the keys whose pods changed.

        ``events`` takes the Kubernetes events about them, where those are asked for.
        """
        self.events = events
        self.record = WatchRecord()
        self._source = ClusterSource(session)
        self._store = store
        self._on_object = on_object
        self._on_pod = on_pod
        self._rng = random.Random()
        self._shares = Shares(OF_OBJECT, OF_NAMESPACE, OF_ALL)
        self._kinds: dict[Kind, KindWatch] = {}
        self._pods: dict[str, tuple[KindWatch, PodIndex]] = {}
        self._about: dict[str, KindWatch] = {}

    def need(self, kind: Kind, namespace: str) -> KindWatch:
        """Return the watch of a kind, which follows this namespace from now on."""
        watch = self._kinds.get(kind)
        if watch is None:
            watched = WatchedKind(kind.path, kind.plural, frozenset({kind.kind}), labels=f"{STORE}={self._store}")
            watch = self._kinds[kind] = self._watch(
                watched, (kind.api_version, kind.kind), lambda found, gone: self._on_object(kind, found, gone)
            )
        watch.need(namespace)
        return watch

    def need_events(self, kind: Kind, namespace: str) -> None:
        watch = self._about.get(kind.kind)
        if watch is None:
            events = WatchedKind(EVENTS, "events", frozenset({"Event"}), fields=f"regarding.kind={kind.kind}")
            watch = self._about[kind.kind] = self._watch(
                events, EVENT, lambda found, _: self.events.changed(found.body), EventStream
            )
        watch.need(namespace)

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return the last known state of an object of ours; None: it is not known."""
        watch = self._kinds.get(kind)
        return None if watch is None else watch.find(namespace, name)

    def note(self, kind: Kind, found: Object) -> None:
        watch = self._kinds.get(kind)
        if watch is not None:
            watch.note(found)

    def pods(self, namespace: str, labels: Mapping[str, str], key: Key) -> tuple[JSON, ...] | None:
        """Return the pods with these labels; None: they are not known yet, and have to be read from the server.

        From now on ``on_pod`` reports changes of them for ``key``.

        They are watched by one label, with any value: so one watch serves all objects of an operator.
        """
        name = min(labels)
        if name not in self._pods:
            index = PodIndex(name, self._on_pod)
            watched = WatchedKind("/api/v1", "pods", frozenset({"Pod"}), labels=name)
            self._pods[name] = self._watch(watched, PODS, index.changed), index
        watch, index = self._pods[name]
        watch.need(namespace)
        index.tell(namespace, labels[name], key)
        if not watch.fed(namespace):
            return None
        return tuple(pod for pod in index.find(namespace, labels[name]) if _carries(pod, labels))

    def forget(self, key: Key) -> None:
        for _, index in self._pods.values():
            index.forget(key)

    async def aclose(self) -> None:
        for watch in [*self._kinds.values(), *self._about.values(), *(watch for watch, _ in self._pods.values())]:
            await watch.aclose()

    def _watch(
        self,
        kind: WatchedKind,
        made: tuple[str, str],
        changed: Changed,
        keeper: type[Cache] = Cache,
    ) -> KindWatch:
        bounded = partial(keeper, keeping=Whole(self._shares, MARKS))
        return KindWatch(self._source, kind, made, changed, self.record, self._rng, bounded)

    def states(self) -> Iterator[tuple[str, bool]]:
        """Return for each kind whether it is watched in all namespaces that were asked for."""
        for kind, watch in list(self._kinds.items()):
            yield kind.resource, watch.is_fed()


class PodIndex:
    """Pods by namespace and the value of one label."""

    def __init__(self, label: str, on_pod: Callable[[Key], object]) -> None:
        """Start empty. ``on_pod`` is called on each change of pods that were asked for."""
        self._label = label
        self._on_pod = on_pod
        self._askers: dict[tuple[str, str], Key] = {}
        self._asked: dict[Key, tuple[str, str]] = {}
        self._found: dict[tuple[str, str], dict[str, JSON]] = {}

    def changed(self, pod: Object, gone: bool) -> None:
        place = pod.namespace, str(pod.labels.get(self._label) or "")
        pods = self._found.setdefault(place, {})
        if gone:
            pods.pop(pod.name, None)
        else:
            pods[pod.name] = dict(pod.body)
        if not pods:
            del self._found[place]
        asker = self._askers.get(place)
        if asker is not None:
            self._on_pod(asker)

    def tell(self, namespace: str, value: str, key: Key) -> None:
        self._askers[namespace, value] = key
        self._asked[key] = namespace, value

    def forget(self, key: Key) -> None:
        place = self._asked.pop(key, None)
        if place is not None and self._askers.get(place) == key:
            del self._askers[place]

    def find(self, namespace: str, value: str) -> list[JSON]:
        return [pod for _, pod in sorted(self._found.get((namespace, value), {}).items())]


def _carries(pod: JSON, labels: Mapping[str, str]) -> bool:
    found = metadata_of(pod).get("labels") or {}
    return all(found.get(name) == value for name, value in labels.items())


class Monitor:
    """Written by one event loop, read from any thread: each step is a single dict operation."""

    def __init__(
        self, is_terminal: Callable[[Kind, Object], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``is_terminal`` asks a kind's plugin whether an object has ended."""
        self._is_terminal = is_terminal
        self._clock = clock
        self._states: dict[Place, str] = {}
        self._numbers: Counter[Place] = Counter()
        self._zero_since: dict[Place, float] = {}

    def changed(self, kind: Kind, found: Object, gone: bool) -> None:
        resource, (namespace, name) = kind.resource, found.key
        place = resource, namespace, name
        before = self._states.pop(place, None)
        after = None if gone else self._state(kind, found)
        if after is not None:
            self._states[place] = after
        if before == after:
            return
        if before is not None:
            self._count((resource, namespace, before), -1)
        if after is not None:
            self._count((resource, namespace, after), 1)

    def numbers(self) -> Iterator[tuple[Place, int]]:
        """Return the number of objects by kind, namespace and state; one that fell to 0 as 0, for a while."""
        now = self._clock()
        for place, number in list(self._numbers.items()):
            if number or now - self._zero_since.get(place, now) < ZERO_FOR:
                yield place, number
            elif self._numbers.get(place) == 0:
                self._zero_since.pop(place, None)
                del self._numbers[place]

    def _state(self, kind: Kind, found: Object) -> str:
        if found.is_going:
            return GOING
        return ENDED if self._is_terminal(kind, found) else LIVING

    def _count(self, place: Place, more: int) -> None:
        self._numbers[place] += more
        if self._numbers[place] == 0:
            self._zero_since[place] = self._clock()

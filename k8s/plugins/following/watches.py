"""All watches of a plugin manager: one per kind of object, and one per label that pods of custom resources carry."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.marks import STORE, metadata_of
from backoff_ctrl.k8s.watching.objects import Kind as WatchedKind
from backoff_ctrl.k8s.watching.source import ClusterSource
from backoff_ctrl.k8s.watching.status import WatchRecord

from .cache import Cache
from .events import EventStream
from .kind_watch import KindWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from backoff_ctrl.k8s.cluster.session import ClusterSession
    from backoff_ctrl.k8s.plugins.marks import Key
    from backoff_ctrl.k8s.plugins.protocol import JSON, Kind

    from .events import EventBook

PODS: Final = ("v1", "Pod")
EVENTS: Final = "/apis/events.k8s.io/v1"
EVENT: Final = ("events.k8s.io/v1", "Event")


class Watches:
    """What is known of the objects of one store. Each watch begins when it is first asked for."""

    def __init__(
        self,
        session: ClusterSession,
        store: str,
        on_object: Callable[[Kind, JSON, bool], object],
        on_pod: Callable[[Key], object],
        events: EventBook,
    ) -> None:
        """``on_object`` is told of each object that changed, and whether it is gone; ``on_pod`` of the keys whose
        pods changed.

        ``events`` takes the Kubernetes events about them, where those are asked for.
        """
        self.events = events
        self.record = WatchRecord()
        self._source = ClusterSource(session)
        self._store = store
        self._on_object = on_object
        self._on_pod = on_pod
        self._rng = random.Random()
        self._kinds: dict[Kind, KindWatch] = {}
        self._pods: dict[str, tuple[KindWatch, PodIndex]] = {}
        self._about: dict[str, KindWatch] = {}

    def need(self, kind: Kind, namespace: str) -> None:
        """Watch our objects of this kind in this namespace."""
        watch = self._kinds.get(kind)
        if watch is None:
            watched = WatchedKind(kind.path, kind.plural, frozenset({kind.kind}), labels=f"{STORE}={self._store}")
            watch = self._kinds[kind] = self._watch(
                watched, (kind.api_version, kind.kind), lambda body, gone: self._on_object(kind, body, gone)
            )
        watch.need(namespace)

    def need_events(self, kind: Kind, namespace: str) -> None:
        """Follow the Kubernetes events about objects of this kind in this namespace."""
        watch = self._about.get(kind.kind)
        if watch is None:
            events = WatchedKind(EVENTS, "events", frozenset({"Event"}), fields=f"regarding.kind={kind.kind}")
            watch = self._about[kind.kind] = self._watch(events, EVENT, self.events.changed, EventStream)
        watch.need(namespace)

    def fed(self, kind: Kind, namespace: str) -> bool:
        """Say whether every object of ours of this kind and namespace is known."""
        watch = self._kinds.get(kind)
        return watch is not None and watch.fed(namespace)

    def find(self, kind: Kind, namespace: str, name: str) -> JSON | None:
        """Return an object of ours as it was seen last; None: it is not known."""
        watch = self._kinds.get(kind)
        return None if watch is None else watch.find(namespace, name)

    def note(self, kind: Kind, resource: JSON) -> None:
        """Take in an object that an answer showed."""
        watch = self._kinds.get(kind)
        if watch is not None:
            watch.note(str(metadata_of(resource).get("namespace") or ""), resource)

    def everything(self) -> Iterator[tuple[Kind, JSON]]:
        """Return all objects of ours that are known, with their kinds."""
        for kind, watch in list(self._kinds.items()):
            for resource in watch.everything():
                yield kind, resource

    def pods(self, namespace: str, labels: Mapping[str, str], key: Key) -> tuple[JSON, ...] | None:
        """Return the pods with these labels; None: they are not known yet, who needs them has to read them.

        ``key`` asks, and is told of changes from now on.

        They are watched by one label, whatever its value: so one watch serves all objects of an operator.
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
        """Tell this key nothing any more of pods."""
        for _, index in self._pods.values():
            index.forget(key)

    async def aclose(self) -> None:
        """End all watches."""
        for watch in [*self._kinds.values(), *self._about.values(), *(watch for watch, _ in self._pods.values())]:
            await watch.aclose()

    def _watch(
        self,
        kind: WatchedKind,
        made: tuple[str, str],
        changed: Callable[[dict[str, Any], bool], object],
        keeper: type[Cache] = Cache,
    ) -> KindWatch:
        return KindWatch(self._source, kind, made, changed, self.record, self._rng, keeper)

    def states(self) -> Iterator[tuple[str, bool]]:
        """Say of each kind whether it is watched in all namespaces that were asked for."""
        for kind, watch in list(self._kinds.items()):
            yield kind.resource, watch.is_fed()


class PodIndex:
    """Pods by namespace and the value of one label."""

    def __init__(self, label: str, on_pod: Callable[[Key], object]) -> None:
        """Start empty. ``on_pod`` is told of each change that somebody asked for."""
        self._label = label
        self._on_pod = on_pod
        self._askers: dict[tuple[str, str], Key] = {}
        self._asked: dict[Key, tuple[str, str]] = {}
        self._found: dict[tuple[str, str], dict[str, JSON]] = {}

    def changed(self, pod: JSON, gone: bool) -> None:
        """Take in a change."""
        metadata = metadata_of(pod)
        value = str((metadata.get("labels") or {}).get(self._label) or "")
        place = str(metadata.get("namespace") or ""), value
        pods = self._found.setdefault(place, {})
        if gone:
            pods.pop(str(metadata.get("name")), None)
        else:
            pods[str(metadata.get("name"))] = pod
        if not pods:
            del self._found[place]
        asker = self._askers.get(place)
        if asker is not None:
            self._on_pod(asker)

    def tell(self, namespace: str, value: str, key: Key) -> None:
        """Tell this key of changes of the pods with this value."""
        self._askers[namespace, value] = key
        self._asked[key] = namespace, value

    def forget(self, key: Key) -> None:
        """Tell it nothing any more."""
        place = self._asked.pop(key, None)
        if place is not None and self._askers.get(place) == key:
            del self._askers[place]

    def find(self, namespace: str, value: str) -> list[JSON]:
        """Return the pods with this value of the label, by name."""
        return [pod for _, pod in sorted(self._found.get((namespace, value), {}).items())]


def _carries(pod: JSON, labels: Mapping[str, str]) -> bool:
    found = metadata_of(pod).get("labels") or {}
    return all(found.get(name) == value for name, value in labels.items())

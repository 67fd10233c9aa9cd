"""Objects by kind, namespace and name; one version counter for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.answers import already_exists, not_found
from backoff_ctrl.k8s.sandbox.wire.encoding import JSON, dump, load

from .history import ADDED, DELETED, MODIFIED, Event, History, Pacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind

    Listener = Callable[["Kind", Event, JSON], None]


class Stored:
    """One object as the store keeps it: serialised, with indexed metadata."""

    __slots__ = ("data", "labels", "name", "namespace", "uid", "version")

    def __init__(self, obj: JSON, data: bytes, version: int) -> None:
        """Index the metadata that lists and watches need most."""
        metadata = obj["metadata"]
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self.uid: str = metadata["uid"]
        self.labels: dict[str, str] | None = metadata.get("labels")
        self.version = version
        self.data = data

    def parse(self) -> JSON:
        """Parse a private copy, which the caller may change."""
        return load(self.data)


class Collection:
    """All objects of one kind, and their history."""

    def __init__(self, history: History) -> None:
        """Start without objects."""
        self.history = history
        self.namespaces: dict[str, dict[str, Stored]] = {}

    def get(self, namespace: str, name: str) -> Stored | None:
        """One object, or None."""
        return self.namespaces.get(namespace, {}).get(name)

    def within(self, namespace: str | None) -> Iterator[Stored]:
        """The objects of one namespace, or of all (``None``), unsorted."""
        if namespace is not None:
            yield from self.namespaces.get(namespace, {}).values()
            return
        for objects in self.namespaces.values():
            yield from objects.values()


class Store:
    """The only place that changes objects: it numbers each change and calls the listeners at once."""

    def __init__(self, pacing: Pacing, remembered: int = 20_000) -> None:
        """Remember at least ``remembered`` events of each kind."""
        self.version = 1
        self._pacing = pacing
        self._remembered = remembered
        self._collections: dict[Kind, Collection] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call ``listener(kind, event, object)`` during every change; it must not keep or change the object."""
        self._listeners.append(listener)

    def of(self, kind: Kind) -> Collection:
        """The collection of a kind; an empty one is made at first use."""
        collection = self._collections.get(kind)
        if collection is None:
            collection = self._collections[kind] = Collection(History(self._remembered, self._pacing))
        return collection

    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that have ever held an object."""
        return tuple(self._collections)

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """One object. Raises 404."""
        found = self.of(kind).get(namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def check_free(self, kind: Kind, namespace: str, name: str) -> None:
        """Raise 409 where a name is taken; the message tells whether that object is being deleted."""
        found = self.of(kind).get(namespace, name)
        if found is not None:
            raise already_exists(kind, name, terminating=b'"deletionTimestamp"' in found.data)

    def insert(self, kind: Kind, obj: JSON) -> Stored:
        """Store a new object. Raises 409 where the name is taken."""
        metadata = obj["metadata"]
        objects = self.of(kind).namespaces.setdefault(metadata.get("namespace", ""), {})
        self.check_free(kind, metadata.get("namespace", ""), metadata["name"])
        return self._put(kind, objects, obj, ADDED, None)

    def replace(self, kind: Kind, old: Stored, obj: JSON) -> Stored:
        """Store a new version of ``old``."""
        objects = self.of(kind).namespaces[old.namespace]
        return self._put(kind, objects, obj, MODIFIED, old.data)

    def remove(self, kind: Kind, old: Stored) -> JSON:
        """Remove an object and return its last state."""
        collection = self.of(kind)
        objects = collection.namespaces[old.namespace]
        del objects[old.name]
        if not objects:
            del collection.namespaces[old.namespace]
        self.version += 1
        obj = old.parse()
        obj["metadata"]["resourceVersion"] = str(self.version)
        event = Event(self.version, DELETED, old.namespace, old.name, dump(obj), old.data)
        self._tell(kind, collection, event, obj)
        return obj

    def compact(self) -> None:
        """Forget all history: a watch that resumes from an older version gets 410."""
        for collection in self._collections.values():
            collection.history.forget_all(self.version)

    def _put(self, kind: Kind, objects: dict[str, Stored], obj: JSON, change: str, previous: bytes | None) -> Stored:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        stored = Stored(obj, dump({"kind": kind.kind, "apiVersion": kind.api_version, **obj}), self.version)
        objects[stored.name] = stored
        event = Event(self.version, change, stored.namespace, stored.name, stored.data, previous)
        self._tell(kind, self.of(kind), event, obj)
        return stored

    def _tell(self, kind: Kind, collection: Collection, event: Event, obj: JSON) -> None:
        collection.history.append(event)
        for listener in self._listeners:
            listener(kind, event, obj)

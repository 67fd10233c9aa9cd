"""Objects by kind, namespace and name, one version counter for all of them, and the history that watches read.

The store is the only place that changes objects. It numbers each change,
appends it to the history of its kind and calls the listeners at once; watchers see it then, or later (``Pacing``).
"""

from __future__ import annotations

import asyncio
import bisect
import random
from collections.abc import Callable, Iterator

from .answers import already_exists, expired, not_found
from .kinds import Kind
from .texts import JSON, dump, load

Listener = Callable[[Kind, "Event", JSON], None]

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class Event:
    """One change. ``data`` is the object after it (for DELETED: its last state), ``previous`` the object before it."""

    __slots__ = ("_line", "_object", "_previous_object", "data", "name", "namespace", "previous", "type", "version")

    def __init__(
        self, version: int, type_: str, namespace: str, name: str, data: bytes, previous: bytes | None
    ) -> None:
        self.version = version
        self.type = type_
        self.namespace = namespace
        self.name = name
        self.data = data
        self.previous = previous
        self._line: bytes | None = None
        self._object: JSON | None = None
        self._previous_object: JSON | None = None

    @property
    def line(self) -> bytes:
        if self._line is None:
            self._line = watch_line(self.type, self.data)
        return self._line

    @property
    def object(self) -> JSON:
        """The object, parsed once for all watchers: do not change it."""
        if self._object is None:
            self._object = load(self.data)
        return self._object

    @property
    def previous_object(self) -> JSON | None:
        """The object before the change, parsed once: do not change it."""
        if self._previous_object is None and self.previous is not None:
            self._previous_object = load(self.previous)
        return self._previous_object


def watch_line(type_: str, data: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), data)


class History:
    """A bounded log of events. Watchers see them up to ``visible``, which may trail the stored ones."""

    def __init__(self, capacity: int, pacing: Pacing) -> None:
        self._capacity = capacity
        self._pacing = pacing
        self._events: list[Event] = []
        self._versions: list[int] = []
        self._first = 0  # absolute position of _events[0]
        self._forgotten = 0  # version of the newest event that was dropped
        self._waiters: set[asyncio.Future[None]] = set()
        self.visible = 0
        self.held = False

    def append(self, event: Event) -> None:
        self._events.append(event)
        self._versions.append(event.version)
        if len(self._events) >= 2 * self._capacity:
            self._forget(len(self._events) - self._capacity)
        self._pacing.publish(self)

    def forget_all(self, version: int) -> None:
        """Compact: a watch that resumes from a version below ``version`` gets 410."""
        self._forget(len(self._events))
        self._forgotten = max(self._forgotten, version)

    def _forget(self, count: int) -> None:
        if count:
            self._forgotten = self._versions[count - 1]
            del self._events[:count], self._versions[:count]
            self._first += count
            self.visible = max(self.visible, self._first)

    def show(self) -> None:
        self.held = False
        self.visible = self._first + len(self._events)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def position_after(self, version: int) -> int:
        """Where a watch from this version starts. Raises 410 when later events were dropped."""
        if version < self._forgotten:
            raise expired(f"too old resource version: {version} ({self._forgotten})")
        return self._first + bisect.bisect_right(self._versions, version)

    def read(self, position: int) -> list[Event]:
        """The visible events from an absolute position on. Raises 410 when they were dropped."""
        if position < self._first:
            raise expired("The resourceVersion for the provided watch is too old.")
        return self._events[position - self._first : self.visible - self._first]

    def since(self, version: int) -> list[Event]:
        """All stored events after ``version``, visible or not. Raises 410 when some were dropped."""
        return self._events[self.position_after(version) - self._first :]

    async def changed(self, within: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(within):
                await waiter
        except TimeoutError:
            self._waiters.discard(waiter)


class Pacing:
    """When watchers see an event: mostly before the request that caused it is answered, sometimes after.

    ``late_share`` of the events, and all that follow them meanwhile, are delayed by up to ``late_max`` seconds.
    A real server shows 1 % of quota charges after the answer, up to 5 ms late.
    """

    def __init__(self, rng: random.Random, late_share: float, late_max: float) -> None:
        self._rng = rng
        self.late_share = late_share
        self.late_max = late_max
        self.loop: asyncio.AbstractEventLoop | None = None

    def later(self, delay: float, work: Callable[[str], None], name: str) -> None:
        """Do ``work(name)`` in ``delay`` seconds; at once while the server does not run."""
        if self.loop is None:
            work(name)
        else:
            self.loop.call_later(delay, work, name)

    def publish(self, history: History) -> None:
        """Show the newest event now, or schedule it for later."""
        if history.held:
            return
        if self.loop is None or self._rng.random() >= self.late_share:
            history.show()
            return
        history.held = True
        self.loop.call_later(self._rng.uniform(0, self.late_max), history.show)


class Stored:
    """One object as the store keeps it: serialised, with indexed metadata."""

    __slots__ = ("data", "labels", "name", "namespace", "uid", "version")

    def __init__(self, obj: JSON, data: bytes, version: int) -> None:
        metadata = obj["metadata"]
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self.uid: str = metadata["uid"]
        self.labels: dict[str, str] | None = metadata.get("labels")
        self.version = version
        self.data = data

    def parse(self) -> JSON:
        return load(self.data)


class Collection:
    def __init__(self, history: History) -> None:
        self.history = history
        self.namespaces: dict[str, dict[str, Stored]] = {}

    def get(self, namespace: str, name: str) -> Stored | None:
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
        self.version = 1
        self._pacing = pacing
        self._remembered = remembered
        self._collections: dict[Kind, Collection] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call ``listener(kind, event, object)`` during every change; it must not keep or change the object."""
        self._listeners.append(listener)

    def of(self, kind: Kind) -> Collection:
        collection = self._collections.get(kind)
        if collection is None:
            collection = self._collections[kind] = Collection(History(self._remembered, self._pacing))
        return collection

    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self._collections)

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
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
        metadata = obj["metadata"]
        objects = self.of(kind).namespaces.setdefault(metadata.get("namespace", ""), {})
        self.check_free(kind, metadata.get("namespace", ""), metadata["name"])
        return self._put(kind, objects, obj, ADDED, None)

    def replace(self, kind: Kind, old: Stored, obj: JSON) -> Stored:
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

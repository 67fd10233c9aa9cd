"""What follows a delete: dependents are deleted with their owner, namespaces are emptied."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.kinds.kinds import NAMESPACES
from backoff_ctrl.k8s.sandbox.storage.history import DELETED
from backoff_ctrl.k8s.sandbox.storage.identity import timestamp

from .namespace_conditions import set_conditions

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.sandbox.core import Core
    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.storage.history import Event
    from backoff_ctrl.k8s.sandbox.storage.store import Stored
    from backoff_ctrl.k8s.sandbox.verbs.deleting import Deleter
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    Place = tuple[Kind, str, str]

_DELAY = 0.005  # seconds: the collector acts only after the answer, as the real ones do
_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"


class GarbageCollector:
    """Follows owners and namespaces, and a little later deletes what belongs to deleted ones."""

    def __init__(self, core: Core, deleter: Deleter) -> None:
        """Subscribe to the store; ``deleter`` performs the deletes."""
        self._core = core
        self._deleter = deleter
        self._dependents: dict[str, set[Place]] = {}
        self._foreground: dict[str, Place] = {}  # by uid, owners that wait until their dependents are gone
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: dict[tuple[str, object], asyncio.TimerHandle] = {}
        core.store.listen(self._follow)

    def start(self) -> None:
        """Schedule work on the running loop from now on."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Cancel all work that is scheduled."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._loop = None

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        metadata = obj["metadata"]
        place = (kind, event.namespace, event.name)
        for owner in metadata.get("ownerReferences") or ():
            dependents = self._dependents.setdefault(owner.get("uid", ""), set())
            if event.type == DELETED:
                dependents.discard(place)
                if owner.get("uid", "") in self._foreground:
                    self._later(self._release_owner, owner["uid"])
            else:
                dependents.add(place)
        if event.type == DELETED:
            self._foreground.pop(metadata["uid"], None)
            if metadata["uid"] in self._dependents:
                self._later(self._delete_dependents, metadata["uid"])
            if event.namespace:
                self._empty_if_terminating(event.namespace)
        elif metadata.get("deletionTimestamp"):
            if kind is NAMESPACES:
                self._later(self._empty, event.name)
            elif {_FOREGROUND, _ORPHAN}.intersection(metadata.get("finalizers") or ()):
                if _FOREGROUND in metadata["finalizers"]:
                    self._foreground[metadata["uid"]] = place
                self._later(self._settle_owner, place)

    def _later(self, work: Callable[[Any], None], argument: object) -> None:
        """Do ``work(argument)`` in a moment; work that is scheduled already is not scheduled again."""
        key = (work.__name__, argument)
        if self._loop is None or key in self._timers:
            return

        def run() -> None:
            del self._timers[key]
            work(argument)

        self._timers[key] = self._loop.call_later(_DELAY, run)

    def _empty_if_terminating(self, namespace: str) -> None:
        stored = self._core.store.of(NAMESPACES).get("", namespace)
        if stored is not None and b'"deletionTimestamp"' in stored.data:
            self._later(self._empty, namespace)

    def _find(self, place: Place) -> Stored | None:
        kind, namespace, name = place
        return self._core.store.of(kind).get(namespace, name)

    def _delete_dependents(self, uid: str) -> None:
        """Background: the owner is gone. Dependents that have another owner stay."""
        for place in list(self._dependents.get(uid, ())):
            stored = self._find(place)
            if stored is None:
                continue
            owners = stored.parse()["metadata"].get("ownerReferences") or []
            if any(owner.get("uid") != uid for owner in owners):
                self._drop_owner(place, stored, uid)
            else:
                self._deleter.remove(place[0], stored, {"propagationPolicy": "Background"})
        self._dependents.pop(uid, None)

    def _settle_owner(self, place: Place) -> None:
        """Foreground and orphan: deal with the dependents, then release the owner."""
        stored = self._find(place)
        if stored is None:
            return
        metadata = stored.parse()["metadata"]
        finalizers = metadata.get("finalizers") or []
        if _ORPHAN in finalizers:
            for dependent in list(self._dependents.pop(stored.uid, ())):
                found = self._find(dependent)
                if found is not None:
                    self._drop_owner(dependent, found, stored.uid)
            self._drop_finalizer(place, stored, _ORPHAN)
        elif _FOREGROUND in finalizers:
            waiting = [each for each in self._dependents.get(stored.uid, ()) if self._find(each) is not None]
            for dependent in waiting:
                found = self._find(dependent)
                if found is not None and not found.parse()["metadata"].get("deletionTimestamp"):
                    self._deleter.remove(dependent[0], found, {"propagationPolicy": "Foreground"})
            if not waiting:
                self._drop_finalizer(place, stored, _FOREGROUND)

    def _release_owner(self, uid: str) -> None:
        """A dependent is gone: release an owner that was waiting for its last dependent."""
        place = self._foreground.get(uid)
        if place is not None and not self._dependents.get(uid):
            self._settle_owner(place)

    def _drop_owner(self, place: Place, stored: Stored, uid: str) -> None:
        obj = stored.parse()
        kept = [owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("uid") != uid]
        if kept:
            obj["metadata"]["ownerReferences"] = kept
        else:
            obj["metadata"].pop("ownerReferences", None)
        self._core.store.replace(place[0], stored, obj)

    def _drop_finalizer(self, place: Place, stored: Stored, name: str) -> None:
        obj = stored.parse()
        rest = [each for each in obj["metadata"].get("finalizers") or () if each != name]
        if rest:
            obj["metadata"]["finalizers"] = rest
        else:
            obj["metadata"].pop("finalizers", None)
        if rest or obj["metadata"].get("deletionGracePeriodSeconds"):
            self._core.store.replace(place[0], stored, obj)
        else:
            self._core.store.remove(place[0], stored)

    def _empty(self, namespace: str) -> None:
        """Delete everything in a namespace, then the namespace itself; if objects remain, say so in its conditions."""
        left: dict[str, list[JSON]] = {}
        for kind in self._core.store.kinds():
            for stored in list(self._core.store.of(kind).within(namespace)) if kind.namespaced else ():
                obj, gone = self._deleter.remove(kind, stored, {"gracePeriodSeconds": 0})
                if not gone:
                    left.setdefault(f"{kind.plural}.{kind.group}", []).append(obj)
        stored_namespace = self._core.store.of(NAMESPACES).get("", namespace)
        if stored_namespace is None:
            return
        obj = stored_namespace.parse()
        if left:
            set_conditions(obj, left, timestamp(self._core.clock()))
            if obj != stored_namespace.parse():
                self._core.store.replace(NAMESPACES, stored_namespace, obj)
        elif not obj["metadata"].get("finalizers"):
            self._core.store.remove(NAMESPACES, stored_namespace)

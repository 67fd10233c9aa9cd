"""Controllers beside the quota controller: garbage collection, the end of namespaces, and what each one contains.

``pkg/controller/{garbagecollector,namespace,serviceaccount,certificates/rootcacertpublisher}`` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from backoff_ctrl.k8s.sandbox.core import Core
from backoff_ctrl.k8s.sandbox.objects.answers import ApiError
from backoff_ctrl.k8s.sandbox.objects.kinds import NAMESPACES, Kind
from backoff_ctrl.k8s.sandbox.objects.metadata import timestamp
from backoff_ctrl.k8s.sandbox.objects.store import DELETED, Event, Stored
from backoff_ctrl.k8s.sandbox.objects.texts import JSON
from backoff_ctrl.k8s.sandbox.verbs.deleting import Deleter
from backoff_ctrl.k8s.sandbox.verbs.requests import Target
from backoff_ctrl.k8s.sandbox.verbs.writing import Writer

Place = tuple[Kind, str, str]


_FIXED = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions",
     "All legacy kube types successfully parsed"),
    ("NamespaceDeletionContentFailure", "ContentDeleted",
     "All content successfully deleted, may be waiting on finalization"),
)  # fmt: skip


def set_conditions(namespace: JSON, left: Mapping[str, list[JSON]], now: str) -> None:
    """State what remains, by resource (``configmaps.``, ``jobs.batch``), and which finalizers keep it."""
    finalizers = Counter(
        finalizer
        for objects in left.values()
        for obj in objects
        for finalizer in obj["metadata"].get("finalizers") or ()
    )
    resources = ", ".join(f"{name} has {len(objects)} resource instances" for name, objects in sorted(left.items()))
    holders = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    conditions = [(type_, "False", reason, message) for type_, reason, message in _FIXED]
    conditions.append(
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", f"Some resources are remaining: {resources}")
    )
    if holders:
        text = f"Some content in the namespace has finalizers remaining: {holders}"
        conditions.append(("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", text))
    else:
        text = "All content-preserving finalizers finished"
        conditions.append(("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", text))
    status = namespace.setdefault("status", {})
    before = {each["type"]: each for each in status.get("conditions") or ()}
    status["conditions"] = [
        {
            "type": type_,
            "status": value,
            "lastTransitionTime": before[type_]["lastTransitionTime"]
            if type_ in before and before[type_]["status"] == value
            else now,
            "reason": reason,
            "message": message,
        }
        for type_, value, reason, message in conditions
    ]


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


ACCOUNT: Final[JSON] = {"metadata": {"name": "default"}}
_ROOT_CA: Final = """\
-----BEGIN CERTIFICATE-----
MIIBlDCCATmgAwIBAgIUB7F5qpypid59fhieqcGwNRlZzdAwCgYIKoZIzj0EAwIw
HjEcMBoGA1UEAwwTc2FuZGJveC13aXRob3V0LXRsczAgFw0yNjExMjIyMDQ5MTha
GA8yMTI2MTAyOTIwNDkxOFowHjEcMBoGA1UEAwwTc2FuZGJveC13aXRob3V0LXRs
czBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOmOfRSKQfqUTJ4NQW97WY8P62Fw
64BkXjUWg6tmG7NRdCIXboLk2saCeX1cP2UDzmC6L2LSonVk5XS9ZChFDPCjUzBR
MB0GA1UdDgQWBBSdIijveS/LSGxsV+08ANsTToJBSDAfBgNVHSMEGDAWgBSdIijv
eS/LSGxsV+08ANsTToJBSDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kA
MEYCIQD7RXbQhD+eJR50LfPKy1OGmy5v2ke7nALYYjj8q70T6wIhAOg33ksuhTqc
L5CoI7h1raO5HhmwLl5Ed6OSKbR7GIN0
-----END CERTIFICATE-----
"""
"""A certificate that signs nothing, its key was thrown away: the sandbox speaks HTTP."""
_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
ROOT_CA: Final[JSON] = {
    "metadata": {"name": "kube-root-ca.crt", "annotations": {"kubernetes.io/description": _DESCRIPTION}},
    "data": {"ca.crt": _ROOT_CA},
}
_CONTENTS_DELAY = 0.002  # seconds: the controllers act only after the answer
_RETRY = 1.0  # seconds until a write that a quota refused is tried again


class NamespaceContents:
    """Creates an object in every active namespace, and again when it is deleted. A quota may refuse it.

    What another client changes of its data and annotations is undone, as for ``kube-root-ca.crt``.
    """

    def __init__(self, core: Core, kind: Kind, wanted: JSON) -> None:
        """Subscribe to the store. ``wanted`` is the object, of this kind."""
        self._core = core
        # a generator of its own: when it is made depends on the loop, and the seed must decide all other names
        self._writer = Writer(core, random.Random(f"{core.settings.seed} {kind.plural}"))
        self._kind = kind
        self._wanted = wanted
        self._name = str(wanted["metadata"]["name"])
        core.store.listen(self._follow)

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        if kind is NAMESPACES and event.type != DELETED and not obj["metadata"].get("deletionTimestamp"):
            self._later(_CONTENTS_DELAY, event.name)
        elif kind is self._kind and event.name == self._name and (event.type == DELETED or self._differs(obj)):
            self._later(_CONTENTS_DELAY, event.namespace)

    def _later(self, delay: float, namespace: str) -> None:
        loop = self._core.pacing.loop
        if loop is None:
            self._ensure(namespace)
        else:
            loop.call_later(delay, self._ensure, namespace)

    def _ensure(self, namespace: str) -> None:
        """Create the object where it is missing, or put it right."""
        store = self._core.store
        space = store.of(NAMESPACES).get("", namespace)
        if space is None or b'"deletionTimestamp"' in space.data:
            return
        stored = store.of(self._kind).get(namespace, self._name)
        try:
            if stored is None:
                self._writer.create(Target(self._kind, namespace), self._wanted)
            elif self._differs(stored.parse()):
                self._writer.change(Target(self._kind, namespace, self._name), self._mended)
        except ApiError:  # a quota is full, or a fault strikes; without a loop there is no later
            if self._core.pacing.loop is not None:
                self._later(_RETRY, namespace)

    def _differs(self, obj: JSON) -> bool:
        annotations, wanted = obj["metadata"].get("annotations") or {}, self._wanted["metadata"].get("annotations", {})
        return obj.get("data") != self._wanted.get("data") or any(annotations.get(n) != wanted[n] for n in wanted)

    def _mended(self, obj: JSON) -> JSON:
        metadata = obj["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **self._wanted["metadata"].get("annotations", {})}
        return {**obj, "metadata": {**metadata, "annotations": annotations}, "data": self._wanted["data"]}

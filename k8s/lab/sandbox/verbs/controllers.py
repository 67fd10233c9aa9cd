"""Controllers beside the quota controller: garbage collection, the end of namespaces, and what each one contains.

``pkg/controller/{garbagecollector,namespace,serviceaccount,certificates/rootcacertpublisher}`` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from backoff_ctrl.k8s.lab.sandbox.core import Core
from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import NAMESPACES, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.store import DELETED, Event, Stored
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON

from .deleting import Deleter
from .requests import Target
from .writing import Writer

Place = tuple[Kind, str, str]

_DELAY = 0.005  # seconds: the collector acts only after the answer, as the real ones do


class GarbageCollector:
    """Follows owners and namespaces, and a little later deletes what belongs to deleted ones.

    Foreground deletes in the background, too: the owner is gone first.
    """

    def __init__(self, core: Core, deleter: Deleter) -> None:
        self._core = core
        self._deleter = deleter
        self._dependents: dict[str, set[Place]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: dict[tuple[str, object], asyncio.TimerHandle] = {}
        core.store.listen(self._follow)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
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
            else:
                dependents.add(place)
        if event.type == DELETED:
            if metadata["uid"] in self._dependents:
                self._later(self._delete_dependents, metadata["uid"])
            else:
                self._deleter.orphaning.discard(metadata["uid"])
            if event.namespace:
                self._empty_if_terminating(event.namespace)
        elif metadata.get("deletionTimestamp") and kind is NAMESPACES:
            self._later(self._empty, event.name)

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

    def _delete_dependents(self, uid: str) -> None:
        """The owner is gone. Dependents that have another owner, or that it left as orphans, stay."""
        orphaned = uid in self._deleter.orphaning
        self._deleter.orphaning.discard(uid)
        for kind, namespace, name in self._dependents.pop(uid, ()):
            stored = self._core.store.of(kind).get(namespace, name)
            if stored is None:
                continue
            owners = stored.parse()["metadata"].get("ownerReferences") or []
            if orphaned or any(owner.get("uid") != uid for owner in owners):
                self._drop_owner(kind, stored, uid)
            else:
                self._deleter.remove(kind, stored, {})

    def _drop_owner(self, kind: Kind, stored: Stored, uid: str) -> None:
        obj = stored.parse()
        kept = [owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("uid") != uid]
        if kept:
            obj["metadata"]["ownerReferences"] = kept
        else:
            obj["metadata"].pop("ownerReferences", None)
        self._core.store.replace(kind, stored, obj)

    def _empty(self, namespace: str) -> None:
        """Delete everything in a namespace, then the namespace itself, unless a finalizer keeps something."""
        left = False
        for kind in self._core.store.kinds():
            for stored in list(self._core.store.of(kind).within(namespace)) if kind.namespaced else ():
                left |= not self._deleter.remove(kind, stored, {"gracePeriodSeconds": 0})[1]
        stored_namespace = self._core.store.of(NAMESPACES).get("", namespace)
        if stored_namespace is None:
            return
        if not left and not stored_namespace.parse()["metadata"].get("finalizers"):
            self._core.store.remove(NAMESPACES, stored_namespace)


_CONTENTS: Final[Mapping[str, JSON]] = {
    "serviceaccounts": {"metadata": {"name": "default"}},
    "configmaps": {
        "metadata": {"name": "kube-root-ca.crt"},
        "data": {"ca.crt": "The sandbox speaks HTTP: there are no certificates.\n"},
    },
}
_CONTENTS_DELAY = 0.002  # seconds: the controllers act only after the answer
_RETRY = 1.0  # seconds until a write that a quota refused is tried again


class NamespaceContents:
    """Creates what each active namespace contains, and again when it is deleted. A quota counts it, and may refuse it.

    That is the service account ``default`` and the ConfigMap ``kube-root-ca.crt``.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        # a generator of its own: when they are made depends on the loop, and the seed must decide all other names
        self._writer = Writer(core, random.Random(f"{core.settings.seed} contents"))
        core.store.listen(self._follow)

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        wanted = _CONTENTS.get(kind.plural)
        if kind is NAMESPACES and event.type != DELETED and not obj["metadata"].get("deletionTimestamp"):
            self._core.pacing.later(_CONTENTS_DELAY, self._ensure, event.name)
        elif wanted is not None and event.type == DELETED and event.name == wanted["metadata"]["name"]:
            self._core.pacing.later(_CONTENTS_DELAY, self._ensure, event.namespace)

    def _ensure(self, namespace: str) -> None:
        store = self._core.store
        space = store.of(NAMESPACES).get("", namespace)
        if space is None or b'"deletionTimestamp"' in space.data:
            return
        refused = False
        for plural, wanted in _CONTENTS.items():
            kind = self._core.kinds.find("", "v1", plural)
            if kind is not None and store.of(kind).get(namespace, wanted["metadata"]["name"]) is None:
                try:
                    self._writer.create(Target(kind, namespace), wanted)
                except ApiError:  # a quota is full, or a fault strikes
                    refused = True
        if refused and self._core.pacing.loop is not None:  # without a loop there is no later
            self._core.pacing.later(_RETRY, self._ensure, namespace)

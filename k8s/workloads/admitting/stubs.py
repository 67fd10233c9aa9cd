"""What is kept of an object that is beyond a bound: what it is, whose it is, whether it is suspended, and why.

It is refused with a sentence: the pods that it makes are not known, so no room can be reserved for them. Once others of
its namespace have gone it is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from backoff_ctrl.k8s.kube.answers.fields import labels_of, metadata_of, text
from backoff_ctrl.k8s.kube.answers.objects import Object, object_of
from backoff_ctrl.k8s.kube.cluster.kinds import Kind
from backoff_ctrl.k8s.kube.cluster.objects import ClusterError, Objects
from backoff_ctrl.k8s.kube.watching.cache import Cache
from backoff_ctrl.k8s.kube.watching.shares import Beyond, Shares, size_of

from .kinds import AdmissibleKind
from .shape import IDENTIFIED_MAX, identified, shaped

log = logging.getLogger(__name__)


class Stub(dict[str, Any]):
    """See the module."""

    def __init__(self, found: Mapping[str, Any], beyond: Beyond, size: int) -> None:
        super().__init__(found)
        self.beyond = beyond
        self.size = size
        """Bytes of memory of what would be kept of it."""

    @property
    def cause(self) -> str:
        if self.beyond is Beyond.OBJECT:
            return "what it makes is more than the operator keeps of one object (containers, volumes, claims)"
        return "all that waits or runs in its namespace is more than the operator keeps of one namespace"

    @property
    def sentence(self) -> str:
        """Say why it is not let in, and what to do."""
        if self.beyond is Beyond.OBJECT:
            return f"it is not let in, since {self.cause}: split it, or release it (backoff-ctrl jobs release)"
        todo = "delete others, or release this one (backoff-ctrl jobs release)"
        return f"it waits until other objects have gone, since {self.cause}: {todo}"


class Kept:
    """What is kept of the objects of a kind (``Keeping``): their shapes within the shares of their namespaces."""

    marks: Container[str] = ()

    def __init__(self, kind: AdmissibleKind, shares: Shares) -> None:
        self._kind = kind
        self._shares = shares
        self.trim = partial(shaped, kind)

    def keep(self, found: Object) -> Object:
        """Return all of a shape, or a stub of it. What has ended is small, and does not count."""
        body = found.body
        if self._kind.has_ended(body) and size_of(body, IDENTIFIED_MAX) <= IDENTIFIED_MAX:
            self.drop(found.namespace, found.uid)
            return found
        beyond = self._shares.take(found.namespace, found.uid, body)
        if beyond is None:
            return found
        stub = Stub(identified(self._kind, body), beyond, size_of(body, self._shares.of_object))
        return replace(found, body=stub, labels=labels_of(stub))

    def drop(self, namespace: str, uid: str) -> None:
        self._shares.give_back(namespace, uid)

    def has_room(self, found: Object) -> bool:
        stub = found.body
        if not isinstance(stub, Stub) or stub.beyond is not Beyond.NAMESPACE:
            return False
        return self._shares.has_room(found.namespace, stub.size)


class Stubs:
    """The stubs that caches have. ``caches`` may grow."""

    def __init__(self, caches: Sequence[tuple[AdmissibleKind, Cache]]) -> None:
        self._caches = caches

    def sentences(self) -> list[str]:
        """Return a sentence for each object of which only a stub is kept."""
        return [f"{kind.kind} {'/'.join(found.key)}: {stub.sentence}" for kind, _, found, stub in self._all()]

    async def read_again(self, objects: Objects) -> None:
        """Read one after the other what has room by now."""
        for kind, cache, found, _ in self._all():
            if not cache.has_room(found):
                continue
            try:
                read = await objects.read(Kind(kind.api_version, kind.kind, kind.plural), *found.key)
            except ClusterError as error:
                log.info("%s %s is read again later: %s", kind.kind, "/".join(found.key), error)
                continue
            if read is not None:
                cache.note(object_of(read))
            del read  # it may have 20 MB

    def _all(self) -> list[tuple[AdmissibleKind, Cache, Object, Stub]]:
        """Return them, the eldest first."""
        everything = [(kind, cache, found) for kind, cache in self._caches for found in cache.everything()]
        stubs = [(kind, cache, found, found.body) for kind, cache, found in everything if isinstance(found.body, Stub)]
        return sorted(stubs, key=lambda each: text(metadata_of(each[3]).get("creationTimestamp")))

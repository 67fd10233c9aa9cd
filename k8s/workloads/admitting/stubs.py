"""What is kept of an object that is beyond a bound: what it is, whose it is, whether it is suspended, and why.

It is refused with a sentence: the pods that it makes are not known, so no room can be reserved for them. Once others of
its namespace have gone it is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from backoff_ctrl.k8s.kube.answers.fields import metadata_of, text
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

    def __init__(self, kind: AdmissibleKind, shares: Shares) -> None:
        self._kind = kind
        self._shares = shares

    def trim(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return shaped(self._kind, body)

    def keep(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return all of a shape, or a stub of it. What has ended is small, and does not count."""
        metadata = metadata_of(body)
        if self._kind.has_ended(body) and size_of(body, IDENTIFIED_MAX) <= IDENTIFIED_MAX:
            self.drop(text(metadata.get("namespace")), text(metadata.get("uid")))
            return body
        beyond = self._shares.take(text(metadata.get("namespace")), text(metadata.get("uid")), body)
        if beyond is None:
            return body
        return Stub(identified(self._kind, body), beyond, size_of(body, self._shares.of_object))

    def drop(self, namespace: str, uid: str) -> None:
        self._shares.give_back(namespace, uid)

    def has_room(self, found: Mapping[str, Any]) -> bool:
        if not isinstance(found, Stub) or found.beyond is not Beyond.NAMESPACE:
            return False
        return self._shares.has_room(text(metadata_of(found).get("namespace")), found.size)


class Stubs:
    """The stubs that caches have. ``caches`` may grow."""

    def __init__(self, caches: Sequence[tuple[AdmissibleKind, Cache]]) -> None:
        self._caches = caches

    def sentences(self) -> list[str]:
        """Return a sentence for each object of which only a stub is kept."""
        return [f"{kind.kind} {'/'.join(_key(stub))}: {stub.sentence}" for kind, _, stub in self._all()]

    async def read_again(self, objects: Objects) -> None:
        """Read one after the other what has room by now."""
        for kind, cache, stub in self._all():
            if not cache.has_room(stub):
                continue
            try:
                found = await objects.read(Kind(kind.api_version, kind.kind, kind.plural), *_key(stub))
            except ClusterError as error:
                log.info("%s %s is read again later: %s", kind.kind, "/".join(_key(stub)), error)
                continue
            if found is not None:
                cache.note(found)
            del found  # it may have 20 MB

    def _all(self) -> list[tuple[AdmissibleKind, Cache, Stub]]:
        """Return them, the eldest first."""
        found = [(kind, cache, body) for kind, cache in self._caches for body in cache.everything()]
        stubs = [(kind, cache, body) for kind, cache, body in found if isinstance(body, Stub)]
        return sorted(stubs, key=lambda each: text(metadata_of(each[2]).get("creationTimestamp")))


def _key(stub: Stub) -> tuple[str, str]:
    metadata = metadata_of(stub)
    return text(metadata.get("namespace")), text(metadata.get("name"))

"""A cache of the objects that a watch reports: what is kept of each, and what becomes of one that is not kept.

One user may store thousands of objects of a megabyte, so what is kept of the objects of a namespace is bounded
(``Shares``). Of an object beyond that, only what identifies it is known here: who needs it reads it from the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from backoff_ctrl.k8s.kube.answers.fields import labels_of, metadata_of, text
from backoff_ctrl.k8s.kube.cluster.kinds import JSON

from .informer import Observer, Refusal
from .objects import Object, WatchedKind, is_older, read_object
from .shares import Shares

TASK_UID: Final = "backoff-ctrl.dev/task-uid"
ATTEMPT: Final = "backoff-ctrl.dev/attempt"
STORE: Final = "backoff-ctrl.dev/store"
"""The label that bounds what is watched, and what is swept."""

MANAGERS: Final = "managedFields"
"""A field of metadata that is not needed here, and takes up a third of an object."""
MARKS: Final = frozenset({TASK_UID, ATTEMPT, STORE})
Changed = Callable[[JSON, bool], object]
"""Called with an object that is new, has changed or is gone; the second argument is True if it is gone."""


class Keeping(Protocol):
    """Says what is kept of the objects of a kind."""

    def trim(self, body: Mapping[str, Any]) -> JSON:
        """Return what is needed of an object. Pure."""
        ...

    def keep(self, body: JSON) -> JSON | None:
        """Return what is kept from now on of what is needed, or None."""
        ...

    def drop(self, namespace: str, uid: str) -> None:
        """Keep an object no longer."""
        ...

    def has_room(self, found: JSON) -> bool:
        """Return whether more may be kept by now of an object of which this is kept."""
        ...


class Whole:
    """Keeps all of an object but its ``managedFields``, as far as its namespace's share allows, or no part of it."""

    def __init__(self, shares: Shares | None = None) -> None:
        self._shares = shares

    def trim(self, body: Mapping[str, Any]) -> JSON:
        return without_managers(body)

    def keep(self, body: JSON) -> JSON | None:
        if self._shares is None:
            return body
        metadata = metadata_of(body)
        return None if self._shares.take(text(metadata.get("namespace")), text(metadata.get("uid")), body) else body

    def drop(self, namespace: str, uid: str) -> None:
        if self._shares is not None:
            self._shares.give_back(namespace, uid)

    def has_room(self, found: JSON) -> bool:  # noqa: ARG002
        return False


class Cache(Observer):
    """An observer that keeps what it sees. ``fed``: it has listed everything, and changes are reported.

    ``made`` is the API version and the kind of the objects: lists return them without. ``keeping`` says what is kept of
    an object; without it, all but its ``managedFields``. Of an object that is not kept, what identifies it is reported.
    """

    def __init__(
        self,
        kind: WatchedKind,
        namespace: str | None,
        made: tuple[str, str],
        changed: Changed,
        on_fed: Callable[[], object],
        on_refused: Callable[[str | None, Refusal, int], object],
        keeping: Keeping | None = None,
    ) -> None:
        super().__init__(kind, namespace)
        self.fed = False
        self._made = made
        self._changed = changed
        self._on_fed = on_fed
        self._on_refused = on_refused
        self._keeping = keeping or Whole()
        self.trim = self._keeping.trim
        self._objects: dict[tuple[str, str], JSON] = {}
        self._left_out: dict[tuple[str, str], JSON] = {}  # what identifies each object that is not kept
        self._listed: set[tuple[str, str]] | None = None

    def find(self, key: tuple[str, str]) -> JSON | None:
        return self._objects.get(key)

    def everything(self) -> Iterable[JSON]:
        return list(self._objects.values())

    def has_room(self, found: JSON) -> bool:
        """Return whether more may be kept by now of an object of which this is kept."""
        return self._keeping.has_room(found)

    def knows_all(self, namespace: str) -> bool:
        """Return whether each object of this namespace that exists is found here."""
        return self.fed and all(key[0] != namespace for key in self._left_out)

    def note(self, resource: Mapping[str, Any]) -> JSON:
        """Take in an object from an answer, which the watch may report later. Return what is known of it now."""
        metadata = metadata_of(resource)
        key = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
        if self._listed is not None:
            self._listed.add(key)  # a list under way may be older
        return self._keep(key, resource)

    # -- called by the informer ---------

    def begin(self) -> None:
        self._listed = set()

    def item(self, body: object) -> None:
        found = read_object(body, self.kind, self.namespace)
        if self._listed is not None:
            self._listed.add(found.key)
        self.put(found)

    def listed(self, version: str) -> None:
        """Drop what the list does not have, unless it is newer than the list."""
        listed, self._listed = self._listed or set(), None
        for key in [each for each in (*self._objects, *self._left_out) if each not in listed]:
            if not is_older(version, _version(self._known(key) or {})):
                self._drop(key)
        self.fed = True
        self._on_fed()

    def put(self, found: Object) -> None:
        self._keep(found.key, found.body)

    def remove(self, gone: Object) -> None:
        known = self._known(gone.key)
        if known is not None and metadata_of(known).get("uid") == gone.uid:
            self._drop(gone.key, gone.body)

    def lost(self, error: BaseException) -> None:  # noqa: ARG002
        """Changes may be missed from now on: an object has to be read from the server."""
        self.fed, self._listed = False, None

    def refused(self, error: Refusal, times: int) -> bool:
        self._on_refused(self.namespace, error, times)
        return True

    # -- its own ---------

    def _known(self, key: tuple[str, str]) -> JSON | None:
        return self._objects.get(key) or self._left_out.get(key)

    def _keep(self, key: tuple[str, str], body: Mapping[str, Any]) -> JSON:
        known = self._known(key)
        same = known is not None and metadata_of(known).get("uid") == metadata_of(body).get("uid")
        if known is not None and same:
            version, last = _version(body), _version(known)
            if is_older(version, last) or (version == last and not self._keeping.has_room(known)):
                return known
        if known is not None and not same:
            self._forget(key, known)
        resource = self._shaped(body)
        kept = self._keeping.keep(resource)
        if kept is None:
            self._objects.pop(key, None)
            self._left_out[key] = resource = _identified(resource)
        else:
            self._left_out.pop(key, None)
            self._objects[key] = resource = kept
        self._changed(resource, False)
        return resource

    def _drop(self, key: tuple[str, str], last: Mapping[str, Any] | None = None) -> None:
        known = self._known(key)
        assert known is not None
        self._forget(key, known)
        self._changed(known if last is None else self._shaped(last), True)

    def _forget(self, key: tuple[str, str], known: JSON) -> None:
        self._objects.pop(key, None)
        self._left_out.pop(key, None)
        self._keeping.drop(key[0], text(metadata_of(known).get("uid")))

    def _shaped(self, body: Mapping[str, Any]) -> JSON:
        return {"apiVersion": self._made[0], "kind": self._made[1], **self._keeping.trim(body)}


def without_managers(body: Mapping[str, Any]) -> JSON:
    return {**body, "metadata": {name: value for name, value in metadata_of(body).items() if name != MANAGERS}}


def _identified(body: JSON) -> JSON:
    """Return the part of an object by which its task is known."""
    metadata = metadata_of(body)
    names = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    found = {name: metadata[name] for name in names if name in metadata}
    labels = {name: value for name, value in labels_of(body).items() if name in MARKS}
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": {**found, "labels": labels}}


def _version(body: Mapping[str, Any]) -> str:
    return text(metadata_of(body).get("resourceVersion"))

"""A cache of the objects that a watch reports: what is kept of each, and what becomes of one that is not kept.

One user may store thousands of objects of a megabyte, so what is kept of the objects of a namespace is bounded
(``Shares``). Of an object beyond that, only what identifies it is known here: who needs it reads it from the server.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from backoff_ctrl.k8s.kube.answers.fields import labels_of, metadata_of
from backoff_ctrl.k8s.kube.answers.objects import Key, Object
from backoff_ctrl.k8s.kube.cluster.kinds import JSON

from .informer import Observer, Refusal
from .objects import WatchedKind, is_older, read_object
from .shares import Shares

MANAGERS: Final = "managedFields"
"""A field of metadata that is not needed here, and takes up a third of an object."""
Changed = Callable[[Object, bool], object]
"""Called with an object that is new, has changed or is gone; the second argument is True if it is gone."""


class Keeping(Protocol):
    """Says what is kept of the objects of a kind."""

    marks: Container[str]
    """The labels by which an object is known that is not kept."""

    def trim(self, body: Mapping[str, Any]) -> JSON:
        """Return what is needed of an object. Pure."""
        ...

    def keep(self, found: Object) -> Object | None:
        """Return what is kept from now on of what is needed, or None."""
        ...

    def drop(self, namespace: str, uid: str) -> None:
        """Keep an object no longer."""
        ...

    def has_room(self, found: Object) -> bool:
        """Return whether more may be kept by now of an object of which this is kept."""
        ...


class Whole:
    """Keeps all of an object but its ``managedFields``, as far as its namespace's share allows, or no part of it."""

    def __init__(self, shares: Shares | None = None, marks: Container[str] = ()) -> None:
        self._shares = shares
        self.marks = marks

    def trim(self, body: Mapping[str, Any]) -> JSON:
        return without_managers(body)

    def keep(self, found: Object) -> Object | None:
        beyond = self._shares is not None and self._shares.take(found.namespace, found.uid, found.body)
        return None if beyond else found

    def drop(self, namespace: str, uid: str) -> None:
        if self._shares is not None:
            self._shares.give_back(namespace, uid)

    def has_room(self, found: Object) -> bool:  # noqa: ARG002
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
        self._objects: dict[Key, Object] = {}
        self._left_out: dict[Key, Object] = {}  # what identifies each object that is not kept
        self._listed: set[Key] | None = None

    def find(self, key: Key) -> Object | None:
        return self._objects.get(key)

    def everything(self) -> Iterable[Object]:
        return list(self._objects.values())

    def has_room(self, found: Object) -> bool:
        """Return whether more may be kept by now of an object of which this is kept."""
        return self._keeping.has_room(found)

    def knows_all(self, namespace: str) -> bool:
        """Return whether each object of this namespace that exists is found here."""
        return self.fed and all(key[0] != namespace for key in self._left_out)

    def note(self, found: Object) -> Object:
        """Take in an object from an answer, which the watch may report later. Return what is known of it now."""
        needed = self._keeping.trim(found.body)
        found = replace(found, body=needed, labels=labels_of(needed))
        if self._listed is not None:
            self._listed.add(found.key)  # a list under way may be older
        return self._keep(found)

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
            known = self._known(key)
            if known is not None and not is_older(version, known.version):
                self._drop(known)
        self.fed = True
        self._on_fed()

    def put(self, found: Object) -> None:
        self._keep(found)

    def remove(self, gone: Object) -> None:
        known = self._known(gone.key)
        if known is not None and known.uid == gone.uid:
            self._drop(known, gone)

    def lost(self, error: BaseException) -> None:  # noqa: ARG002
        """Changes may be missed from now on: an object has to be read from the server."""
        self.fed, self._listed = False, None

    def refused(self, error: Refusal, times: int) -> bool:
        self._on_refused(self.namespace, error, times)
        return True

    # -- its own ---------

    def _known(self, key: Key) -> Object | None:
        return self._objects.get(key) or self._left_out.get(key)

    def _keep(self, found: Object) -> Object:
        """Keep an object of which only what is needed is there; return what is known of it now."""
        known = self._known(found.key)
        if known is not None and known.uid == found.uid:
            as_known = found.version == known.version and not self._keeping.has_room(known)
            if as_known or is_older(found.version, known.version):
                return known
        elif known is not None:
            self._forget(known)
        kept = self._keeping.keep(self._with_kind(found))
        if kept is None:
            self._objects.pop(found.key, None)
            self._left_out[found.key] = kept = self._identified(found)
        else:
            self._left_out.pop(found.key, None)
            self._objects[found.key] = kept
        self._changed(kept, False)
        return kept

    def _drop(self, known: Object, last: Object | None = None) -> None:
        self._forget(known)
        self._changed(known if last is None else self._with_kind(last), True)

    def _forget(self, known: Object) -> None:
        self._objects.pop(known.key, None)
        self._left_out.pop(known.key, None)
        self._keeping.drop(known.namespace, known.uid)

    def _with_kind(self, found: Object) -> Object:
        return replace(found, body={"apiVersion": self._made[0], "kind": self._made[1], **found.body})

    def _identified(self, found: Object) -> Object:
        """Return the part of an object by which its owner is known."""
        metadata = metadata_of(found.body)
        names = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
        labels = {name: value for name, value in found.labels.items() if name in self._keeping.marks}
        about = {name: metadata[name] for name in names if name in metadata} | {"labels": labels}
        body = {"apiVersion": self._made[0], "kind": self._made[1], "metadata": about}
        return replace(found, body=body, labels=labels)


def without_managers(body: Mapping[str, Any]) -> JSON:
    return {**body, "metadata": {name: value for name, value in metadata_of(body).items() if name != MANAGERS}}

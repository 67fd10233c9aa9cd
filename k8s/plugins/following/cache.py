"""The objects of one kind as a watch tells them, so that a task's step asks the API server nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from backoff_ctrl.k8s.plugins.marks import metadata_of
from backoff_ctrl.k8s.watching.informer import Observer, Refusal
from backoff_ctrl.k8s.watching.objects import Key, Kind, Object, is_older, read_object

JSON = dict[str, Any]
Changed = Callable[[JSON, bool], object]
"""Called with an object that is new, has changed or is gone; the second says whether it is gone."""

MADE_OFTEN: Final = "managedFields"
"""A field of metadata that nobody reads here, and that is a third of an object."""


class Cache(Observer):
    """An observer that keeps what it sees. ``fed``: it has listed everything, and changes are reported.

    ``made`` is the API version and the kind of the objects: lists return them without.
    """

    def __init__(
        self,
        kind: Kind,
        namespace: str | None,
        made: tuple[str, str],
        changed: Changed,
        on_fed: Callable[[], object],
        on_refused: Callable[[str | None, Refusal, int], object],
    ) -> None:
        super().__init__(kind, namespace)
        self.fed = False
        self.why = "not listed yet"
        self._made = made
        self._changed = changed
        self._on_fed = on_fed
        self._on_refused = on_refused
        self._objects: dict[Key, JSON] = {}
        self._listed: set[Key] | None = None

    def __len__(self) -> int:
        """How many objects it has."""
        return len(self._objects)

    def find(self, key: Key) -> JSON | None:
        """Return the object of this namespace and name."""
        return self._objects.get(key)

    def everything(self) -> Iterable[JSON]:
        """Return all objects."""
        return list(self._objects.values())

    def note(self, resource: Mapping[str, Any]) -> None:
        """Take in an object that an answer showed, which the watch may tell later."""
        metadata = metadata_of(resource)
        key = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
        if self._listed is not None:
            self._listed.add(key)  # a list that is under way may be older
        self._keep(key, resource)

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
        for key in [each for each in self._objects if each not in listed]:
            if not is_older(version, _version(self._objects[key])):
                self._drop(key)
        self.fed, self.why = True, ""
        self._on_fed()

    def put(self, found: Object) -> None:
        self._keep(found.key, found.body)

    def remove(self, gone: Object) -> None:
        known = self._objects.get(gone.key)
        if known is not None and metadata_of(known).get("uid") == gone.uid:
            self._drop(gone.key, gone.body)

    def lost(self, error: BaseException) -> None:
        """Changes may be missed from now on: who asks for an object has to read it."""
        self.fed, self.why, self._listed = False, str(error), None

    def refused(self, error: Refusal, times: int) -> bool:
        self._on_refused(self.namespace, error, times)
        return True

    # -- its own ---------

    def _keep(self, key: Key, body: Mapping[str, Any]) -> None:
        known = self._objects.get(key)
        same = known is not None and metadata_of(known).get("uid") == metadata_of(body).get("uid")
        versions = _version(body), "" if known is None else _version(known)
        if same and (versions[0] == versions[1] or is_older(*versions)):
            return
        resource = self._shaped(body)
        self._objects[key] = resource
        self._changed(resource, False)

    def _drop(self, key: Key, last: Mapping[str, Any] | None = None) -> None:
        known = self._objects.pop(key)
        self._changed(known if last is None else self._shaped(last), True)

    def _shaped(self, body: Mapping[str, Any]) -> JSON:
        metadata = {name: value for name, value in metadata_of(body).items() if name != MADE_OFTEN}
        return {"apiVersion": self._made[0], "kind": self._made[1], **body, "metadata": metadata}


def _version(body: Mapping[str, Any]) -> str:
    version = metadata_of(body).get("resourceVersion")
    return version if isinstance(version, str) else ""

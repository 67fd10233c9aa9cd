"""The objects of one kind as a watch tells them, so that a task's step asks the API server nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.marks import metadata_of
from backoff_ctrl.k8s.watching.reading import is_older, read_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from backoff_ctrl.k8s.watching.reading import Event, Kind, Place

    JSON = dict[str, Any]
    Changed = Callable[[JSON, bool], object]
    """Called with an object that is new, has changed or is gone; the second says whether it is gone."""

MADE_OFTEN: Final = "managedFields"
"""A field of metadata that nobody reads here, and that is a third of an object."""


class Cache:
    """An observer that keeps what it sees. ``fed``: it has listed everything, and changes are reported.

    ``api_version`` and ``name`` are put into what lists return without them.
    """

    def __init__(
        self,
        kind: Kind,
        namespace: str | None,
        made: tuple[str, str],
        changed: Changed,
        on_fed: Callable[[], object] = lambda: None,
    ) -> None:
        """Start empty. ``made`` is the API version and the kind of the objects."""
        self.kind = kind
        self.namespace = namespace
        self.fed = False
        self.refusals = 0
        self.why = "not listed yet"
        self._made = made
        self._changed = changed
        self._on_fed = on_fed
        self._objects: dict[Place, JSON] = {}
        self._listed: set[Place] | None = None

    def __len__(self) -> int:
        """How many objects it has."""
        return len(self._objects)

    def find(self, place: Place) -> JSON | None:
        """Return the object of this namespace and name."""
        return self._objects.get(place)

    def everything(self) -> Iterable[JSON]:
        """Return all objects."""
        return list(self._objects.values())

    def note(self, resource: Mapping[str, Any]) -> None:
        """Take in an object that an answer showed, which the watch may tell later."""
        metadata = metadata_of(resource)
        place = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
        if self._listed is not None:
            self._listed.add(place)  # a list that is under way may be older
        self._put(place, resource)

    # -- called by the follower ---------

    def begin(self) -> None:
        """Begin to collect what a list has."""
        self._listed = set()

    def item(self, body: object) -> None:
        """Take in an object of the list. Raises ``IgnoredError``."""
        told = read_object(body, self.kind, self.namespace)
        if self._listed is not None:
            self._listed.add(told.place)
        self._put(told.place, told.body)

    def listed(self, version: str) -> None:
        """Drop what the list does not have, unless it is newer than the list."""
        listed, self._listed = self._listed or set(), None
        for place in [each for each in self._objects if each not in listed]:
            if not is_older(version, _version(self._objects[place])):
                self._drop(place)
        self.fed, self.refusals, self.why = True, 0, ""
        self._on_fed()

    def take(self, event: Event) -> None:
        """Take in a change."""
        told = event.told
        if event.type != "DELETED":
            self._put(told.place, told.body)
            return
        known = self._objects.get(told.place)
        if known is not None and metadata_of(known).get("uid") == told.uid:
            self._drop(told.place, told.body)

    def lost(self, error: BaseException) -> None:
        """Changes may be missed from now on: who asks for an object has to read it."""
        self.fed, self.why, self._listed = False, str(error), None

    # -- its own ---------

    def _put(self, place: Place, body: Mapping[str, Any]) -> None:
        known = self._objects.get(place)
        same = known is not None and metadata_of(known).get("uid") == metadata_of(body).get("uid")
        versions = _version(body), "" if known is None else _version(known)
        if same and (versions[0] == versions[1] or is_older(*versions)):
            return
        resource = self._shaped(body)
        self._objects[place] = resource
        self._changed(resource, False)

    def _drop(self, place: Place, last: Mapping[str, Any] | None = None) -> None:
        known = self._objects.pop(place)
        self._changed(known if last is None else self._shaped(last), True)

    def _shaped(self, body: Mapping[str, Any]) -> JSON:
        metadata = {name: value for name, value in metadata_of(body).items() if name != MADE_OFTEN}
        return {"apiVersion": self._made[0], "kind": self._made[1], **body, "metadata": metadata}


def _version(body: Mapping[str, Any]) -> str:
    version = metadata_of(body).get("resourceVersion")
    return version if isinstance(version, str) else ""

"""What lists and watches say, read with suspicion: a line may hold anything, and come late, twice or out of order.

Pure. What cannot be used is an ``IgnoredError`` with one of a fixed set of reasons, so that it can be counted.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

Place: TypeAlias = tuple[str, str]
"""Namespace (empty for what has none) and name."""

GONE_MAX: Final = 1024
"""Deleted objects whose version is kept, against news of them that comes late."""
LIVE_MAX: Final = 50_000
"""Objects that one observer keeps sight of; more are ignored, and their refusals teach."""
_DIGITS_MAX: Final = 20  # a resourceVersion is a uint64; a longer text of digits is no number to compare


class WatchBrokenError(Exception):
    """The list failed or the stream broke: to be tried again, not before ``retry_after`` seconds."""

    def __init__(self, detail: str, retry_after: float = 0.0) -> None:
        """Say what happened."""
        super().__init__(detail)
        self.retry_after = retry_after


class WatchExpiredError(WatchBrokenError):
    """410: the version to resume from is forgotten; only a list helps."""


class WatchForbiddenError(Exception):
    """403: these credentials may not list or watch this here."""


class WatchAbsentError(Exception):
    """404: the server does not serve this kind."""


class Ignored(StrEnum):
    """Why something that was told is not taken in."""

    NO_JSON = "no-json"
    TOO_LONG = "too-long"
    NO_EVENT = "no-event"
    UNKNOWN_TYPE = "unknown-type"
    UNKNOWN_KIND = "unknown-kind"
    NO_METADATA = "no-metadata"
    ELSEWHERE = "elsewhere"
    OLDER = "older"
    DUPLICATE = "duplicate"
    UNREADABLE = "unreadable"
    NAME_TAKEN = "name-taken"
    TOO_MANY = "too-many"


class IgnoredError(ValueError):
    """Something told is of no use; ``reason`` is for counting."""

    def __init__(self, reason: Ignored, detail: str) -> None:
        """Say what it was."""
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Kind:
    """What is listed and watched: where it is served, and as what its objects may call themselves."""

    path: str
    plural: str
    names: frozenset[str]
    namespaced: bool = True
    fields: str = ""
    metadata_only: bool = False
    """Take the objects' metadata alone, and of a list nothing but its version."""


QUOTAS: Final = Kind("/api/v1", "resourcequotas", frozenset({"ResourceQuota"}))
LIVE_PODS: Final = Kind(
    "/api/v1",
    "pods",
    frozenset({"Pod", "PartialObjectMetadata"}),
    fields="status.phase!=Succeeded,status.phase!=Failed",
    metadata_only=True,
)
"""Pods that have not ended: one that ends leaves the selection, which a watch tells as its deletion."""
CLUSTER_QUOTAS: Final = Kind(
    "/apis/quota.openshift.io/v1", "clusterresourcequotas", frozenset({"ClusterResourceQuota"}), namespaced=False
)


@dataclass(frozen=True, slots=True)
class Told:
    """An object and what identifies it. Texts that the server did not give are empty."""

    body: Mapping[str, Any]
    place: Place
    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a watch. A bookmark has no place."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    told: Told


def read_event(raw: object, kind: Kind, namespace: str | None) -> Event:
    """Read one decoded line of a watch of ``namespace`` (None: of all).

    Raises ``IgnoredError``; ``WatchExpiredError`` or ``WatchBrokenError`` for an ERROR event.
    """
    if isinstance(raw, Ignored):
        raise IgnoredError(raw, "a line that is no JSON" if raw is Ignored.NO_JSON else "a line without an end")
    if not isinstance(raw, Mapping):
        raise IgnoredError(Ignored.NO_EVENT, f"{_shown(raw)} where an event should be")
    type_, body = raw.get("type"), raw.get("object")
    if type_ == "ERROR":
        raise _error(body)
    if type_ == "BOOKMARK":
        metadata = _metadata(body)
        if not _text(metadata, "resourceVersion"):
            raise IgnoredError(Ignored.NO_METADATA, "a bookmark without a version")
        return Event("BOOKMARK", Told({}, ("", ""), "", _text(metadata, "resourceVersion")))
    match type_:
        case "ADDED" | "MODIFIED" | "DELETED":
            return Event(type_, read_object(body, kind, namespace))
    raise IgnoredError(Ignored.UNKNOWN_TYPE, f"an event of type {_shown(type_)}")


def read_object(body: object, kind: Kind, namespace: str | None) -> Told:
    """Find out which object this is; what else it holds is not looked at. Raises ``IgnoredError``.

    Items of a list do not say their kind.
    """
    if not isinstance(body, Mapping):
        raise IgnoredError(Ignored.NO_EVENT, f"{_shown(body)} where an object should be")
    called = body.get("kind")
    if called is not None and not (isinstance(called, str) and called in kind.names):
        raise IgnoredError(Ignored.UNKNOWN_KIND, f"a {_shown(called)} among {kind.plural}")
    metadata = _metadata(body)
    place = _text(metadata, "namespace"), _text(metadata, "name")
    if not place[1] or kind.namespaced != bool(place[0]):
        raise IgnoredError(Ignored.NO_METADATA, f"one of {kind.plural} without a name or namespace")
    if namespace not in {None, place[0]}:
        raise IgnoredError(Ignored.ELSEWHERE, f"{_shown(place[0])} in the watch of namespace {namespace}")
    return Told(body, place, _text(metadata, "uid"), _text(metadata, "resourceVersion"))


def is_older(version: str, than: str) -> bool:
    """Compare two resourceVersions. They are opaque: only if both are numbers is anything known of their order."""
    return _is_number(version) and _is_number(than) and int(version) < int(than)


def newest(version: str, other: str) -> str:
    """Return the later one to resume from; ``other`` where nothing is known of their order, unless it is empty."""
    return version if not other or is_older(other, version) else other


class Order:
    """What was taken in last of each object: news that is older, or the same again, is found out. Bounded."""

    def __init__(self, *, live_max: int = LIVE_MAX, gone_max: int = GONE_MAX) -> None:
        """Begin with nothing known."""
        self._live: dict[Place, tuple[str, str]] = {}
        self._gone: OrderedDict[Place, str] = OrderedDict()
        self._live_max = live_max
        self._gone_max = gone_max
        self._since = ""

    def __len__(self) -> int:
        """Count what is kept."""
        return len(self._live) + len(self._gone)

    def begin(self) -> None:
        """Start a list: it replaces everything."""
        self._live.clear()
        self._gone.clear()
        self._since = ""

    def list(self, told: Told) -> None:
        """Take in an item of a list. Raises ``IgnoredError``."""
        self._check_room(told.place)
        self._live[told.place] = told.uid, told.version

    def listed(self, version: str) -> None:
        """End the list: what is told from now on is later than its version."""
        self._since = version

    def take(self, event: Event) -> None:
        """Take in the next event of a watch. Raises ``IgnoredError`` for what is no news."""
        told, known = event.told, self._live.get(event.told.place)
        last = self._gone.get(told.place, self._since) if known is None else known[1]
        if is_older(told.version, last) or is_older(told.version, self._since):
            raise IgnoredError(Ignored.OLDER, f"version {told.version} of {_named(told)} after {last or self._since}")
        if event.type == "DELETED":
            self._delete(told, known)
            return
        if told.version and last == told.version:
            raise IgnoredError(Ignored.DUPLICATE, f"version {told.version} of {_named(told)} again")
        self._check_room(told.place)
        self._live[told.place] = told.uid, told.version
        self._gone.pop(told.place, None)

    def _delete(self, told: Told, known: tuple[str, str] | None) -> None:
        if known is None:
            raise IgnoredError(Ignored.DUPLICATE, f"the end of {_named(told)}, which is not there")
        if told.uid and known[0] and told.uid != known[0]:
            raise IgnoredError(Ignored.OLDER, f"the end of an earlier {_named(told)}")
        del self._live[told.place]
        self._gone[told.place] = told.version
        if len(self._gone) > self._gone_max:
            self._gone.popitem(last=False)

    def _check_room(self, place: Place) -> None:
        if place not in self._live and len(self._live) >= self._live_max:
            raise IgnoredError(Ignored.TOO_MANY, f"more than {self._live_max} objects: only their refusals teach")


def _error(body: object) -> WatchBrokenError:
    status = body if isinstance(body, Mapping) else {}
    expired = status.get("code") == 410 or status.get("reason") in ("Expired", "Gone")
    return (WatchExpiredError if expired else WatchBrokenError)(_shown(status.get("message", "an ERROR event")))


def _metadata(body: object) -> Mapping[str, Any]:
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    if not isinstance(metadata, Mapping):
        raise IgnoredError(Ignored.NO_METADATA, "an object without metadata")
    return metadata


def _text(metadata: Mapping[str, Any], name: str) -> str:
    value = metadata.get(name)
    return value if isinstance(value, str) else ""


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdecimal() and len(version) <= _DIGITS_MAX


def _named(told: Told) -> str:
    return _shown("/".join(part for part in told.place if part))


def _shown(value: object) -> str:
    """Quote a text or a number, short and on one line; of anything else say only what it is."""
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)[:80]
    if not isinstance(value, str):
        return f"a {type(value).__name__}"
    return json.dumps(value if len(value) <= 120 else f"{value[:117]}...")

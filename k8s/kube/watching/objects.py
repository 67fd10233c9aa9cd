"""What lists and watches return, parsed and checked: a line may hold anything, and come late, twice or out of order.

Pure. Anything unusable raises ``IgnoredError`` with one of a fixed set of reasons, so that it can be counted.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from backoff_ctrl.k8s.kube.answers.fields import mapping, metadata_of, text
from backoff_ctrl.k8s.kube.answers.objects import Key, Object, object_of

GONE_MAX: Final = 1024  # deleted objects whose version is kept, to recognise late events about them
LIVE_MAX: Final = 50_000
"""Objects that one observer tracks; further ones are ignored, and their limits are learned from refusals."""
_DIGITS_MAX: Final = 20  # of a resourceVersion, a uint64: longer strings of digits are not compared


class WatchBrokenError(Exception):
    """The list failed or the stream broke. It may be tried again, after ``retry_after`` seconds at the earliest."""

    def __init__(self, detail: str, retry_after: float = 0.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class WatchExpiredError(WatchBrokenError):
    """410: the server no longer has the version to resume from, so a new list is needed."""


class WatchForbiddenError(Exception):
    """403: these credentials may not list or watch this kind here."""


class WatchAbsentError(Exception):
    """404: the server does not serve this kind."""


class Ignored(StrEnum):
    """Why an object or event is ignored. The values are labels of a metric."""

    NO_JSON = "no-json"
    TOO_LONG = "too-long"
    NO_EVENT = "no-event"
    UNKNOWN_TYPE = "unknown-type"
    UNKNOWN_KIND = "unknown-kind"
    NO_METADATA = "no-metadata"
    ELSEWHERE = "elsewhere"  # in another namespace than the one that is watched
    OLDER = "older"
    DUPLICATE = "duplicate"
    UNREADABLE = "unreadable"
    NAME_TAKEN = "name-taken"
    TOO_MANY = "too-many"


class IgnoredError(ValueError):
    """An object or event is unusable: ``reason`` is for counting, the text for the log."""

    def __init__(self, reason: Ignored, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind to list and watch: the path of its API group, and as ``names`` the ``kind`` values its objects may have.

    ``fields`` is a field selector, ``labels`` a label selector.
    """

    path: str
    plural: str
    names: frozenset[str]
    namespaced: bool = True
    fields: str = ""
    labels: str = ""
    metadata_only: bool = False
    """Request only the objects' metadata, and from a list only its version, unless it is a ``whole_list``."""
    whole_list: bool = False


QUOTAS: Final = WatchedKind("/api/v1", "resourcequotas", frozenset({"ResourceQuota"}))
LIVE_PODS: Final = WatchedKind(
    "/api/v1",
    "pods",
    frozenset({"Pod", "PartialObjectMetadata"}),
    fields="status.phase!=Succeeded,status.phase!=Failed",
    metadata_only=True,
)
"""Pods that have not ended: when one ends it leaves the selection, which a watch reports as DELETED."""
CLUSTER_QUOTAS: Final = WatchedKind(
    "/apis/quota.openshift.io/v1", "clusterresourcequotas", frozenset({"ClusterResourceQuota"}), namespaced=False
)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch. The ``object`` of a bookmark has only a version."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object


def read_event(raw: object, kind: WatchedKind, namespace: str | None) -> Event:
    """Parse one decoded line of a watch of ``namespace`` (None: of all).

    Raises ``IgnoredError`` for an unusable line, ``WatchExpiredError`` or ``WatchBrokenError`` for an ERROR event.
    """
    if isinstance(raw, Ignored):
        raise IgnoredError(raw, "a line that is not JSON" if raw is Ignored.NO_JSON else "a line that is too long")
    if not isinstance(raw, Mapping):
        raise IgnoredError(Ignored.NO_EVENT, f"{_shown(raw)} instead of an event")
    type_, body = raw.get("type"), raw.get("object")
    match type_:
        case "ADDED" | "MODIFIED" | "DELETED":
            return Event(type_, read_object(body, kind, namespace))
        case "BOOKMARK":
            version = text(metadata_of(body).get("resourceVersion"))
            if not version:
                raise IgnoredError(Ignored.NO_METADATA, "a bookmark without a resourceVersion")
            return Event("BOOKMARK", Object({}, ("", ""), "", version))
        case "ERROR":
            status = mapping(body)
            expired = status.get("code") == 410 or status.get("reason") in ("Expired", "Gone")
            error = WatchExpiredError if expired else WatchBrokenError
            raise error(_shown(status.get("message", "an ERROR event")))
    raise IgnoredError(Ignored.UNKNOWN_TYPE, f"an event of type {_shown(type_)}")


def read_object(body: object, kind: WatchedKind, namespace: str | None) -> Object:
    """Identify an object, without looking at its spec or status. Raises ``IgnoredError``.

    ``kind`` may be missing: items of a list do not have it.
    """
    if not isinstance(body, dict):
        raise IgnoredError(Ignored.NO_EVENT, f"{_shown(body)} instead of an object")
    found = body.get("kind")
    if found is not None and not (isinstance(found, str) and found in kind.names):
        raise IgnoredError(Ignored.UNKNOWN_KIND, f"an object of kind {_shown(found)} among {kind.plural}")
    if not isinstance(body.get("metadata"), Mapping):
        raise IgnoredError(Ignored.NO_METADATA, "an object without metadata")
    read = object_of(body)
    key = read.key
    if not key[1] or kind.namespaced != bool(key[0]):
        expected = "without a name or namespace" if kind.namespaced else "without a name, or with a namespace"
        raise IgnoredError(Ignored.NO_METADATA, f"an object {expected} among {kind.plural}")
    if namespace not in {None, key[0]}:
        raise IgnoredError(
            Ignored.ELSEWHERE, f"an object of namespace {_shown(key[0])} in the watch of namespace {namespace}"
        )
    return read


def is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion is older than another; False unless both are numbers, since they are opaque."""
    return _is_number(version) and _is_number(than) and int(version) < int(than)


def newest(version: str, other: str) -> str:
    """Return the newer of two versions; if their order is unknown, ``other`` unless it is empty."""
    return version if not other or is_older(other, version) else other


class Order:
    """Remembers the last version of each object, to recognise older and repeated events.

    Its memory is bounded: ``live_max`` existing and ``gone_max`` deleted objects.
    """

    def __init__(self, *, live_max: int = LIVE_MAX, gone_max: int = GONE_MAX) -> None:
        self._live: dict[Key, tuple[str, str]] = {}
        self._gone: OrderedDict[Key, str] = OrderedDict()
        self._live_max = live_max
        self._gone_max = gone_max
        self._since = ""

    def __len__(self) -> int:
        return len(self._live) + len(self._gone)

    def begin(self) -> None:
        """Start a list: it replaces everything."""
        self._live.clear()
        self._gone.clear()
        self._since = ""

    def list(self, item: Object) -> None:
        """Remember an item of a list. Raises ``IgnoredError`` if there are too many."""
        self._check_room(item.key)
        self._live[item.key] = item.uid, item.version

    def listed(self, version: str) -> None:
        """End the list: only events newer than ``version`` count from now on."""
        self._since = version

    def take(self, event: Event) -> None:
        """Remember the next event of a watch. Raises ``IgnoredError`` if it is older, a repetition or one too many."""
        found, known = event.object, self._live.get(event.object.key)
        last = self._gone.get(found.key, self._since) if known is None else known[1]
        if is_older(found.version, last) or is_older(found.version, self._since):
            newer = last or self._since
            raise IgnoredError(Ignored.OLDER, f"version {found.version} of {_named(found)} after version {newer}")
        if event.type == "DELETED":
            self._delete(found, known)
            return
        if found.version and last == found.version:
            raise IgnoredError(Ignored.DUPLICATE, f"version {found.version} of {_named(found)} again")
        self._check_room(found.key)
        self._live[found.key] = found.uid, found.version
        self._gone.pop(found.key, None)

    def _delete(self, found: Object, known: tuple[str, str] | None) -> None:
        if known is None:
            raise IgnoredError(Ignored.DUPLICATE, f"the deletion of {_named(found)}, which does not exist")
        if found.uid and known[0] and found.uid != known[0]:
            raise IgnoredError(Ignored.OLDER, f"the deletion of an earlier {_named(found)} (another uid)")
        del self._live[found.key]
        self._gone[found.key] = found.version
        if len(self._gone) > self._gone_max:
            self._gone.popitem(last=False)

    def _check_room(self, key: Key) -> None:
        if key not in self._live and len(self._live) >= self._live_max:
            raise IgnoredError(
                Ignored.TOO_MANY, f"an object beyond the first {self._live_max}; its limits are learned from refusals"
            )


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdecimal() and len(version) <= _DIGITS_MAX


def _named(found: Object) -> str:
    return _shown("/".join(part for part in found.key if part))


def _shown(value: object) -> str:
    """Quote a text or a number, shortened and on one line; for anything else return only its type."""
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)[:80]
    if not isinstance(value, str):
        return f"a {type(value).__name__}"
    return json.dumps(value if len(value) <= 120 else f"{value[:117]}...")

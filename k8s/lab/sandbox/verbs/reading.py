"""Get and list. Pages stay consistent because later changes are undone when a page is read.

Sources: ``k8s.io/apimachinery`` ``pkg/apis/meta/internalversion`` for the options of a list or a watch,
``k8s.io/apiserver`` ``pkg/storage/continue.go`` for the tokens of pages.
"""

from __future__ import annotations

import base64
import json
import operator
from dataclasses import dataclass

from backoff_ctrl.k8s.lab.sandbox.core import Core
from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError, bad_request, expired, unexpected
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.lab.sandbox.objects.selectors import Selection
from backoff_ctrl.k8s.lab.sandbox.objects.store import ADDED, Stored
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump, load

from .requests import Query, Target

_MATCH = "resourceVersionMatch"
_NEWEST = -1  # the version in a token that continues with the objects as they are by then
_META_VERSION = "meta.k8s.io/v1"
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
)
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Stored]
    version: int
    next: str = ""  # the continue token
    remaining: int | None = None

    def metadata(self) -> JSON:
        metadata: JSON = {"resourceVersion": str(self.version)}
        if self.next:
            metadata["continue"] = self.next
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


def list_body(target: Target, page: Page) -> bytes:
    """The list as JSON, from the stored bytes; items of built-in lists omit the kind, which the list states once."""
    head = {"kind": target.kind.list_kind, "apiVersion": target.kind.api_version, "metadata": page.metadata()}
    said = _head_of(target.kind) if target.kind.strategic else b""
    items = b",".join(b"{" + item.data[len(said) :] if said else item.data for item in page.items)
    return b'%b,"items":[%b]}' % (dump(head)[:-1], items)


def _head_of(kind: Kind) -> bytes:
    return dump({"kind": kind.kind, "apiVersion": kind.api_version})[:-1] + b","


def selection_of(target: Target, query: Query) -> Selection:
    return Selection(target.kind, query.text("labelSelector"), query.text("fieldSelector"))


def list_page(core: Core, target: Target, query: Query) -> Page:
    """List a collection. Raises 400, 410 for a forgotten version, 422, 504 for a future version."""
    selection = selection_of(target, query)
    version, start = _version_and_start(core, target, query)
    try:
        items = _items_at(core, target, version, selection.name)
    except ApiError as error:
        if start is None:
            raise expired(_TOO_OLD_LIST) from error
        raise expired(_TOO_OLD, {"continue": _token_of(target, _NEWEST, start)}) from error
    ordered = sorted(items, key=_key)
    if start:
        ordered = [item for item in ordered if _key(item) > start]
    chosen = [item for item in ordered if _selected(selection, item)]
    limit = query.number("limit") or 0
    if 0 < limit < len(chosen):
        rest = len(chosen) - limit if selection.everything else None
        return Page(chosen[:limit], version, _token_of(target, version, _key(chosen[limit - 1])), rest)
    return Page(chosen, version)


def version_of_one(query: Query) -> int:
    """The resourceVersion of a get or a watch. A malformed one is the server's error here: raises 500."""
    text = query.text("resourceVersion") or "0"
    if not text.isdecimal():
        raise unexpected(_no_number(text))
    return int(text)


def _no_number(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def _check_present(core: Core, version: int) -> None:
    if version > core.store.version:
        message = f"Timeout: Too large resource version: {version}, current: {core.store.version}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def _version_and_start(core: Core, target: Target, query: Query) -> tuple[int, tuple[str, str] | None]:
    """The version that a list shows, and the object after which it begins. Raises 400 and 504."""
    wanted, token = query.text("resourceVersion") or "0", query.text("continue")
    if not wanted.isdecimal():
        raise bad_request(f"invalid resource version: {_no_number(wanted)}")
    asked = int(wanted)
    if token:
        if asked:
            raise bad_request("specifying resource version is not allowed when using continue")
        version, start = _read_token(target, token)
        return (core.store.version if version < 0 else version), start
    _check_present(core, asked)
    match = query.text(_MATCH)
    exact = match == "Exact" or (not match and query.number("limit"))  # with only a limit, a version means Exact
    return asked if exact and asked else core.store.version, None


def _token_of(target: Target, version: int, last: tuple[str, str]) -> str:
    """The token that asks for the objects after ``last``, a (namespace, name)."""
    start = "/".join(part for part in last if part) if target.namespace is None else f"/{last[1]}"
    token = json.dumps({"v": _META_VERSION, "rv": version, "start": f"{start}\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def _read_token(target: Target, token: str) -> tuple[int, tuple[str, str]]:
    """Version (negative for the newest) and last object of a token. Raises 400."""
    try:
        said = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = operator.index(said["rv"]), str(said["start"])
    except (ValueError, TypeError, KeyError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    namespace, _, name = start.rstrip("\0").rpartition("/")
    return version, (namespace or target.place, name)


def get_one(core: Core, target: Target, query: Query) -> Stored:
    """One object. Raises 404, 500 for a malformed version, 504 for a future version."""
    _check_present(core, version_of_one(query))
    return core.store.get(target.kind, target.place, target.name)


def _items_at(core: Core, target: Target, version: int, name: str | None) -> list[Stored]:
    """The objects as they were at a version. Raises 410."""
    collection = core.store.of(target.kind)
    if version == core.store.version:
        if name is not None and target.namespace is not None:
            found = collection.get(target.namespace, name)
            return [found] if found else []
        return list(collection.within(target.namespace))
    newer = collection.history.since(version)
    items = {(item.namespace, item.name): item for item in collection.within(target.namespace)}
    for event in reversed(newer):
        if target.namespace not in {None, event.namespace}:
            continue
        key = (event.namespace, event.name)
        if event.type == ADDED or event.previous is None:
            items.pop(key, None)
        else:
            before = load(event.previous)
            items[key] = Stored(before, event.previous, int(before["metadata"]["resourceVersion"]))
    return list(items.values())


def _selected(selection: Selection, item: Stored) -> bool:
    if selection.everything:
        return True
    if not selection.admits_labels(item.labels):
        return False
    return selection.labels_only or selection.admits(item.parse())


def _key(item: Stored) -> tuple[str, str]:
    return (item.namespace, item.name)

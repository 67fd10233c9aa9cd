"""Get and list: consistent pages by undoing what has happened since the first of them."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .answers import ApiError, bad_request, expired, invalid_options
from .encoding import dump, load
from .history import ADDED
from .selectors import Selection
from .store import Stored

if TYPE_CHECKING:
    from .core import Core
    from .encoding import JSON
    from .requests import Query, Target

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or a part of one."""

    items: list[Stored]
    version: int
    next: str = ""  # the continue token
    remaining: int | None = None

    def metadata(self) -> JSON:
        """ListMeta."""
        metadata: JSON = {"resourceVersion": str(self.version)}
        if self.next:
            metadata["continue"] = self.next
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


def list_body(target: Target, page: Page) -> bytes:
    """The list as JSON; the objects' own bytes go in as they are."""
    head = {"kind": target.kind.list_kind, "apiVersion": target.kind.api_version, "metadata": page.metadata()}
    return b'%b,"items":[%b]}' % (dump(head)[:-1], b",".join(item.data for item in page.items))


def selection_of(target: Target, query: Query) -> Selection:
    """What the query selects. Raises 400."""
    return Selection(target.kind, query.text("labelSelector"), query.text("fieldSelector"))


def list_page(core: Core, target: Target, query: Query) -> Page:
    """List a collection. Raises 400, 410 for a continue token that is too old, 504 for a future version."""
    selection = selection_of(target, query)
    version, start = core.store.version, ("", "")
    token = query.text("continue")
    if token:
        if query.text("resourceVersionMatch"):
            raise _forbidden_match("resourceVersionMatch is forbidden when continue is provided")
        version, start = _read_token(token)
    else:
        _check_version(query, version)
    items = _items_at(core, target, version, selection.name)
    ordered = sorted(items, key=_key)
    if token:
        ordered = [item for item in ordered if _key(item) > start]
    chosen = [item for item in ordered if _selected(selection, item)]
    limit = query.number("limit") or 0
    if 0 < limit < len(chosen):
        rest = len(chosen) - limit if selection.everything else None
        return Page(chosen[:limit], version, _token(version, _key(chosen[limit - 1])), rest)
    return Page(chosen, version)


def _items_at(core: Core, target: Target, version: int, name: str | None) -> list[Stored]:
    """The objects as they were at a version."""
    collection = core.store.of(target.kind)
    if version == core.store.version:
        if name is not None and target.namespace is not None:
            found = collection.get(target.namespace, name)
            return [found] if found else []
        return list(collection.within(target.namespace))
    try:
        newer = collection.history.since(version)
    except ApiError as error:
        raise expired(_TOO_OLD) from error
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


def _check_version(query: Query, current: int) -> None:
    """``resourceVersion`` of a list. Raises 400 and 504."""
    wanted, match = query.text("resourceVersion"), query.text("resourceVersionMatch")
    if match and not wanted:
        raise _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if not wanted:
        return
    version = version_number(wanted)
    if version > current:
        raise too_large_version(version, current)
    if match == "Exact" and version == 0:
        raise _forbidden_match('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')


def _forbidden_match(text: str) -> ApiError:
    problem = ("FieldValueForbidden", "resourceVersionMatch", f"Forbidden: {text}")
    return invalid_options("ListOptions", problem)


def version_number(text: str) -> int:
    """A resourceVersion as a number. Raises 400."""
    if not text.isdecimal():
        told = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: resourceVersion: {told}")
    return int(text)


def too_large_version(version: int, current: int) -> ApiError:
    """504 for a version that is not there yet."""
    message = f"Too large resource version: {version}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiError(504, "Timeout", f"Timeout: {message}", details)


def _token(version: int, last: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps({"rv": version, "after": last}).encode()).decode()


def _read_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        found = json.loads(base64.urlsafe_b64decode(token))
        namespace, name = found["after"]
        return int(found["rv"]), (str(namespace), str(name))
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error

"""Get and list. Pages stay consistent because later changes are undone when a page is read.

Sources: ``k8s.io/apimachinery`` ``pkg/apis/meta/internalversion`` for the options of a list or a watch,
``k8s.io/apiserver`` ``pkg/storage/continue.go`` for the tokens of pages.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from dataclasses import dataclass
from typing import Any

from backoff_ctrl.k8s.sandbox.core import Core
from backoff_ctrl.k8s.sandbox.objects.answers import ApiError, bad_request, expired, invalid_options, unexpected
from backoff_ctrl.k8s.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.sandbox.objects.schema import json_word
from backoff_ctrl.k8s.sandbox.objects.selectors import Selection
from backoff_ctrl.k8s.sandbox.objects.store import ADDED, Stored
from backoff_ctrl.k8s.sandbox.objects.texts import JSON, dump, load, parse
from backoff_ctrl.k8s.sandbox.verbs.requests import Query, Target

Problem = tuple[str, str, str]


_MATCH = "resourceVersionMatch"
_CONTINUED = "resourceVersionMatch is forbidden when continue is provided"


def check_list(query: Query) -> None:
    """Check the options of a list. Raises 400 for a malformed number, 422."""
    _check_numbers(query)
    match, version = query.text(_MATCH), query.text("resourceVersion")
    problems: list[Problem] = []
    if match:
        if not version:
            problems.append(_forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if query.text("continue"):
            problems.append(_forbidden(_CONTINUED))
        if match not in {"Exact", "NotOlderThan"}:
            problems.append(_unsupported(match, '"Exact", "NotOlderThan", ""'))
        if match == "Exact" and version == "0":
            problems.append(_forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if query.has("sendInitialEvents"):
        problems.append(_forbidden("sendInitialEvents is forbidden for list", "sendInitialEvents"))
    if problems:
        raise invalid_options("ListOptions", *problems)


def check_watch(query: Query) -> None:
    """Check the options of a watch. Raises 400 for a malformed number, 422."""
    _check_numbers(query)
    match, initial = query.text(_MATCH), query.has("sendInitialEvents")
    problems: list[Problem] = []
    if initial and match != "NotOlderThan":
        problems.append(_forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match and not initial:
        problems.append(_forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
    if match and match != "NotOlderThan":
        problems.append(_unsupported(match, '"NotOlderThan"'))
    if query.text("continue"):
        problems.append(_forbidden(_CONTINUED))
    if problems:
        raise invalid_options("ListOptions", *problems)


def _check_numbers(query: Query) -> None:
    """Parse every number, even one that does not matter to the request. Raises 400."""
    for name in ("timeoutSeconds", "limit"):
        query.number(name)


def version_of_list(text: str) -> int:
    """The resourceVersion of a list as a number. Raises 400."""
    if not text.isdecimal():
        raise bad_request(f"invalid resource version: {_no_number(text)}")
    return int(text)


def version_of_one(text: str) -> int:
    """The resourceVersion of a get or a watch as a number. A malformed one is the server's error here: raises 500."""
    if not text.isdecimal():
        raise unexpected(_no_number(text))
    return int(text)


def _no_number(text: str) -> str:
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def too_large_version(version: int, current: int) -> ApiError:
    """504 for a version that does not exist yet."""
    message = f"Too large resource version: {version}, current: {current}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiError(504, "Timeout", f"Timeout: {message}", details)


def _forbidden(text: str, field: str = _MATCH) -> Problem:
    return ("FieldValueForbidden", field, f"Forbidden: {text}")


def _unsupported(value: str, supported: str) -> Problem:
    return ("FieldValueNotSupported", _MATCH, f'Unsupported value: "{value}": supported values: {supported}')


NEWEST = -1
"""The version in a token that continues with the objects as they are by then."""
_VERSION = "meta.k8s.io/v1"
_FIELDS: dict[str, tuple[type, str]] = {"v": (str, "string"), "rv": (int, "int64"), "start": (str, "string")}
_NOT_BASE64 = re.compile(rb"[^-_A-Za-z0-9]")
_INT64 = range(-(2**63), 2**63)


def token_of(target: Target, version: int, last: tuple[str, str]) -> str:
    """The token that asks for the objects after ``last``, a (namespace, name)."""
    start = "/".join(part for part in last if part) if target.namespace is None else f"/{last[1]}"
    token = json.dumps({"v": _VERSION, "rv": version, "start": f"{start}\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def read_token(target: Target, token: str) -> tuple[int, tuple[str, str]]:
    """Version (negative for the newest) and last object of a token. Raises 400."""
    try:
        version, start = _checked(_fields(parse(_decoded(token.encode()))))
    except ValueError as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    namespace, _, name = start.rstrip("\0").rpartition("/")
    return version, (namespace or target.place, name)


def _decoded(token: bytes) -> bytes:
    """Decode base64 without padding as Go does: it ignores line ends."""
    wrong = _NOT_BASE64.search(token.replace(b"\n", b"A").replace(b"\r", b"A"))
    bare = token.replace(b"\n", b"").replace(b"\r", b"")
    if wrong or len(bare) % 4 == 1:
        raise ValueError(f"illegal base64 data at input byte {wrong.start() if wrong else len(token) - 1}")
    return base64.urlsafe_b64decode(bare + b"=" * (-len(bare) % 4))


def _fields(found: Any) -> dict[str, Any]:
    """The fields of a token, type-checked; a null counts as absent."""
    mistyped = "" if isinstance(found, dict | None) else json_word(found)
    if mistyped:
        raise ValueError(f"json: cannot unmarshal {mistyped} into Go value of type storage.continueToken")
    said = {name: value for name, value in (found or {}).items() if name in _FIELDS and value is not None}
    for name, value in said.items():
        type_, go_type = _FIELDS[name]
        if isinstance(value, bool) or not isinstance(value, type_) or (type_ is int and value not in _INT64):
            number = f" {value}" if type_ is int and json_word(value) == "number" else ""
            word = json_word(value) + number
            raise ValueError(
                f"json: cannot unmarshal {word} into Go struct field continueToken.{name} of type {go_type}"
            )
    return said


def _checked(said: dict[str, Any]) -> tuple[int, str]:
    api_version, version, start = said.get("v", ""), said.get("rv", 0), said.get("start", "")
    if api_version != _VERSION:
        raise ValueError(f"server does not recognize this encoded version {api_version}")
    if not version:
        raise ValueError(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not start:
        raise ValueError(f"encoded start key empty (version {_VERSION})")
    key = start if start.startswith("/") else f"/{start}"
    if posixpath.normpath(key) != key or key.startswith("//"):
        raise ValueError(start)  # it would lead outside the list
    return version, start


_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."


@dataclass(frozen=True, slots=True)
class Page:
    """A list, or one page of it."""

    items: list[Stored]
    version: int
    next: str = ""  # the continue token
    remaining: int | None = None

    def metadata(self) -> JSON:
        """The ListMeta of the page."""
        metadata: JSON = {"resourceVersion": str(self.version)}
        if self.next:
            metadata["continue"] = self.next
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


def list_body(target: Target, page: Page) -> bytes:
    """The list as JSON, from the stored bytes; items of built-in lists omit the kind, which the list states once."""
    head = {"kind": target.kind.list_kind, "apiVersion": target.kind.api_version, "metadata": page.metadata()}
    said = head_of(target.kind) if target.kind.strategic else b""
    items = b",".join(b"{" + item.data[len(said) :] if said else item.data for item in page.items)
    return b'%b,"items":[%b]}' % (dump(head)[:-1], items)


def head_of(kind: Kind) -> bytes:
    """The bytes with which every stored object of a kind begins."""
    return dump({"kind": kind.kind, "apiVersion": kind.api_version})[:-1] + b","


def selection_of(target: Target, query: Query) -> Selection:
    """The selection that the query asks for. Raises 400."""
    return Selection(target.kind, query.text("labelSelector"), query.text("fieldSelector"))


def list_page(core: Core, target: Target, query: Query) -> Page:
    """List a collection. Raises 400, 410 for a forgotten version, 422, 504 for a future version."""
    check_list(query)
    selection = selection_of(target, query)
    version, start = _version_and_start(core, target, query)
    try:
        items = _items_at(core, target, version, selection.name)
    except ApiError as error:
        if start is None:
            raise expired(_TOO_OLD_LIST) from error
        raise expired(_TOO_OLD, {"continue": token_of(target, NEWEST, start)}) from error
    ordered = sorted(items, key=_key)
    if start:
        ordered = [item for item in ordered if _key(item) > start]
    chosen = [item for item in ordered if _selected(selection, item)]
    limit = query.number("limit") or 0
    if 0 < limit < len(chosen):
        rest = len(chosen) - limit if selection.everything else None
        return Page(chosen[:limit], version, token_of(target, version, _key(chosen[limit - 1])), rest)
    return Page(chosen, version)


def _version_and_start(core: Core, target: Target, query: Query) -> tuple[int, tuple[str, str] | None]:
    """The version that a list shows, and the object after which it begins. Raises 400 and 504."""
    wanted, token = query.text("resourceVersion"), query.text("continue")
    asked = version_of_list(wanted) if wanted else 0
    if token:
        if asked:
            raise bad_request("specifying resource version is not allowed when using continue")
        version, start = read_token(target, token)
        return (core.store.version if version < 0 else version), start
    if asked > core.store.version:
        raise too_large_version(asked, core.store.version)
    match = query.text("resourceVersionMatch")
    exact = match == "Exact" or (not match and query.number("limit"))  # with only a limit, a version means Exact
    return asked if exact and asked else core.store.version, None


def get_one(core: Core, target: Target, query: Query) -> Stored:
    """One object. Raises 404, 500 for a malformed version, 504 for a future version."""
    wanted = query.text("resourceVersion")
    version = version_of_one(wanted) if wanted else 0
    if version > core.store.version:
        raise too_large_version(version, core.store.version)
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

"""JSON from an API server, read within bounds. Pure.

An API server stores JSON that Python can't read, or can read but not walk through: fields nested 10,000 levels deep,
numbers of any length, and bytes that are no UTF-8. A user who may patch one object can write all of these into its
``managedFields``; one such object must not cost the readers of a list the other objects of its page. So a value
beyond the bounds is left out (null stands in its place), and the object is marked by its type, ``PartlyRead``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import accumulate, compress, count
from typing import Any, Final, TypeAlias

Trim: TypeAlias = "Callable[[Mapping[str, Any]], dict[str, Any]]"
"""Returns what is needed of an object. Pure."""

DEPTH_MAX: Final = 100
"""Levels of one object that are read. Kubernetes' own kinds have 20 at most."""
_DIGITS_MAX: Final = 400
"""Digits of a number that is read at its face value; int64 has 19. Python refuses 4,300."""
_TEXT: Final = bytes(set(range(256)) - set(b'"{}[]'))
_NO_BRACKETS: Final = bytes.maketrans(b"{}[]", b"____")
_STEPS: Final = bytes({ord("{"): 1, ord("["): 1, ord("}"): 255, ord("]"): 255}.get(each, 0) for each in range(256))
"""Maps a bracket to the step between levels that it is, as a signed byte; all else to 0."""


class PartlyRead(dict[str, Any]):
    """An object without its parts beyond the bounds. ``why`` says which bounds."""

    def __init__(self, found: dict[str, Any], why: str) -> None:
        super().__init__(found)
        self.why = why


def read_json(data: bytes, trim: Trim | None = None) -> Any:
    """Return what an API server answered: an object, or a page of a list.

    If the whole is beyond the bounds, each object in it is read by itself, and those beyond the bounds are
    ``PartlyRead``. An item of a list that is no JSON is None. Raises ``ValueError`` for other bytes that are no JSON.

    ``trim`` returns what is needed of an object of a list. Each item of a list is trimmed before the
    next one is parsed: of 4 MB that take 60 MB as objects, only what is needed is ever there at once.
    """
    if trim is not None and not is_deeper(data, DEPTH_MAX):
        with suppress(ValueError, RecursionError):  # some object is beyond the bounds: each is read by itself below
            return _items_trimmed(data.decode(), trim)
    found = _whole(data)
    found = _parts_of(data) if found is _UNREAD else found
    return found if trim is None else _trimmed_whole(found, trim)


def read_line(line: bytes, trim: Trim | None = None) -> Any:
    """Return a line of a watch: an event. As ``read_json``; ``trim`` returns what is needed of its object."""
    found = read_json(line)
    if trim is None or not isinstance(found, dict) or found.get("type") not in _EVENTS or "object" not in found:
        return found
    return {**found, "object": _trimmed(found["object"], trim)}


def is_deeper(data: bytes, levels: int) -> bool:
    """Return whether JSON is nested deeper than so many levels, without parsing it."""
    if data.count(b"{") + data.count(b"[") <= levels:
        return False
    if b"\\" in data:
        data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    marks = data.translate(None, _TEXT).replace(b'""', b"")  # strings without a bracket in them are gone
    steps = b"".join(marks.split(b'"')[::2]).translate(_STEPS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > levels


_SPACE: Final = re.compile(r"[ \t\n\r]*")
_PLAIN: Final = json.JSONDecoder()
_EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
"""Events whose objects are of the kind that is watched."""


def _items_trimmed(text: str, trim: Trim) -> Any:
    """Return an object that is read field by field, and of a list item by item. Raises ``ValueError`` for no JSON."""
    found: dict[str, Any] = {}
    at = _after(text, 0, "{")
    while True:
        name, at = _PLAIN.raw_decode(text, at)
        at = _after(text, at, ":")
        if not isinstance(name, str):
            raise ValueError("the name of a field is no text")  # noqa: TRY004 - as for all that is no JSON
        if name == "items" and text[at : at + 1] == "[":
            found[name], at = _list_trimmed(text, at, trim)
        else:
            found[name], at = _PLAIN.raw_decode(text, at)
        at = _space(text, at)
        if text[at : at + 1] == "}":
            if _space(text, at + 1) != len(text):
                raise ValueError("more follows the object")
            return found
        at = _after(text, at, ",")


def _list_trimmed(text: str, at: int, trim: Trim) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = _space(text, at + 1)
    while text[at : at + 1] != "]":
        if found:
            at = _after(text, at, ",")
        item, at = _PLAIN.raw_decode(text, at)
        found.append(_trimmed(item, trim))
        at = _space(text, at)
    return found, at + 1


def _after(text: str, at: int, mark: str) -> int:
    """Return where the text goes on after a mark. Raises ``ValueError`` where it is not there."""
    at = _space(text, at)
    if text[at : at + 1] != mark:
        raise ValueError(f"no {mark} at {at}")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _trimmed_whole(found: Any, trim: Trim) -> Any:
    if isinstance(found, dict) and isinstance(found.get("items"), list):
        return {**found, "items": [_trimmed(item, trim) for item in found["items"]]}
    return found


def _trimmed(item: Any, trim: Trim) -> Any:
    """Return what is needed of an object; other values stay as they are."""
    if not isinstance(item, dict):
        return item
    return PartlyRead(trim(item), item.why) if isinstance(item, PartlyRead) else trim(item)


_UNREAD: Final = object()


def _whole(data: bytes) -> Any:
    """Return all of it, or ``_UNREAD`` where it is beyond the bounds, or no JSON."""
    if is_deeper(data, DEPTH_MAX):
        return _UNREAD
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _UNREAD


def _parts_of(data: bytes) -> Any:
    outer, parts = _cut(data, 2)
    match found := _loads(outer):
        case {"items": list(items)} if items.count(None) == len(parts):
            objects = map(_item, parts)
            return {**found, "items": [next(objects) if each is None else each for each in items]}
    outer, parts = _cut(data, 1)
    match found := _loads(outer):
        case {"type": str(), "object": None} if len(parts) == 1:
            return {**found, "object": _bounded(parts[0])}
    return _bounded(data)


def _item(data: bytes) -> Any:
    try:
        return _bounded(data)
    except ValueError:
        return None


def _bounded(data: bytes) -> Any:
    found = _whole(data)
    if found is not _UNREAD:
        return found
    kept, deep = _cut(data, DEPTH_MAX)
    found = _loads(kept)
    why = (
        f"it is nested more than {DEPTH_MAX} levels deep"
        if deep
        else f"it has a number of more than {_DIGITS_MAX} digits, or text that is not UTF-8"
    )
    if not isinstance(found, dict):
        raise ValueError(f"{why}, and no object")  # noqa: TRY004 - as for all bytes that are no JSON
    return PartlyRead(found, why)


def _cut(data: bytes, levels: int) -> tuple[bytes, list[bytes]]:
    """Return JSON with null in place of each value that lies deeper, and these values in their order."""
    kept: list[bytes] = []
    deeper: list[bytes] = []
    steps = _outside_of_strings(data).translate(_STEPS)
    level = start = 0
    for at in compress(count(), steps):
        if steps[at] == 1:
            if level == levels:
                kept.append(data[start:at])
                start = at
            level += 1
        else:
            level -= 1
            if level == levels:
                deeper.append(data[start : at + 1])
                kept.append(b"null")
                start = at + 1
    kept.append(data[start:])
    return b"".join(kept), deeper


def _outside_of_strings(data: bytes) -> bytes:
    """Return JSON of the same length, whose strings have no brackets and no quotes in them."""
    pieces = data.replace(rb"\\", b"__").replace(rb"\"", b"__").split(b'"')
    strings = b'"'.join(pieces[1::2]).translate(_NO_BRACKETS)
    pieces[1::2] = strings.split(b'"') if len(pieces) > 1 else []
    return b'"'.join(pieces)


def _loads(data: bytes) -> Any:
    try:
        return _LENIENT.decode(data.decode(errors="replace"))
    except RecursionError as error:
        raise ValueError(str(error)) from error


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _DIGITS_MAX else None


_LENIENT: Final = json.JSONDecoder(parse_int=_integer)

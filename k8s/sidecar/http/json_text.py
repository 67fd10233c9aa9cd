"""JSON: reads a body, and sets fields of its metadata where they lie, so that every other byte stays."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from .messages import LARGEST, PayloadError

_BLANK: Final = " \t\n\r"
_BEGIN: Final = re.compile(r"\{[ \t\n\r]*")
_COLON: Final = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_NEXT: Final = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_END: Final = re.compile(r"[ \t\n\r]*\}")


class _Member(NamedTuple):
    """The value of a member, and its place in the text."""

    value: Any
    start: int
    stop: int


class _Object(NamedTuple):
    """An object in a text: where it begins and ends, and its members."""

    start: int
    stop: int
    members: dict[str, _Member]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a field that comes twice: for built-in kinds Go merges the two, for custom ones the last replaces it."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise PayloadError("the body has a field twice")
    return found


def _no_constant(name: str) -> None:
    """Refuse what Python alone accepts as JSON."""
    raise PayloadError(f"the body is not valid JSON: {name} is not a number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def read_json(body: bytes) -> Any:
    """Return the value of a body. Raises ``PayloadError``."""
    text = _text(body)
    try:
        return _DECODER.decode(text)
    except PayloadError:
        raise
    except (ValueError, RecursionError) as error:
        raise _invalid(error) from None


def mark_json(body: bytes, name: str, annotations: Mapping[str, str], dropped: Collection[str]) -> bytes | None:
    """Return the body with this name, if one is given, and these annotations; every other byte stays.

    None if its metadata has a form that the API server refuses, whose own error is better.
    """
    text = _text(body)
    whole = _object(text, len(text) - len(text.lstrip(_BLANK)))
    if text[whole.stop :].strip(_BLANK):
        raise PayloadError("the body is not valid JSON: something follows the object")
    fields = {"name": json.dumps(name)} if name else {}
    metadata = whole.members.get("metadata", _Member(None, 0, 0))
    if metadata.value is None:
        new = {"name": name} if name else {}
        return _edited(text, whole, {"metadata": json.dumps({**new, "annotations": dict(annotations)})}).encode()
    if not isinstance(metadata.value, dict):
        return None
    place = _object(text, metadata.start)
    given = metadata.value.get("annotations")
    if given is not None and not (isinstance(given, dict) and all(isinstance(each, str) for each in given.values())):
        return None
    kept = {key: value for key, value in (given or {}).items() if key not in dropped}
    if {**kept, **annotations} != (given or {}):
        fields["annotations"] = json.dumps({**kept, **annotations})  # ASCII: half a surrogate stays an escape
    return _edited(text, place, fields).encode()


def _text(body: bytes) -> str:
    if len(body) > LARGEST:
        raise PayloadError(f"the body is larger than {LARGEST >> 20} MiB")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise PayloadError("the body is not valid JSON: it is not UTF-8") from None


def _object(text: str, at: int) -> _Object:
    """Read the object that begins here, and where its members lie. Raises ``PayloadError``."""
    try:
        return _scan(text, at)
    except PayloadError:
        raise
    except (ValueError, RecursionError) as error:
        raise _invalid(error) from None


def _scan(text: str, start: int) -> _Object:
    members: dict[str, _Member] = {}
    read = _DECODER.raw_decode
    begin = _BEGIN.match(text, start)
    if begin is None:
        raise _missing("{")
    at = begin.end()
    if text.startswith("}", at):
        return _Object(start, at + 1, members)
    while True:
        if not text.startswith('"', at):
            raise _missing("a name")
        key, at = read(text, at)
        colon = _COLON.match(text, at)
        if colon is None:
            raise _missing(":")
        value, stop = read(text, at := colon.end())
        if key in members:
            raise PayloadError("the body has a field twice")
        members[key] = _Member(value, at, stop)
        comma = _NEXT.match(text, stop)
        if comma is None:
            break
        at = comma.end()
    end = _END.match(text, stop)
    if end is None:
        raise _missing("}")
    return _Object(start, end.end(), members)


def _missing(what: str) -> PayloadError:
    return PayloadError(f"the body is not valid JSON: {what} is missing")


def _edited(text: str, place: _Object, fields: Mapping[str, str]) -> str:
    """Return the text with these members of an object: they replace existing ones, or are added at its beginning."""
    new = [f'"{key}":{value}' for key, value in fields.items() if key not in place.members]
    inserted = ",".join(new) + ("," if new and place.members else "")
    edits = [(place.start + 1, place.start + 1, inserted)]
    edits += [(*place.members[key][1:], value) for key, value in fields.items() if key in place.members]
    return with_edits(text, edits)


def with_edits(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return the text with each replacement between its two places."""
    parts, at = [], 0
    for start, stop, written in sorted(edits):
        parts += [text[at:start], written]
        at = stop
    return "".join((*parts, text[at:]))


def _invalid(error: Exception) -> PayloadError:
    """Describe the error, with its place but without the text."""
    said = f"{error.msg} at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "it can't be read"
    return PayloadError(f"the body is not valid JSON: {said}")

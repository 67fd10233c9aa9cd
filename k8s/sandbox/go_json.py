"""JSON as Go reads it: what its decoder says of a text that is none, and fields that a text has twice."""

from __future__ import annotations

import json
from typing import Any

_LITERALS = ("null", "true", "false")
_CLOSED = {"}": "{", "]": "["}
NO_MORE = "unexpected end of JSON input"


def syntax_error(error: ValueError) -> str:
    """The sentence of ``encoding/json`` for what Python's decoder stumbled over."""
    if not isinstance(error, json.JSONDecodeError):
        return " ".join(str(error).split())
    text, at = error.doc, error.pos
    if at >= len(text) or error.msg.startswith("Unterminated"):
        return NO_MORE
    if error.msg.startswith("Expecting value"):
        return _value(text, at)
    place = {
        "Expecting property name": "looking for beginning of object key string",
        "Expecting ':'": "after object key",
        "Expecting ','": f"after {'object key:value pair' if _innermost(text[:at]) == '{' else 'array element'}",
        "Extra data": "after top-level value",
        "Invalid control character": "in string literal",
        "Invalid \\": "in string escape code",
    }
    for start, words in place.items():
        if error.msg.startswith(start):
            return f"invalid character {_quoted(text[at])} {words}"
    return f"invalid character {_quoted(text[at])} looking for beginning of value"


def _value(text: str, at: int) -> str:
    for literal in _LITERALS:
        if text[at] == literal[0]:
            for offset, wanted in enumerate(literal):
                if at + offset >= len(text):
                    return NO_MORE
                if text[at + offset] != wanted:
                    found = _quoted(text[at + offset])
                    return f"invalid character {found} in literal {literal} (expecting '{wanted}')"
    return f"invalid character {_quoted(text[at])} looking for beginning of value"


def _quoted(character: str) -> str:
    return {"'": r"'\''", "\\": r"'\\'", "\n": r"'\n'", "\t": r"'\t'", "\r": r"'\r'"}.get(character, f"'{character}'")


def _innermost(text: str) -> str:
    """The bracket that is open at the end of a text."""
    open_: list[str] = []
    inside = escaped = False
    for character in text:
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            inside = True
        elif character in "{[":
            open_.append(character)
        elif open_ and _CLOSED.get(character) == open_[-1]:
            open_.pop()
    return open_[-1] if open_ else ""


def summary(data: bytes) -> str:
    """The beginning of a body, as Kubernetes shows what it could not read."""
    if not data:
        return "<empty>"
    shown = data[:30].decode(errors="replace") if data[:1] == b"{" else data[:30].hex()
    return f"{shown} ..." if len(data) > 30 else shown


def repeated_fields(data: bytes) -> list[str]:
    """Paths of the fields that a JSON text gives twice; nothing for what is no JSON."""
    twice: dict[int, list[str]] = {}
    kept: list[Any] = []  # so that no id is used again

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            seen: set[str] = set()
            twice[id(made)] = [name for name, _ in found if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        kept.append(made)
        return made

    try:
        whole = json.loads(data, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return []
    paths: list[str] = []
    _collect(whole, "", twice, paths)
    return paths


def _collect(value: Any, path: str, twice: dict[int, list[str]], paths: list[str]) -> None:
    if isinstance(value, dict):
        paths += [f"{path}.{name}".lstrip(".") for name in twice.get(id(value), ())]
        for name, below in value.items():
            _collect(below, f"{path}.{name}", twice, paths)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            _collect(below, f"{path}[{index}]", twice, paths)

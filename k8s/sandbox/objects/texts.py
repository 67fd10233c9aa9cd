"""JSON in and out. The store keeps bytes, so every parse is a private copy that its reader may change."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

JSON = dict[str, Any]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def dump(value: Any) -> bytes:
    """Serialise without spaces, as UTF-8."""
    return _encode(value).encode()


def load(data: bytes) -> JSON:
    """Parse an object that ``dump`` wrote."""
    parsed: JSON = json.loads(data)
    return parsed


_LITERALS = ("null", "true", "false")
_CLOSED = {"}": "{", "]": "["}
NO_MORE = "unexpected end of JSON input"
NO_TEXT = "\ufffd"  # what Go reads for a byte or an escape that is not a character
_DEEPEST = 10_000
_RAW = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as `surrogateescape` keeps them
_ESCAPES = re.compile(
    r"\\\\|(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity|[\[\]{}]')


class TooDeepError(ValueError):
    """JSON that is nested too deeply to be read."""


def parse(data: bytes, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Read JSON as Go does. Raises ``ValueError`` with Go's message."""
    if not data.strip():
        raise ValueError(NO_MORE)
    raw = data.decode("utf-8", "surrogateescape")
    text = _RAW.sub(NO_TEXT, raw)  # both replacements keep the position of every character, for error messages
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPES.sub(lambda found: r"\ufffd" if found["lone"] else found[0], text)
    try:
        return _loads(text, pairs)
    except json.JSONDecodeError as error:
        error.doc = raw
        raise ValueError(syntax_error(error)) from error
    except RecursionError as error:
        raise TooDeepError(f"invalid character '{_deepest(text)}' exceeded max depth") from error


def _loads(text: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None) -> Any:
    def refused(name: str) -> Any:
        at = next(found.start() for found in _TOKENS.finditer(text) if found[0] == name)
        raise json.JSONDecodeError("Expecting value", text, at)

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=refused)
    except json.JSONDecodeError:
        raise
    except ValueError:  # more digits than Python converts to an integer: Go reads them as a float
        return json.loads(text, object_pairs_hook=pairs, parse_constant=refused, parse_int=_any_number)


def _any_number(digits: str) -> int | float:
    return int(digits) if len(digits) < 20 else max(min(float(digits), sys.float_info.max), -sys.float_info.max)


def _deepest(text: str) -> str:
    """The bracket that exceeds Go's limit, or the deepest one: Python may give up before Go would."""
    depth = most = 0
    found = "["
    for token in _TOKENS.finditer(text):
        if token[0] in "]}":
            depth -= 1
        elif token[0] in "[{":
            depth += 1
            if depth > most:
                most, found = depth, token[0]
            if depth > _DEEPEST:
                break
    return found


def syntax_error(error: json.JSONDecodeError) -> str:
    """The message of ``encoding/json`` for an error of Python's decoder."""
    text, at = error.doc, error.pos
    if at < len(text) and error.msg.startswith("Expecting") and (number := _number(text, at)):
        return number
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
        "Invalid \\escape": "in string escape code",
    }
    if error.msg.startswith("Invalid \\uXXXX"):
        return _hexadecimal(text, at)
    if error.msg.startswith("Invalid \\escape") and text[at] == "\\":
        at += 1  # Python points at the backslash
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
    byte = character.encode("utf-8", "surrogateescape")[0]  # Go reads bytes, and prints one as if it were Latin-1
    if byte < 0x20 or byte >= 0x7F:
        character = chr(byte) if byte > 0xA0 and byte != 0xAD else f"\\x{byte:02x}" if byte < 0x80 else f"\\u{byte:04x}"
    return {"'": r"'\''", "\\": r"'\\'", "\n": r"'\n'", "\t": r"'\t'", "\r": r"'\r'"}.get(character, f"'{character}'")


def _number(text: str, at: int) -> str:
    """What is wrong with a number that Python read only in part, or not at all; empty where there is no number."""
    for opening, words in (
        (r"-", "in numeric literal"),
        (r"(?<=[0-9])\.", "after decimal point in numeric literal"),
        (r"(?<=[0-9])[eE][-+]?", "in exponent of numeric literal"),
    ):
        found = re.compile(opening).match(text, at)
        if found and found.end() < len(text):
            return f"invalid character {_quoted(text[found.end()])} {words}"
        if found and found.end() == len(text):
            return NO_MORE
    return ""


def _hexadecimal(text: str, at: int) -> str:
    """Name the first of four characters that is not a hexadecimal digit."""
    for character in text[at + 1 : at + 5] if text[at] == "u" else text[at : at + 4]:
        if character not in "0123456789abcdefABCDEF":
            return f"invalid character {_quoted(character)} in \\u hexadecimal character escape"
    return NO_MORE


def _innermost(text: str) -> str:
    """The bracket that is still open at the end of a text."""
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
    """The beginning of a body, as Kubernetes shows a body that it could not read."""
    if not data:
        return "<empty>"
    shown = data[:30].decode(errors="replace") if data[:1] == b"{" else data[:30].hex()
    return f"{shown} ..." if len(data) > 30 else shown


def repeated_fields(data: bytes) -> list[str]:
    """Paths of the fields that a JSON text gives twice; empty for malformed JSON."""
    twice: dict[int, list[str]] = {}
    kept: list[Any] = []  # keeps every dict alive, so that no id is reused

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            seen: set[str] = set()
            twice[id(made)] = [name for name, _ in found if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        kept.append(made)
        return made

    try:
        whole = parse(data, pairs)
    except ValueError:
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

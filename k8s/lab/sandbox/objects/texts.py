"""JSON in and out. The store keeps bytes, so every parse is a private copy that its reader may change."""

from __future__ import annotations

import json
import re
from typing import Any

JSON = dict[str, Any]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
# An escaped pair of surrogates stays; half of one is no character, and could not be written as UTF-8.
_ESCAPES = re.compile(
    r"\\\\|(?P<pair>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def dump(value: Any) -> bytes:
    return _encode(value).encode()


def load(data: bytes) -> JSON:
    parsed: JSON = json.loads(data)
    return parsed


def parse(data: bytes) -> Any:
    """Parse what a client sent; as Go does, read what is no character as U+FFFD. Raises ``ValueError``."""
    if not data.strip():
        raise ValueError("unexpected end of JSON input")
    text = data.decode(errors="replace")
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPES.sub(lambda found: r"\ufffd" if found["lone"] else found[0], text)
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("exceeded max depth") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def json_word(value: Any) -> str:
    """Go's name for the JSON type of a value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names: tuple[tuple[type, str], ...] = ((str, "string"), (list, "array"), (dict, "object"))
    return next((word for type_, word in names if isinstance(value, type_)), "null")

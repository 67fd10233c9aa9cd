"""JSON in and out. The store keeps bytes, so every parse is a private copy that its reader may change."""

from __future__ import annotations

import json
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

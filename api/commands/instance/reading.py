"""Reads JSON into the shapes of the status API. Unknown keys are left out: later versions may add some."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def read(kind: Any, found: Any) -> Any:
    """Return ``found`` as ``kind``: a type, or a class of ``shapes``. Raises ``ValueError`` if it is something else."""
    if is_dataclass(kind):
        return _object(kind, found)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if found is None and NoneType in parts else read(parts[0], found)
    if origin is list and isinstance(found, list):
        return [read(parts[0], each) for each in found]
    if origin is dict and isinstance(found, dict):
        return {name: read(parts[1], each) for name, each in found.items()}
    plain = str if origin is Literal else kind  # a later version may know more literals
    if plain is not Any and type(found) is not plain:
        raise ValueError(f"{_shown(found)} is no {getattr(plain, '__name__', plain)}")
    return found


def read_time(text: str) -> datetime:
    """Read a time of RFC 3339. Raises ``ValueError``."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{_shown(text)} has no time zone")
    return found


def _object(shape: Any, found: Any) -> Any:
    document = read(dict[str, Any], found)
    kinds = _hints(shape)
    values = {}
    for field in fields(shape):
        if field.name in document:
            values[field.name] = read(kinds[field.name], document[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{field.name} is missing")
    return shape(**values)


_hints = cache(get_type_hints)


def _shown(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 40 else f"{text[:39]}…"

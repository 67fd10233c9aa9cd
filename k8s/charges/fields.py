"""Reading a manifest field by field, so that a wrong one is named by its path."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import NANO, parse_quantity

MILLI: Final = NANO // 1000
_NO_FIELDS: Final[Mapping[str, Any]] = {}


class FootprintError(ValueError):
    """A manifest is malformed; the sentence begins with the path of the field."""


def mapping_at(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return an object field; one that is missing or null is empty."""
    value = parent.get(key)
    if value is None:
        return _NO_FIELDS
    if not isinstance(value, Mapping):
        raise FootprintError(f"{_joined(path, key)}: must be a set of fields, not {_kind_of(value)}")
    return value


def required_mapping_at(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return an object field that must be there."""
    if parent.get(key) is None:
        raise FootprintError(f"{_joined(path, key)}: is missing")
    return mapping_at(parent, key, path)


def mappings_at(parent: Mapping[str, Any], key: str, path: str) -> list[Mapping[str, Any]]:
    """Return a field that is a list of objects; one that is missing or null is empty."""
    items = parent.get(key)
    if items is None:
        return []
    if not isinstance(items, (list, tuple)):
        raise FootprintError(f"{_joined(path, key)}: must be a list, not {_kind_of(items)}")
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise FootprintError(f"{_joined(path, key)}[{index}]: must be a set of fields, not {_kind_of(item)}")
    return list(items)


def text_at(parent: Mapping[str, Any], key: str, path: str) -> str:
    """Return a text field; one that is missing or null is empty."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise FootprintError(f"{_joined(path, key)}: must be a text, not {_kind_of(value)}")
    return value


def count_at(parent: Mapping[str, Any], key: str, path: str) -> int | None:
    """Return a whole number that is not negative; None where it is missing or null."""
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FootprintError(f"{_joined(path, key)}: {_shown(value)} is not a whole number of at least 0")
    return value


def amounts_at(parent: Mapping[str, Any], key: str, path: str) -> dict[str, int]:
    """Return a list of quantities (``requests``, ``limits``, ``overhead``) in nano-units.

    The API server rounds each up to whole thousandths when it reads the object (``SetDefaults_ResourceList``
    of ``pkg/apis/core/v1/defaults.go``): so do we. It reads null as zero (``Quantity.UnmarshalJSON``), not as left
    out: beside a limit, a null request asks for nothing.
    """
    amounts = {}
    for name, value in mapping_at(parent, key, path).items():
        try:
            amount = 0 if value is None else parse_quantity(value)
        except QuantityError as error:
            raise FootprintError(f"{_joined(path, key)}.{name}: {error}") from None
        if amount < 0:
            raise FootprintError(f"{_joined(path, key)}.{name}: {_shown(value)} is negative")
        amounts[str(name)] = -(-amount // MILLI) * MILLI
    return amounts


def _joined(path: str, key: str) -> str:
    """Join a path and a key."""
    return f"{path}.{key}" if path else key


def _kind_of(value: object) -> str:
    """Name the type of a value as the author of a manifest would."""
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, date):
        return "a date (put it in quotes)"
    return "a list" if isinstance(value, (list, tuple)) else "a set of fields"


def _shown(value: object) -> str:
    """Quote a value for a sentence, shortened."""
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."

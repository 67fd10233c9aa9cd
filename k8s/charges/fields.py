"""Read a manifest field by field, so that an error names the field by its path."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import NANO, parse_quantity

MILLI: Final = NANO // 1000
_NO_FIELDS: Final[Mapping[str, Any]] = {}


class FootprintError(ValueError):
    """A manifest is malformed. The message begins with the path of the field."""


def mapping_at(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return an object field; empty if it is missing or null."""
    value = parent.get(key)
    if value is None:
        return _NO_FIELDS
    if not isinstance(value, Mapping):
        raise FootprintError(f"{_joined(path, key)}: must be an object, not {_kind_of(value)}")
    return value


def required_mapping_at(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return a required object field. Raises ``FootprintError`` if it is missing or null."""
    if parent.get(key) is None:
        raise FootprintError(f"{_joined(path, key)}: required field is missing")
    return mapping_at(parent, key, path)


def mappings_at(parent: Mapping[str, Any], key: str, path: str) -> list[Mapping[str, Any]]:
    """Return a field that is a list of objects; empty if it is missing or null."""
    items = parent.get(key)
    if items is None:
        return []
    if not isinstance(items, (list, tuple)):
        raise FootprintError(f"{_joined(path, key)}: must be a list, not {_kind_of(items)}")
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise FootprintError(f"{_joined(path, key)}[{index}]: must be an object, not {_kind_of(item)}")
    return list(items)


def text_at(parent: Mapping[str, Any], key: str, path: str) -> str:
    """Return a string field; empty if it is missing or null."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise FootprintError(f"{_joined(path, key)}: must be a string, not {_kind_of(value)}")
    return value


def count_at(parent: Mapping[str, Any], key: str, path: str) -> int | None:
    """Return a whole number of at least 0; None if it is missing or null."""
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FootprintError(f"{_joined(path, key)}: {_shown(value)} is not a whole number of 0 or more")
    return value


def number_at(parent: Mapping[str, Any], key: str, path: str, default: int) -> int:
    """Return a whole number of at least 1, or the default if it is missing or null."""
    value = count_at(parent, key, path)
    if value == 0:
        raise FootprintError(f"{_joined(path, key)}: 0 is not a whole number of 1 or more")
    return default if value is None else value


def flag_at(parent: Mapping[str, Any], key: str, path: str) -> bool:
    """Return a boolean field; false if it is missing or null."""
    value = parent.get(key)
    if value is not None and not isinstance(value, bool):
        raise FootprintError(f"{_joined(path, key)}: must be true or false, not {_kind_of(value)}")
    return bool(value)


def amounts_at(parent: Mapping[str, Any], key: str, path: str) -> dict[str, int]:
    """Return a resource list (``requests``, ``limits``, ``overhead``) in nano-units.

    Like the API server, this rounds each amount up to whole thousandths (``SetDefaults_ResourceList`` of
    ``pkg/apis/core/v1/defaults.go``) and reads null as zero (``Quantity.UnmarshalJSON``), not as missing: next to a
    limit, a null request requests nothing.
    """
    amounts = {}
    for name, value in mapping_at(parent, key, path).items():
        amounts[str(name)] = 0 if value is None else amount_of(value, f"{_joined(path, key)}.{name}")
    return amounts


def amount_of(value: object, path: str) -> int:
    """Return a quantity in nano-units, rounded up to whole thousandths."""
    try:
        amount = parse_quantity(value)  # type: ignore[arg-type]  # it refuses whatever is no quantity
    except QuantityError as error:
        raise FootprintError(f"{path}: {error}") from None
    if amount < 0:
        raise FootprintError(f"{path}: {_shown(value)} is negative")
    return -(-amount // MILLI) * MILLI


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _kind_of(value: object) -> str:
    """Name the type of a value in the terms of YAML and JSON."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, date):
        return "a date (put it in quotes)"
    return "a list" if isinstance(value, (list, tuple)) else "an object"


def _shown(value: object) -> str:
    """Quote a value for an error message, cut to 60 characters."""
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."

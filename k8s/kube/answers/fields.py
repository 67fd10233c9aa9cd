"""Unknown JSON, read field by field: from servers, from files, from creators.

There are two kinds of readers. The strict ones, named ``..._at``, are for values that are *checked*: a value of the
wrong type raises ``FieldError``, whose message begins with the path of the field; only a missing or null value is
absent. The lenient ones are for values that are *shown or followed*. They never raise: a value of the wrong type counts
as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any, Final

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.quantities import NANO, parse_quantity

MILLI: Final = NANO // 1000
_NO_FIELDS: Final[Mapping[str, Any]] = {}


# -- lenient ---------


def mapping(value: object) -> Mapping[str, Any]:
    """Return an object; empty if the value is of another type."""
    return value if isinstance(value, (dict, Mapping)) else _NO_FIELDS  # dict first: the abstract class is slow to ask


def mapping_in(value: object, key: str) -> Mapping[str, Any]:
    """Return an object field of an object; empty if either of them is of another type."""
    found = value.get(key) if isinstance(value, (dict, Mapping)) else None
    return found if isinstance(found, (dict, Mapping)) else _NO_FIELDS


def items(value: object) -> list[Any]:
    """Return a list; empty if the value is of another type."""
    return value if isinstance(value, list) else []


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the objects of a list, without its other items; empty if the value is no list."""
    return [each for each in items(value) if isinstance(each, (dict, Mapping))]


def text(value: object) -> str:
    """Return a string; empty if the value is of another type."""
    return value if isinstance(value, str) else ""


def moment(value: object) -> datetime | None:
    """Return a time in UTC, from RFC 3339 text or from what YAML makes of it; None if the value is neither."""
    with suppress(ValueError, OverflowError):  # not a time, or beyond the calendar
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    return None


def metadata_of(body: object) -> Mapping[str, Any]:
    """Return the metadata of an object of Kubernetes, or of a list."""
    return mapping_in(body, "metadata")


def labels_of(body: object) -> Mapping[str, Any]:
    return mapping_in(metadata_of(body), "labels")


def annotations_of(body: object) -> Mapping[str, Any]:
    return mapping_in(metadata_of(body), "annotations")


def written_back(found: Mapping[str, Any], **fields: object) -> dict[str, Any]:
    """Return an object as it was read, with other values of these fields: the body of its PUT.

    A PUT erases what it does not name, such as labels and annotations: by those Helm knows that an object is its own.
    The resourceVersion says which state the change was made from. The server keeps ``managedFields`` by itself.
    """
    metadata = {name: value for name, value in metadata_of(found).items() if name != "managedFields"}
    return {**found, "metadata": metadata, **fields}


# -- strict ---------


class FieldError(ValueError):
    """A field has a value that it can't have. The message begins with the path of the field."""


def mapping_at(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return an object field; empty if it is missing or null."""
    value = parent.get(key)
    if value is None:
        return _NO_FIELDS
    if not isinstance(value, Mapping):
        raise FieldError(f"{_joined(path, key)}: must be an object, not {_kind_of(value)}")
    return value


def required_mapping_at(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """Return a required object field. Raises ``FieldError`` if it is missing or null."""
    if parent.get(key) is None:
        raise FieldError(f"{_joined(path, key)}: required field is missing")
    return mapping_at(parent, key, path)


def list_at(parent: Mapping[str, Any], key: str, path: str) -> list[Any]:
    """Return a field that is a list; empty if it is missing or null."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise FieldError(f"{_joined(path, key)}: must be a list, not {_kind_of(value)}")
    return list(value)


def mappings_at(parent: Mapping[str, Any], key: str, path: str) -> list[Mapping[str, Any]]:
    """Return a field that is a list of objects; empty if it is missing or null."""
    found = list_at(parent, key, path)
    for index, item in enumerate(found):
        if not isinstance(item, Mapping):
            raise FieldError(f"{_joined(path, key)}[{index}]: must be an object, not {_kind_of(item)}")
    return found


def text_at(parent: Mapping[str, Any], key: str, path: str) -> str:
    """Return a string field; empty if it is missing or null."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise FieldError(f"{_joined(path, key)}: must be a string, not {_kind_of(value)}")
    return value


def count_at(parent: Mapping[str, Any], key: str, path: str) -> int | None:
    """Return a whole number of at least 0; None if it is missing or null."""
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise FieldError(f"{_joined(path, key)}: {_shown(value)} is not a whole number of 0 or more")
    return value


def number_at(parent: Mapping[str, Any], key: str, path: str, default: int) -> int:
    """Return a whole number of at least 1, or the default if it is missing or null."""
    value = count_at(parent, key, path)
    if value == 0:
        raise FieldError(f"{_joined(path, key)}: 0 is not a whole number of 1 or more")
    return default if value is None else value


def flag_at(parent: Mapping[str, Any], key: str, path: str) -> bool:
    """Return a boolean field; false if it is missing or null."""
    value = parent.get(key)
    if value is not None and not isinstance(value, bool):
        raise FieldError(f"{_joined(path, key)}: must be true or false, not {_kind_of(value)}")
    return bool(value)


def amounts_at(parent: Mapping[str, Any], key: str, path: str) -> dict[str, int]:
    """Return a resource list (``requests``, ``limits``, ``overhead``) in nano-units.

    Like the API server, this rounds each amount up to whole thousandths (``SetDefaults_ResourceList`` of
    ``pkg/apis/core/v1/defaults.go``) and reads null as zero (``Quantity.UnmarshalJSON``), not as missing: next to a
    limit, a null request counts as a missing one.
    """
    amounts = {}
    for name, value in mapping_at(parent, key, path).items():
        amounts[str(name)] = 0 if value is None else amount_of(value, f"{_joined(path, key)}.{name}")
    return amounts


def amount_of(value: object, path: str) -> int:
    """Return a quantity in nano-units, rounded up to whole thousandths."""
    try:
        amount = parse_quantity(value)  # type: ignore[arg-type]  # it refuses anything but a quantity
    except QuantityError as error:
        raise FieldError(f"{path}: {error}") from None
    if amount < 0:
        raise FieldError(f"{path}: {_shown(value)} is negative")
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


def is_going(resource: Mapping[str, Any]) -> bool:
    return bool(metadata_of(resource).get("deletionTimestamp"))

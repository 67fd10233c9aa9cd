"""Types of the built-in kinds: what does not fit is refused, what is unknown is dropped, nulls are absent.

The types come from the table that ``protobuf`` reads. Custom resources have no schema here: only their metadata
is looked at.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .answers import ApiError, bad_request
from .protobuf import Field, fields_by_name, package_of

if TYPE_CHECKING:
    from .encoding import JSON
    from .kinds import Kind

_META = "meta.v1.ObjectMeta"
_DEEPEST = 100
_INDEX = re.compile(r"\[\d+\]")
_MODULE = re.compile(r"^(\[\]|map\[string\])?\w+\.(?=v\d|resource)")
_TEXTS = frozenset({"string", "bytes", "meta.v1.Time", "meta.v1.MicroTime"})
_NUMBERS = frozenset({"int32", "int64", "uint32", "uint64"})
_FREE = frozenset({"runtime.RawExtension", "meta.v1.FieldsV1"})


class _Misfit(Exception):  # noqa: N818 - a message on its way to the Status
    """A value that its field cannot take."""


class _Walk(NamedTuple):
    """One body being read: where unknown fields are noted."""

    unknown: list[str]


def conform(kind: Kind, obj: JSON, *, strict: bool = False) -> JSON:
    """The object with every field of its type. Raises 400: for misfits, and with ``strict`` for unknown fields."""
    walk = _Walk([])
    try:
        message = message_of(kind)
        clean = _object(message, obj, "", walk, 0) if message else _custom(obj, walk)
    except _Misfit as misfit:
        raise cannot_handle(kind, str(misfit)) from misfit
    if strict and walk.unknown:
        told = ", ".join(f'unknown field "{path}"' for path in walk.unknown)
        raise cannot_handle(kind, f"strict decoding error: {told}")
    return clean


def cannot_handle(kind: Kind, why: str) -> ApiError:
    """400 of a body that cannot become an object of its kind."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


@cache
def message_of(kind: Kind) -> str:
    """The name of the type of a kind, empty where there is no schema."""
    name = f"{package_of(kind.api_version)}.{kind.kind}"
    return name if kind.strategic and fields_by_name(name) else ""


def json_word(value: Any) -> str:
    """What Go calls a JSON value of this sort."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names: tuple[tuple[type, str], ...] = ((str, "string"), (list, "array"), (dict, "object"))
    return next((word for type_, word in names if isinstance(value, type_)), "null")


def _custom(obj: JSON, walk: _Walk) -> JSON:
    """A custom resource: its metadata has types, spec and status must be objects, the rest is free."""
    for field in ("spec", "status"):
        value = obj.get(field, {})
        if value is None:
            del obj[field]
        elif not isinstance(value, dict):
            raise _Misfit(f"json: cannot unmarshal {json_word(value)} into Go struct field .{field}")
    metadata = obj.get("metadata")
    obj["metadata"] = (
        {} if metadata is None else _value("", Field("metadata", _META, ""), metadata, "metadata", walk, 1)
    )
    return obj


def _object(message: str, value: Any, path: str, walk: _Walk, depth: int, holder: str = "") -> JSON:
    if not isinstance(value, dict):
        raise _misfit(holder, value, path, message)
    if depth > _DEEPEST:
        raise _Misfit("exceeded max depth")
    fields = fields_by_name(message)
    clean: JSON = {}
    for name, below in value.items():
        field = fields.get(name)
        if field is None:
            if depth == 0 and name in {"apiVersion", "kind"}:
                clean[name] = below
            else:
                walk.unknown.append(f"{path}.{name}" if path else name)
        elif below is not None:
            where = f"{path}.{name}" if path else name
            clean[name] = _value(message, field, below, where, walk, depth + 1)
    return clean


def _value(holder: str, field: Field, value: Any, path: str, walk: _Walk, depth: int) -> Any:
    if "r" in field.flags:
        if not isinstance(value, list):
            raise _misfit(holder, value, path, f"[]{field.type}")
        return [_single(holder, field.type, each, f"{path}[{index}]", walk, depth) for index, each in enumerate(value)]
    if "m" in field.flags:
        if not isinstance(value, dict):
            raise _misfit(holder, value, path, f"map[string]{field.type}")
        return {key: _single(holder, field.type, each, f"{path}.{key}", walk, depth) for key, each in value.items()}
    return _single(holder, field.type, value, path, walk, depth)


def _single(holder: str, type_: str, value: Any, path: str, walk: _Walk, depth: int) -> Any:
    if type_ in _TEXTS:
        fits = isinstance(value, str)
    elif type_ == "bool":
        fits = isinstance(value, bool)
    elif type_ in _NUMBERS:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif type_ in {"api.resource.Quantity", "util.intstr.IntOrString"}:
        fits = isinstance(value, str | int | float) and not isinstance(value, bool)
    elif type_ in _FREE:
        fits = True
    else:
        return _object(type_, value, path, walk, depth, holder)
    if not fits:
        raise _misfit(holder, value, path, type_)
    return value


def _misfit(holder: str, value: Any, path: str, type_: str) -> _Misfit:
    """As Go's decoder says it: the struct that has the field, the path without indexes, the Go type."""
    short = "v1.ResourceList" if type_.endswith("]api.resource.Quantity") else _MODULE.sub(r"\1", type_)
    place = f"{holder.rpartition('.')[2]}.{_INDEX.sub('', path)}"
    return _Misfit(f"json: cannot unmarshal {json_word(value)} into Go struct field {place} of type {short}")

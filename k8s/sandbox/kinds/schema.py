"""Types of the built-in kinds: values that do not fit are refused, unknown fields dropped, empty ones left out.

The types come from the table that ``protobuf`` reads. Of custom resources only the metadata is typed here; the rest
follows the schema of their definition (``structural``).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .answers import ApiError, bad_request
from .kinds import DEFINITIONS
from .protobuf import Field, fields_by_name, package_of
from .structural import prune_and_default

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    from .kinds import Kind

_META = "meta.v1.ObjectMeta"
_DEEPEST = 100
_INDEX = re.compile(r"\[\d+\]")
_MODULE = re.compile(r"^(\[\]|map\[string\])?\w+\.(?=v\d|resource)")
_TEXTS = frozenset({"string", "bytes", "meta.v1.Time", "meta.v1.MicroTime"})
_NUMBERS = frozenset({"int32", "int64", "uint32", "uint64"})
_LISTS = frozenset("rm")  # flags of lists and maps, which are left out when they are empty
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_FREE = frozenset({"runtime.RawExtension", "meta.v1.FieldsV1"})


class _Misfit(Exception):  # noqa: N818 - only its message is used, in the Status
    """A value that does not fit the type of its field."""


class _Walk(NamedTuple):
    """One pass over a body; collects the unknown fields."""

    unknown: list[str]


def conform(kind: Kind, obj: JSON, *, strict: bool = False) -> JSON:
    """The object with all field types checked. Raises 400 for a misfit and, if ``strict``, for unknown fields."""
    walk = _Walk([])
    try:
        message = message_of(kind)
        clean = _object(message, obj, "", walk, 0) if message else _custom(kind, obj, walk)
    except _Misfit as misfit:
        raise cannot_handle(kind, str(misfit)) from misfit
    if strict and walk.unknown:
        listed = ", ".join(f'unknown field "{path}"' for path in walk.unknown)
        raise cannot_handle(kind, f"strict decoding error: {listed}")
    return clean


def unknown_fields(kind: Kind, obj: JSON) -> list[str]:
    """Paths of the fields that a built-in kind does not have. Raises 400 for values that do not fit."""
    walk = _Walk([])
    try:
        message = message_of(kind)
        if message:
            _object(message, obj, "", walk, 0)
    except _Misfit as misfit:
        raise cannot_handle(kind, str(misfit)) from misfit
    return walk.unknown


def cannot_handle(kind: Kind, why: str) -> ApiError:
    """400 for a body that cannot become an object of its kind."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


@cache
def message_of(kind: Kind) -> str:
    """The name of the type of a kind, empty where the table has none."""
    name = f"{package_of(kind.api_version)}.{kind.kind}"
    typed = kind.strategic and kind is not DEFINITIONS and fields_by_name(name)  # definitions have rules of their own
    return name if typed else ""


def json_word(value: Any) -> str:
    """Go's name for the JSON type of a value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names: tuple[tuple[type, str], ...] = ((str, "string"), (list, "array"), (dict, "object"))
    return next((word for type_, word in names if isinstance(value, type_)), "null")


def _custom(kind: Kind, obj: JSON, walk: _Walk) -> JSON:
    """A custom resource: its metadata is typed here, the rest is pruned and defaulted by its schema."""
    metadata = obj.get("metadata")
    field = Field("metadata", _META, "")
    typed = {} if metadata is None else _value("ObjectMeta", field, metadata, "", walk, 1)
    if kind.schema is None:
        for part in ("spec", "status"):
            value = obj.get(part, {})
            if value is None:
                del obj[part]
            elif not isinstance(value, dict):
                raise _Misfit(f"json: cannot unmarshal {json_word(value)} into Go struct field .{part}")
        return {**obj, "metadata": typed}
    return {**prune_and_default(kind.schema, obj, walk.unknown), "metadata": typed}


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
            value = _value(message, field, below, where, walk, depth + 1)
            if value or not _LISTS.intersection(field.flags):
                clean[name] = value
    return clean


def _value(holder: str, field: Field, value: Any, path: str, walk: _Walk, depth: int) -> Any:
    if "r" in field.flags:
        if not isinstance(value, list):
            raise _misfit(holder, value, path, f"[]{field.type}")
        return [_single(holder, field.type, each, f"{path}[{index}]", walk, depth) for index, each in enumerate(value)]
    if "m" in field.flags:
        if not isinstance(value, dict):
            raise _misfit(holder, value, path, f"map[string]{field.type}")
        texts = field.type == "string"  # in such a map Go reads a null as the empty string
        return {key: "" if texts and each is None else _single(holder, field.type, each, path, walk, depth)
                for key, each in value.items()}  # fmt: skip
    return _single(holder, field.type, value, path, walk, depth)


def _single(holder: str, type_: str, value: Any, path: str, walk: _Walk, depth: int) -> Any:
    if type_ == "bytes" and isinstance(value, str):
        _check_base64(value)
    if type_ in _TEXTS:
        fits = isinstance(value, str)
    elif type_ == "bool":
        fits = isinstance(value, bool)
    elif type_ in _NUMBERS:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif type_ == "api.resource.Quantity":
        fits = True  # quantities are parsed elsewhere, with their own messages
    elif type_ == "util.intstr.IntOrString":
        fits = isinstance(value, str | int | float) and not isinstance(value, bool)
    elif type_ in _FREE:
        fits = True
    else:
        return _object(type_, value, path, walk, depth, holder)
    if not fits:
        raise _misfit(holder, value, path, type_)
    return value


def _check_base64(text: str) -> None:
    plain = text.replace("\n", "").replace("\r", "")
    bad = next((index for index, character in enumerate(plain) if character not in _BASE64), None)
    if bad is None and len(plain) % 4:
        bad = len(plain) - len(plain) % 4
    if bad is not None:
        raise _Misfit(f"illegal base64 data at input byte {bad}")


def _misfit(holder: str, value: Any, path: str, type_: str) -> _Misfit:
    """The message of Go's decoder: the struct that has the field, the path without indexes, the Go type."""
    short = "v1.ResourceList" if type_.endswith("]api.resource.Quantity") else _MODULE.sub(r"\1", type_)
    place = f"{holder.rpartition('.')[2]}.{_INDEX.sub('', path)}"
    return _Misfit(f"json: cannot unmarshal {json_word(value)} into Go struct field {place} of type {short}")

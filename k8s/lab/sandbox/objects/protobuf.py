"""Request bodies in Kubernetes' protobuf, sent by ``kubectl create`` and Go's typed clients. Answers stay JSON.

The table beside this module is derived from the ``.proto`` files and Go types of Kubernetes 1.36 (Apache-2.0),
see ``tools/protobuf_table.py``. A line is ``number name type flags``: r repeated, m map of strings, p pointer.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .answers import bad_request

PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INLINED = frozenset({"localObjectReference", "handler", "persistentVolumeSource", "volumeSource", "rule",
                      "ephemeralContainerCommon", "ingressRuleValue"})  # fmt: skip
_DEEPEST = 64


class Field(NamedTuple):
    name: str
    type: str
    flags: str


def package_of(api_version: str) -> str:
    """``apps/v1`` is ``apps.v1``, ``v1`` is ``core.v1``."""
    group, _, version = api_version.rpartition("/")
    return f"{group.split('.')[0] or 'core'}.{version}"


def read_protobuf(data: bytes) -> Any:
    """Decode the envelope that Kubernetes sends into an object. Raises 400."""
    try:
        return _unwrap(data)
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise bad_request(f"couldn't read the protobuf body: {error}") from error


def _unwrap(data: bytes) -> dict[str, Any]:
    if not data.startswith(_MAGIC):
        raise ValueError("the magic number is missing")
    envelope: dict[int, list[int | bytes]] = {}
    for number, value in _parts(data[len(_MAGIC) :]):
        envelope.setdefault(number, []).append(value)
    kinds = b"".join(map(_bytes, envelope.get(1, [])))
    about = {number: _bytes(value).decode() for number, value in _parts(kinds)}
    api_version, kind = about.get(1, ""), about.get(2, "")
    message = "meta.v1.DeleteOptions" if kind == "DeleteOptions" else f"{package_of(api_version)}.{kind}"
    if message not in _table():
        raise ValueError(f"{api_version} {kind} cannot be read as protobuf here: send JSON")
    return {"apiVersion": api_version, "kind": kind, **_message(message, _bytes(envelope.get(2, [b""])[-1]), 0)}


@cache
def _table() -> dict[str, dict[int, Field]]:
    table: dict[str, dict[int, Field]] = {}
    fields: dict[int, Field] = {}
    for line in Path(__file__).with_name("protobuf_fields.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            fields = table[line] = {}
            continue
        number, name, type_, *flags = line.split()
        fields[int(number)] = Field(name, type_, "".join(flags))
    return table


@cache
def fields_by_name(message: str) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for field in _table().get(message, {}).values():
        inlined = fields_by_name(field.type) if field.name in _INLINED else {}
        found.update(inlined or {field.name: field})
    return found


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in {_FIXED64, _FIXED32}:
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"Kubernetes does not use wire type {wire}")
        if at + size > len(data):
            raise ValueError("the body is truncated")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("found a number where a message was expected")  # noqa: TRY004 - it is the data that is wrong
    return value


def _message(name: str, data: bytes, depth: int) -> dict[str, Any]:
    """Decode a message to JSON: zeros of plain fields are left out, as ``omitempty`` does.

    As in Go, messages in one field are merged, of a number or a text the last counts.
    """
    if depth > _DEEPEST:
        raise ValueError("messages are nested too deeply")
    fields = _table().get(name, {})
    result: dict[str, Any] = {}
    found: dict[int, list[int | bytes]] = {}
    for number, raw in _parts(data):
        if number in fields:
            found.setdefault(number, []).append(raw)
    for number, raws in found.items():
        field = fields[number]
        if "m" in field.flags:
            result[field.name] = dict(_entry(field.type, _bytes(raw), depth) for raw in raws)
            continue
        if "r" in field.flags:
            result[field.name] = [_value(field.type, raw, depth) for raw in raws]
            continue
        value = _value(field.type, _merged(field.type, raws), depth)
        if field.name in _INLINED and isinstance(value, dict):
            result.update(value)
        elif "p" in field.flags or value not in ("", 0, {}, None):
            result[field.name] = value
    return result


def _merged(type_: str, raws: list[int | bytes]) -> int | bytes:
    """Return what a field holds that occurs once or more: messages one behind the other are one message."""
    if type_ in _SCALARS or type_ in _WHOLE:
        return raws[-1]
    return b"".join(map(_bytes, raws))


def _entry(type_: str, data: bytes, depth: int) -> tuple[str, Any]:
    parts = dict(_parts(data))
    empty = b"" if type_ not in {"int32", "int64", "bool"} else 0
    return _bytes(parts.get(1, b"")).decode(), _value(type_, parts.get(2, empty), depth)


def _value(type_: str, raw: int | bytes, depth: int) -> Any:
    if type_ in _SCALARS:
        return _SCALARS[type_](raw)
    special = _SPECIAL.get(type_)
    if special:
        return special(_bytes(raw))
    found = _message(type_, _bytes(raw), depth + 1)
    return _either(found, *_EITHER[type_]) if type_ in _EITHER else found


def _either(found: dict[str, Any], other: str, absent: Any) -> Any:
    """What Go writes for the types that are either a schema or something else: ``marshal.go`` of apiextensions."""
    return found["schema"] if "schema" in found else found.get(other, absent)


def _signed(raw: int | bytes) -> int:
    number = int.from_bytes(raw, "little") if isinstance(raw, bytes) else raw
    return number - (1 << 64) if number >= 1 << 63 else number


def _double(data: bytes) -> float:
    number: float = struct.unpack("<d", data)[0]
    return int(number) if number.is_integer() else number  # Go writes 1, not 1.0


_SCALARS: dict[str, Callable[[int | bytes], Any]] = {
    "string": lambda raw: _bytes(raw).decode(),
    "bytes": lambda raw: base64.b64encode(_bytes(raw)).decode(),
    "bool": bool,
    "double": lambda raw: _double(_bytes(raw)),
    "int32": _signed,
    "int64": _signed,
    "uint32": _signed,
    "uint64": _signed,
}


def _time(data: bytes) -> str | None:
    parts = dict(_parts(data))
    if not parts:
        return None
    seconds = _signed(parts.get(1, 0))
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(data: bytes) -> str | None:
    parts = dict(_parts(data))
    if not parts:
        return None
    moment = datetime.fromtimestamp(_signed(parts.get(1, 0)), UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{_signed(parts.get(2, 0)) // 1000:06d}Z"


def _text(data: bytes) -> str:
    return _bytes(dict(_parts(data)).get(1, b"")).decode()


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_parts(data))
    if parts.get(1, 0):
        return _bytes(parts.get(3, b"")).decode()
    return _signed(parts.get(2, 0))


def _raw_json(data: bytes) -> Any:
    inner = dict(_parts(data)).get(1, b"")
    return json.loads(_bytes(inner)) if inner else None


_WHOLE = frozenset({"meta.v1.Time", "meta.v1.MicroTime", "api.resource.Quantity"})
"""Messages that Go reads as one value, so that the last counts."""
_SPECIAL: dict[str, Callable[[bytes], Any]] = {
    "meta.v1.Time": _time,
    "meta.v1.MicroTime": _micro_time,
    "meta.v1.FieldsV1": _raw_json,
    "api.resource.Quantity": _text,
    "util.intstr.IntOrString": _int_or_string,
    "runtime.RawExtension": _raw_json,
    "apiextensions.v1.JSON": _raw_json,
}

# Either a schema or what is in another field: that field, and the value where both are absent.
_EITHER: dict[str, tuple[str, Any]] = {
    "apiextensions.v1.JSONSchemaPropsOrArray": ("jSONSchemas", None),
    "apiextensions.v1.JSONSchemaPropsOrBool": ("allows", False),
    "apiextensions.v1.JSONSchemaPropsOrStringArray": ("property", None),
}

"""Types of bodies: values that do not fit are refused, unknown fields dropped, empty ones left out.

The types of the built-in kinds come from the table that ``protobuf`` reads. Of custom resources the metadata is typed
by it; the rest is pruned, defaulted and checked by the schema of their definition, after
``k8s.io/apiextensions-apiserver`` ``pkg/apiserver/schema`` and the messages of ``kube-openapi``.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from .answers import ApiError, Problem, bad, bad_request, missing
from .kinds import DEFINITIONS, Kind
from .protobuf import Field, fields_by_name, package_of
from .texts import JSON, json_word

_META = "meta.v1.ObjectMeta"
_DEEPEST = 100
_INDEX = re.compile(r"\[\d+\]")
_MODULE = re.compile(r"^(\[\]|map\[string\])?\w+\.(?=v\d|resource)")
_TEXTS = frozenset({"string", "bytes", "meta.v1.Time", "meta.v1.MicroTime"})
_NUMBERS = frozenset({"int32", "int64", "uint32", "uint64"})
_LISTS = frozenset("rm")  # flags of lists and maps, which are left out when they are empty
_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_FREE = frozenset({"runtime.RawExtension", "meta.v1.FieldsV1", "api.resource.Quantity"})  # quantities are parsed later
_ROOT = frozenset({"apiVersion", "kind", "metadata"})
_KEEPS = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,),
}  # fmt: skip


def prune_and_default(schema: JSON, obj: JSON, unknown: list[str]) -> JSON:
    """The object as it is stored. The paths of pruned fields are appended to ``unknown``."""
    pruned: JSON = _prune(schema, obj, "", unknown, root=True)
    _default(schema, pruned)
    return pruned


def _prune(schema: JSON, value: Any, path: str, unknown: list[str], *, root: bool = False) -> Any:
    if isinstance(value, list):
        below = schema.get("items") or {}
        return [_prune(below, each, f"{path}[{index}]", unknown) for index, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    known = _ROOT if root or schema.get(_EMBEDDED) else frozenset[str]()
    kept: JSON = {}
    for name, below in value.items():
        where = f"{path}.{name}" if path else name
        if name in known:  # they are kept even if a definition lacks them
            kept[name] = below
        elif name in properties:
            kept[name] = _prune(properties[name], below, where, unknown)
        elif schema.get(_KEEPS) or rest is True:
            kept[name] = below
        elif isinstance(rest, dict):
            kept[name] = _prune(rest, below, where, unknown)
        else:
            unknown.append(where)
    return kept


def _default(schema: JSON, value: Any) -> None:
    if isinstance(value, list):
        for each in value:
            _default(schema.get("items") or {}, each)
    if not isinstance(value, dict):
        return
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, below in properties.items():
        if value.get(name, 0) is None and not below.get("nullable"):
            del value[name]
        if name not in value and "default" in below:
            value[name] = copy.deepcopy(below["default"])
    for name, each in value.items():
        _default(properties.get(name) or (rest if isinstance(rest, dict) else {}), each)


def problems_of(schema: JSON, obj: JSON) -> list[Problem]:
    """Where an object violates its schema, by type, enum, bounds and required fields; sorted by field."""
    problems: list[Problem] = []
    _check(schema, {name: value for name, value in obj.items() if name not in _ROOT}, "", problems)
    return sorted(problems, key=lambda problem: problem[1])


def _check(schema: JSON, value: Any, path: str, problems: list[Problem]) -> None:
    if value is None and (schema.get("nullable") or not path):
        return
    if not _is_of_type(schema, value):
        wanted = "integer,string" if schema.get(_INT_OR_STRING) else schema.get("type")
        found = "integer" if json_word(value) == "number" else json_word(value).replace("bool", "boolean")
        text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
        problems.append(("FieldValueTypeInvalid", path, text))
        return
    problems += _value_problems(schema, value, path)
    if isinstance(value, list):
        for index, each in enumerate(value):
            _check(schema.get("items") or {}, each, f"{path}[{index}]", problems)
    elif isinstance(value, dict):
        properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
        absent = [name for name in schema.get("required") or () if name not in value]
        problems += [missing(f"{path}.{name}".lstrip(".")) for name in absent]
        for name, below in value.items():
            inner = properties.get(name, rest if isinstance(rest, dict) else None)
            if inner is not None:
                _check(inner, below, f"{path}.{name}".lstrip("."), problems)


def _is_of_type(schema: JSON, value: Any) -> bool:
    if schema.get(_INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted = schema.get("type")
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(wanted or "", (object,))) and (
        wanted in {None, "boolean"} or not isinstance(value, bool)
    )


def _value_problems(schema: JSON, value: Any, path: str) -> Iterator[Problem]:
    choices, least, most = schema.get("enum"), schema.get("minimum"), schema.get("maximum")
    if choices and value not in choices:
        listed = ", ".join(json.dumps(each) for each in choices)
        yield ("FieldValueNotSupported", path, f"Unsupported value: {json.dumps(value)}: supported values: {listed}")
    if isinstance(value, int | float) and least is not None and value < least:
        yield bad(path, value, f"{path} in body should be greater than or equal to {least}")
    if isinstance(value, int | float) and most is not None and value > most:
        yield bad(path, value, f"{path} in body should be less than or equal to {most}")
    if isinstance(value, str) and schema.get("pattern") and not re.search(schema["pattern"], value):
        yield bad(path, value, f"{path} in body should match '{schema['pattern']}'")


class _Misfit(Exception):  # noqa: N818 - only its message is used, in the Status
    """A value that does not fit the type of its field."""


def conform(kind: Kind, obj: JSON, *, strict: bool = False) -> JSON:
    """The object with all field types checked. Raises 400 for a misfit and, if ``strict``, for unknown fields."""
    unknown: list[str] = []
    try:
        message = message_of(kind)
        clean = _object(message, obj, "", unknown, 0) if message else _custom(kind, obj, unknown)
    except _Misfit as misfit:
        raise cannot_handle(kind, str(misfit)) from misfit
    if strict and unknown:
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise cannot_handle(kind, f"strict decoding error: {listed}")
    return clean


def cannot_handle(kind: Kind, why: str) -> ApiError:
    """400 for a body that cannot become an object of its kind."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


@cache
def message_of(kind: Kind) -> str:
    name = f"{package_of(kind.api_version)}.{kind.kind}"
    typed = kind.strategic and kind is not DEFINITIONS and fields_by_name(name)  # definitions have rules of their own
    return name if typed else ""


def _custom(kind: Kind, obj: JSON, unknown: list[str]) -> JSON:
    """A custom resource: its metadata is typed here, the rest is pruned and defaulted by its schema."""
    metadata = obj.get("metadata")
    field = Field("metadata", _META, "")
    typed = {} if metadata is None else _value("ObjectMeta", field, metadata, "", unknown, 1)
    if kind.schema is None:
        for part in ("spec", "status"):
            value = obj.get(part, {})
            if value is None:
                del obj[part]
            elif not isinstance(value, dict):
                raise _Misfit(f"json: cannot unmarshal {json_word(value)} into Go struct field .{part}")
        return {**obj, "metadata": typed}
    return {**prune_and_default(kind.schema, obj, unknown), "metadata": typed}


def _object(message: str, value: Any, path: str, unknown: list[str], depth: int, holder: str = "") -> JSON:
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
                unknown.append(f"{path}.{name}" if path else name)
        elif below is not None:
            where = f"{path}.{name}" if path else name
            value = _value(message, field, below, where, unknown, depth + 1)
            if value or not _LISTS.intersection(field.flags):
                clean[name] = value
    return clean


def _value(holder: str, field: Field, value: Any, path: str, unknown: list[str], depth: int) -> Any:
    if "r" in field.flags:
        if not isinstance(value, list):
            raise _misfit(holder, value, path, f"[]{field.type}")
        return [
            _single(holder, field.type, each, f"{path}[{index}]", unknown, depth) for index, each in enumerate(value)
        ]
    if "m" in field.flags:
        if not isinstance(value, dict):
            raise _misfit(holder, value, path, f"map[string]{field.type}")
        texts = field.type == "string"  # in such a map Go reads a null as the empty string
        return {key: "" if texts and each is None else _single(holder, field.type, each, path, unknown, depth)
                for key, each in value.items()}  # fmt: skip
    return _single(holder, field.type, value, path, unknown, depth)


def _single(holder: str, type_: str, value: Any, path: str, unknown: list[str], depth: int) -> Any:
    if type_ == "bytes" and isinstance(value, str) and not _BASE64.fullmatch(re.sub(r"[\r\n]", "", value)):
        raise _Misfit("illegal base64 data")
    if type_ in _TEXTS:
        fits = isinstance(value, str)
    elif type_ == "bool":
        fits = isinstance(value, bool)
    elif type_ in _NUMBERS:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif type_ == "util.intstr.IntOrString":
        fits = isinstance(value, str | int | float) and not isinstance(value, bool)
    elif type_ in _FREE:
        fits = True
    else:
        return _object(type_, value, path, unknown, depth, holder)
    if not fits:
        raise _misfit(holder, value, path, type_)
    return value


def _misfit(holder: str, value: Any, path: str, type_: str) -> _Misfit:
    short = "v1.ResourceList" if type_.endswith("]api.resource.Quantity") else _MODULE.sub(r"\1", type_)
    place = f"{holder.rpartition('.')[2]}.{_INDEX.sub('', path)}"
    return _Misfit(f"json: cannot unmarshal {json_word(value)} into Go struct field {place} of type {short}")

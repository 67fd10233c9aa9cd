"""Flyte's typed values and plain JSON: inputs of a task become literals, a connector's outputs become JSON. Pure.

Where a task's interface declares an input, its type decides. Else it is what JSON says: a whole number is an INTEGER,
an object a STRUCT. A value that JSON has no form for, such as a file, is written as Flyte's own JSON of a literal:
``{scalar: {blob: {uri: s3://bucket/file}}}``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack
from flyteidl.core.interface_pb2 import TypedInterface
from flyteidl.core.literals_pb2 import Literal, LiteralCollection, LiteralMap, Primitive, Scalar, Union, Void
from flyteidl.core.types_pb2 import LiteralType, SimpleType
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from backoff_ctrl.k8s.kube.operators.sections import parse_duration
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError

_OWN_JSON: Final = frozenset({"scalar", "collection", "map"})
_MSGPACK: Final = "msgpack"


def inputs_of(values: Mapping[str, Any], interface: TypedInterface, path: str) -> LiteralMap:
    """Return a task's inputs. Raises ``TaskSpecError`` for one that is missing, unknown, or not of its type."""
    declared = interface.inputs.variables
    if declared:
        for name in sorted(values.keys() - set(declared)):
            raise TaskSpecError(f"{path}.{name}", f"the interface has no such input: choose from {_list(declared)}")
        for name in sorted(set(declared) - values.keys()):
            raise TaskSpecError(f"{path}.{name}", "the interface declares this input: give it a value")
    return LiteralMap(
        literals={
            name: literal_of(value, declared[name].type if name in declared else None, f"{path}.{name}")
            for name, value in values.items()
        }
    )


def literal_of(value: Any, declared: LiteralType | None, path: str) -> Literal:  # noqa: PLR0911 - a table
    """Return one value; ``declared`` is its type, None: unknown. Raises ``TaskSpecError``."""
    if _is_own_json(value) and (declared is None or declared.simple != SimpleType.STRUCT):
        return _parsed(value, path)
    if declared is None:
        return _by_json(value, path)
    match declared.WhichOneof("type"):
        case "simple":
            return Literal(scalar=_simple(value, declared.simple, path))
        case "enum_type":
            if value not in list(declared.enum_type.values):
                raise TaskSpecError(path, f"choose from {_list(declared.enum_type.values)}")
            return Literal(scalar=Scalar(primitive=Primitive(string_value=value)))
        case "collection_type":
            items = [
                literal_of(each, declared.collection_type, f"{path}[{index}]")
                for index, each in enumerate(_checked(value, list, "a list", path))
            ]
            return Literal(collection=LiteralCollection(literals=items))
        case "map_value_type":
            entries = _checked(value, dict, "an object", path).items()
            found = {key: literal_of(each, declared.map_value_type, f"{path}.{key}") for key, each in entries}
            return Literal(map=LiteralMap(literals=found))
        case "union_type":
            return _one_of(value, declared, path)
        case other:
            raise TaskSpecError(path, f"a value of Flyte's type {other} is written as its literal: {{scalar: {{...}}}}")


def _one_of(value: Any, declared: LiteralType, path: str) -> Literal:
    """Return a value of the first variant that it fits."""
    for variant in declared.union_type.variants:
        try:
            inner = literal_of(value, variant, path)
        except TaskSpecError:
            continue  # it may fit the next variant
        return Literal(scalar=Scalar(union=Union(value=inner, type=variant)))
    raise TaskSpecError(path, "its type is not among those that the interface allows")


def _simple(value: Any, kind: int, path: str) -> Scalar:
    if kind == SimpleType.NONE and value is None:
        return Scalar(none_type=Void())
    if kind == SimpleType.STRUCT:
        return Scalar(generic=struct_of(_checked(value, dict, "an object", path), path))
    read = _PRIMITIVES.get(kind)
    if read is None:
        raise TaskSpecError(path, f"a value of type {SimpleType.Name(kind)} can't be written as JSON")
    return Scalar(primitive=read(value, path))


def _integer(value: Any, path: str) -> Primitive:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TaskSpecError(path, "must be a whole number")
    if not -(2**63) <= value < 2**63:
        raise TaskSpecError(path, "must have at most 64 bits")
    return Primitive(integer=value)


def _float(value: Any, path: str) -> Primitive:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TaskSpecError(path, "must be a number")
    return Primitive(float_value=value)


def _time(value: Any, path: str) -> Primitive:
    found = Timestamp()
    try:
        found.FromJsonString(_checked(value, str, "a time", path))
    except ValueError:
        raise TaskSpecError(path, "must be a time such as 2026-03-01T12:00:00Z") from None
    return Primitive(datetime=found)


def _duration(value: Any, path: str) -> Primitive:
    found = Duration()
    try:
        found.FromTimedelta(parse_duration(_checked(value, str, "a duration", path)))
    except ValueError as error:
        raise TaskSpecError(path, str(error)) from None
    return Primitive(duration=found)


_PRIMITIVES: Final[Mapping[int, Callable[[Any, str], Primitive]]] = {
    SimpleType.INTEGER: _integer,
    SimpleType.FLOAT: _float,
    SimpleType.STRING: lambda value, path: Primitive(string_value=_checked(value, str, "a text", path)),
    SimpleType.BOOLEAN: lambda value, path: Primitive(boolean=_checked(value, bool, "true or false", path)),
    SimpleType.DATETIME: _time,
    SimpleType.DURATION: _duration,
}


def _by_json(value: Any, path: str) -> Literal:  # noqa: PLR0911 - a table
    match value:
        case None:
            return Literal(scalar=Scalar(none_type=Void()))
        case bool():
            return Literal(scalar=Scalar(primitive=Primitive(boolean=value)))
        case int():
            return Literal(scalar=Scalar(primitive=_integer(value, path)))
        case float():
            return Literal(scalar=Scalar(primitive=Primitive(float_value=value)))
        case str():
            return Literal(scalar=Scalar(primitive=Primitive(string_value=value)))
        case list():
            items = [_by_json(each, f"{path}[{index}]") for index, each in enumerate(value)]
            return Literal(collection=LiteralCollection(literals=items))
        case _:
            return Literal(scalar=Scalar(generic=struct_of(value, path)))


def struct_of(value: Mapping[str, Any], path: str) -> Struct:
    """Return a JSON object as a Struct. Raises ``TaskSpecError``: its numbers are doubles, its depth is limited."""
    found = Struct()
    try:
        json_format.ParseDict(value, found)
    except (json_format.ParseError, ValueError, RecursionError, OverflowError) as error:
        raise TaskSpecError(path, f"can't be sent: {str(error).splitlines()[0]}") from None
    return found


def _parsed(value: Mapping[str, Any], path: str) -> Literal:
    found = Literal()
    try:
        json_format.ParseDict(value, found)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise TaskSpecError(path, f"is not a literal of Flyte: {str(error).splitlines()[0]}") from None
    return found


def _is_own_json(value: Any) -> bool:
    """Whether a value is a literal as Flyte writes it, and no object that happens to have such a key."""
    if not isinstance(value, Mapping) or value.keys() - _OWN_JSON - {"hash", "metadata"}:
        return False
    found = [value[key] for key in value.keys() & _OWN_JSON]
    return len(found) == 1 and isinstance(found[0], Mapping)


def _checked(value: Any, kind: type, what: str, path: str) -> Any:
    if not isinstance(value, kind):
        raise TaskSpecError(path, f"must be {what}")
    return value


def _list(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"


# -- back ---------


def plain(literals: LiteralMap) -> dict[str, Any]:
    """Return literals as plain JSON; what has no plain form keeps Flyte's JSON."""
    return {name: plain_of(each) for name, each in literals.literals.items()}


def plain_of(literal: Literal) -> Any:
    """Return one literal as plain JSON."""
    match literal.WhichOneof("value"):
        case "scalar":
            return _plain_scalar(literal.scalar)
        case "collection":
            return [plain_of(each) for each in literal.collection.literals]
        case "map":
            return plain(literal.map)
        case None:
            return None
        case _:
            return _own_form(literal)


def _plain_scalar(scalar: Scalar) -> Any:
    match scalar.WhichOneof("value"):
        case "primitive":
            return _plain_primitive(scalar.primitive)
        case "none_type" | None:
            return None
        case "generic":
            return plain_struct(scalar.generic)
        case "union":
            return plain_of(scalar.union.value)
        case "binary" if scalar.binary.tag == _MSGPACK:
            return _unpacked(scalar)
        case kind:
            return _own_form(getattr(scalar, kind))


def _plain_primitive(primitive: Primitive) -> Any:
    kind = primitive.WhichOneof("value")
    if kind is None:
        return None
    value = getattr(primitive, kind)
    return _own_form(value) if kind in ("datetime", "duration") else _json(value)


def _unpacked(scalar: Scalar) -> Any:
    """Return what flytekit has packed: dictionaries and dataclasses are MessagePack since 1.14."""
    try:
        return _json(msgpack.unpackb(scalar.binary.value, strict_map_key=False))
    except (ValueError, msgpack.UnpackException, RecursionError):
        return _own_form(scalar.binary)


def _json(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case None | bool() | int() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(key): _json(each) for key, each in value.items()}
        case list() | tuple():
            return [_json(each) for each in value]
        case _:
            return str(value)


def plain_struct(struct: Struct) -> dict[str, Any]:
    """Return a Struct as JSON; whole numbers are written as such."""
    return {name: _plain_value(each) for name, each in struct.fields.items()}


def _plain_value(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) < 2**53 else _json(number)
        case "struct_value":
            return plain_struct(value.struct_value)
        case "list_value":
            return [_plain_value(each) for each in value.list_value.values]
        case "string_value" | "bool_value" as kind:
            return getattr(value, kind)
        case _:
            return None


def _own_form(message: Message) -> Any:
    try:
        return json_format.MessageToDict(message)
    except (ValueError, json_format.SerializeToJsonError) as error:  # a time out of range, or NaN
        return f"unreadable: {error}"

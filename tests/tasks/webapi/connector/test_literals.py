"""Plain JSON as Flyte's typed values, and back."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from flyteidl.core.interface_pb2 import TypedInterface
from flyteidl.core.literals_pb2 import Binary, Literal, LiteralMap, Primitive, Scalar
from flyteidl.core.types_pb2 import LiteralType
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.services.connector.literals import inputs_of, literal_of, plain, plain_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
STRUCTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def declared(**types: Any) -> TypedInterface:
    """An interface with inputs of these types, in Flyte's JSON."""
    return json_format.ParseDict(
        {"inputs": {"variables": {name: {"type": each} for name, each in types.items()}}}, TypedInterface()
    )


@given(JSON)
def test_values_without_a_declared_type_come_back_as_they_were(value: Any) -> None:
    assert plain_of(literal_of(value, None, "x")) == value


@given(st.dictionaries(st.sampled_from("abcde"), STRUCTS, max_size=4))
def test_objects_come_back_as_they_were_and_whole_numbers_stay_whole(value: Any) -> None:
    got = plain_of(literal_of(value, None, "x"))
    assert json.dumps(got, sort_keys=True) == json.dumps(value, sort_keys=True)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), STRUCTS, max_size=4))
def test_what_flytekit_packs_is_shown_as_json(value: Any) -> None:
    scalar = Scalar(binary=Binary(value=msgpack.dumps(value), tag="msgpack"))
    assert plain_of(Literal(scalar=scalar)) == value


@pytest.mark.parametrize(
    ("type_", "value", "back"),
    [
        ({"simple": "INTEGER"}, 3, 3),
        ({"simple": "FLOAT"}, 3, 3.0),
        ({"simple": "STRING"}, "a", "a"),
        ({"simple": "BOOLEAN"}, True, True),
        ({"simple": "NONE"}, None, None),
        ({"simple": "DATETIME"}, "2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"),
        ({"simple": "DURATION"}, "1m30s", "90s"),
        ({"simple": "STRUCT"}, {"map": {"a": 1}}, {"map": {"a": 1}}),
        ({"enumType": {"values": ["red", "blue"]}}, "red", "red"),
        ({"collectionType": {"simple": "FLOAT"}}, [1, 2.5], [1.0, 2.5]),
        ({"mapValueType": {"simple": "INTEGER"}}, {"a": 1}, {"a": 1}),
        ({"unionType": {"variants": [{"simple": "INTEGER"}, {"simple": "STRING"}]}}, "a", "a"),
        ({"blob": {}}, {"scalar": {"blob": {"uri": "s3://b/f"}}}, {"uri": "s3://b/f"}),
    ],
)
def test_a_declared_type_decides(type_: Any, value: Any, back: Any) -> None:
    interface = declared(x=type_)
    literals = inputs_of({"x": value}, interface, "inputs")
    got = plain(literals)["x"]
    assert (got, type(got)) == (back, type(back))


def test_a_value_of_a_union_says_which_type_it_is() -> None:
    """A connector of flytekit needs it to read the value."""
    type_ = json_format.ParseDict(
        {"unionType": {"variants": [{"simple": "INTEGER"}, {"simple": "STRING"}]}}, LiteralType()
    )
    union = literal_of("a", type_, "x").scalar.union
    assert (union.type, union.value.scalar.primitive.string_value) == (type_.union_type.variants[1], "a")


@pytest.mark.parametrize(
    ("type_", "value", "said"),
    [
        ({"simple": "INTEGER"}, 1.5, "inputs.x: must be a whole number"),
        ({"simple": "INTEGER"}, True, "inputs.x: must be a whole number"),
        ({"simple": "INTEGER"}, 2**63, "inputs.x: must have at most 64 bits"),
        ({"simple": "FLOAT"}, "1", "inputs.x: must be a number"),
        ({"simple": "STRING"}, 1, "inputs.x: must be a text"),
        ({"simple": "BOOLEAN"}, 1, "inputs.x: must be true or false"),
        ({"simple": "DATETIME"}, "now", "inputs.x: must be a time such as"),
        ({"simple": "DURATION"}, "soon", "inputs.x: 'soon' is not a duration"),
        ({"simple": "STRUCT"}, [], "inputs.x: must be an object"),
        ({"simple": "NONE"}, 1, "type NONE can't be written as JSON"),
        ({"simple": "BINARY"}, "a", "type BINARY can't be written as JSON"),
        ({"enumType": {"values": ["red"]}}, "green", "inputs.x: choose from red"),
        ({"collectionType": {"simple": "INTEGER"}}, [1, "2"], r"inputs.x\[1\]: must be a whole number"),
        ({"mapValueType": {"simple": "INTEGER"}}, {"a": "b"}, r"inputs.x.a: must be a whole number"),
        ({"unionType": {"variants": [{"simple": "INTEGER"}]}}, "a", "inputs.x: its type is not among those"),
        ({"blob": {}}, "s3://b/f", "inputs.x: a value of Flyte's type blob is written as its literal"),
        ({"blob": {}}, {"scalar": {"nothing": 1}}, "inputs.x: is not a literal of Flyte"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_path(type_: Any, value: Any, said: str) -> None:
    with pytest.raises(TaskSpecError, match=said):
        inputs_of({"x": value}, declared(x=type_), "inputs")


def test_inputs_are_those_that_the_interface_declares() -> None:
    interface = declared(x={"simple": "INTEGER"}, y={"simple": "INTEGER"})
    with pytest.raises(TaskSpecError, match=r"inputs\.z: the interface has no such input: choose from x, y"):
        inputs_of({"x": 1, "y": 1, "z": 1}, interface, "inputs")
    with pytest.raises(TaskSpecError, match=r"inputs\.y: the interface declares this input"):
        inputs_of({"x": 1}, interface, "inputs")


@pytest.mark.parametrize(
    ("literal", "got"),
    [
        (Literal(), None),
        (Literal(scalar=Scalar()), None),
        (Literal(scalar=Scalar(primitive=Primitive())), None),
        (Literal(scalar=Scalar(primitive=Primitive(float_value=float("nan")))), "nan"),
        (Literal(scalar=Scalar(binary=Binary(value=b"\xc1", tag="msgpack"))), {"value": "wQ==", "tag": "msgpack"}),
        (Literal(scalar=Scalar(binary=Binary(value=b"a", tag="other"))), {"value": "YQ==", "tag": "other"}),
        (
            Literal(scalar=Scalar(binary=Binary(value=msgpack.dumps({1: b"a", "n": float("inf")}), tag="msgpack"))),
            {"1": "YQ==", "n": "inf"},
        ),
        (Literal(scalar=Scalar(generic=Struct(fields={"x": Value(number_value=float("nan"))}))), {"x": "nan"}),
        (Literal(scalar=Scalar(generic=Struct(fields={"x": Value(number_value=0.5)}))), {"x": 0.5}),
        (
            Literal(scalar=Scalar(primitive=Primitive(datetime=Timestamp(seconds=2**62)))),
            "unreadable: ",
        ),
        (Literal(scalar=Scalar(primitive=Primitive(duration=Duration(seconds=5)))), "5s"),
        (Literal(map=LiteralMap(literals={"a": Literal(scalar=Scalar(primitive=Primitive(integer=1)))})), {"a": 1}),
    ],
    ids=str,
)
def test_what_has_no_plain_form_is_shown_all_the_same(literal: Literal, got: Any) -> None:
    shown = plain_of(literal)
    if isinstance(got, str) and got.startswith("unreadable"):
        assert shown.startswith(got)
    else:
        assert shown == got

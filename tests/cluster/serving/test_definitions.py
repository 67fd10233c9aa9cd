"""CustomResourceDefinitions: established, validated, changed, and deleted with their objects."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from tests.cluster.custom_kinds import DEFINITIONS, definition, establish, fresh_group, is_established, retire, thing
from tests.cluster.objects import JSON, causes, made, names
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import JSON_PATCH, Api

INVALID = "FieldValueInvalid"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def message(*fields: tuple[int, object]) -> bytes:
    """Encode a protobuf message: numbers as varints, floats as fixed64, the rest with a length."""
    return b"".join(_field(number, value) for number, value in fields)


def _field(number: int, value: object) -> bytes:
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    assert isinstance(data, bytes)
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def _property(name: str, *fields: tuple[int, object]) -> tuple[int, bytes]:
    return 29, message((1, name), (2, message(*fields)))


# The numbers are those of ``generated.proto`` of apiextensions.
PROTOBUF_SCHEMA = message(
    (5, "object"),
    _property(
        "spec",
        (5, "object"),
        (23, "size"),
        _property("size", (5, "integer"), (9, 9.0), (11, 1.0)),
        _property("ratio", (5, "number"), (11, 0.5)),
        _property("color", (5, "string"), (8, message((1, b'"red"'))), (20, message((1, b'"red"')))),
        _property("tags", (5, "array"), (16, 3), (24, message((1, message((5, "string"))))), (42, "set")),
        _property("free", (5, "object"), (38, True)),
        _property("port", (40, True)),
        _property("labels", (5, "object"), (30, message((1, True), (2, message((5, "string"), (14, 0)))))),
        _property("any", (5, "object"), (30, message((1, True)))),
        _property("rule", (5, "integer"), (44, message((1, "self > 0"), (2, "must be positive")))),
    ),
)
JSON_SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "maximum": 9, "minimum": 1},
                "ratio": {"type": "number", "minimum": 0.5},
                "color": {"type": "string", "default": "red", "enum": ["red"]},
                "tags": {
                    "type": "array",
                    "maxItems": 3,
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "port": {"x-kubernetes-int-or-string": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string", "minLength": 0}},
                "any": {"type": "object", "additionalProperties": True},
                "rule": {
                    "type": "integer",
                    "x-kubernetes-validations": [{"rule": "self > 0", "message": "must be positive"}],
                },
            },
        }
    },
}


async def test_a_definition_may_be_sent_as_protobuf(api: Api, namespace: str) -> None:
    """As Go's typed client sends it, schema included; then its kind is served."""
    group = fresh_group()
    column = message((1, "Size"), (2, "integer"), (5, 1), (6, ".spec.size"))
    schema = message((1, PROTOBUF_SCHEMA))
    version = message((1, "v1"), (2, True), (3, True), (4, schema), (5, message((1, b""))), (6, column))
    spec = message((1, group), (3, message((1, "things"), (4, "Thing"))), (4, "Namespaced"), (7, version))
    body = message((1, message((1, f"things.{group}"))), (2, spec))
    envelope = message((1, message((1, "apiextensions.k8s.io/v1"), (2, "CustomResourceDefinition"))), (2, body))
    created = made(await api.call("POST", DEFINITIONS, b"k8s\x00" + envelope, content_type=PROTOBUF))
    await api.until(f"{DEFINITIONS}/things.{group}", is_established)
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"
    await api.until(f"/apis/{group}/v1", lambda found: found["resources"])

    assert created["spec"]["versions"] == [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": JSON_SCHEMA},
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "priority": 1, "jsonPath": ".spec.size"},
            ],
        }
    ]
    assert made(await api.post(path, thing(path, "a", {"size": 1})))["spec"] == {"size": 1, "color": "red"}
    assert (await api.post(path, thing(path, "b", {"size": 10}))).status == 422
    await retire(api, f"things.{group}")


async def test_a_definition_is_established(api: Api) -> None:
    """Its names are filled in and accepted; a watch of it sees the conditions appear."""
    group = fresh_group()
    created = made(await api.post(DEFINITIONS, definition(group)))
    async with api.watch(
        DEFINITIONS,
        {"resourceVersion": created["metadata"]["resourceVersion"], "fieldSelector": f"metadata.name=things.{group}"},
    ) as events:
        while not is_established(found := (await anext(events))["object"]):
            pass

    expected = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    assert created["spec"]["names"] == expected
    assert created["spec"]["conversion"] == {"strategy": "None"}
    assert found["status"]["acceptedNames"] == expected
    assert found["status"]["storedVersions"] == ["v1"]
    conditions = {each["type"]: (each["status"], each["reason"]) for each in found["status"]["conditions"]}
    assert conditions["NamesAccepted"] == ("True", "NoConflicts")
    assert conditions["Established"] == ("True", "InitialNamesAccepted")
    await retire(api, f"things.{group}")


@pytest.mark.long
async def test_a_definition_is_deleted_with_its_objects(api: Api, namespace: str) -> None:
    """Its objects, path and group are gone soon after the delete."""
    group = fresh_group()
    await establish(api, definition(group))
    await api.until(f"/apis/{group}/v1", lambda found: found["resources"])
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"
    made(await api.post(path, thing(path, "a", {"size": 1})))
    await Room(api, namespace).known_to_quota(f"count/things.{group}")  # see ``custom_kinds.retire``
    assert (await api.delete(f"{DEFINITIONS}/things.{group}")).status == 200
    await api.until(DEFINITIONS, lambda listed: f"things.{group}" not in names(listed))
    await api.until("/apis", lambda found: group not in [each["name"] for each in found["groups"]])
    for gone in (path, f"/apis/{group}/v1", f"/apis/{group}"):
        reply = await api.get(gone)
        assert (reply.status, reply.text) == (404, "404 page not found\n")


async def test_changes_of_a_definition_take_effect(api: Api, namespace: str) -> None:
    """A new short name and a new maximum apply soon."""
    group = fresh_group()
    await establish(api, definition(group))
    path, things = f"{DEFINITIONS}/things.{group}", f"/apis/{group}/v1/namespaces/{namespace}/things"
    patch: list[JSON] = [
        {"op": "add", "path": "/spec/names/shortNames", "value": ["tt"]},
        {"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum",
         "value": 20},
    ]  # fmt: skip
    assert made(await api.patch(path, patch, JSON_PATCH))["metadata"]["generation"] == 2
    await api.until(path, lambda obj: obj["status"]["acceptedNames"].get("shortNames") == ["tt"])
    await api.until(f"/apis/{group}/v1", lambda found: found["resources"][0].get("shortNames") == ["tt"])

    made(await api.post(things, thing(things, "a", {"size": 20})))
    await retire(api, f"things.{group}")


def without(path: str, value: object = None) -> Any:
    """A change of a definition: it removes the field at a dotted path, or sets it to a value."""

    def change(body: JSON) -> None:
        *way, last = path.split(".")
        holder: Any = body["spec"]
        for step in way:
            holder = holder[int(step)] if step.isdecimal() else holder[step]
        if value is None:
            del holder[last]
        else:
            holder[last] = value

    return change


REQUIRED = "FieldValueRequired"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (without("names.plural", "others"), [(INVALID, "metadata.name",
         'Invalid value: "things.{group}": must be spec.names.plural+"."+spec.group')]),
        (without("scope"), [(REQUIRED, "spec.scope", "Required value")]),
        (without("scope", "Foo"), [("FieldValueNotSupported", "spec.scope",
         'Unsupported value: "Foo": supported values: "Cluster", "Namespaced"')]),
        (without("versions.0.schema"), [(REQUIRED, "spec.versions[0].schema.openAPIV3Schema", "Required value")]),
        (without("group", ""), [
            (INVALID, "metadata.name", 'Invalid value: "things.{group}": must be spec.names.plural+"."+spec.group'),
            (REQUIRED, "spec.group", "Required value")]),
    ],
    ids=["name", "no-scope", "scope", "no-schema", "no-group"],
)  # fmt: skip
async def test_an_invalid_definition_is_refused(api: Api, change: Any, found: list[tuple[str, str, str]]) -> None:
    """422."""
    group = fresh_group()
    body = json.loads(json.dumps(definition(group)))
    change(body)

    expected = [(reason, field, text.replace("{group}", group)) for reason, field, text in found]
    assert causes(await api.post(DEFINITIONS, body)) == expected

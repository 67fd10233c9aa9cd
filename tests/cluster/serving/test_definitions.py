"""CustomResourceDefinitions: established, validated, changed, and deleted with their objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.custom_kinds import DEFINITIONS, definition, establish, fresh_group, is_established, retire, thing
from tests.cluster.objects import JSON, causes, made, names
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import JSON_PATCH, MERGE

if TYPE_CHECKING:
    from tests.cluster.talking import Api

INVALID = "FieldValueInvalid"


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
    """The delete answers with the terminating definition; then its objects, path and group are gone."""
    group = fresh_group()
    await establish(api, definition(group))
    await api.until(f"/apis/{group}/v1", lambda found: found["resources"])
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"
    made(await api.post(path, thing(path, "a", {"size": 1})))
    await Room(api, namespace).known_to_quota(f"count/things.{group}")  # see ``custom_kinds.retire``
    going = (await api.delete(f"{DEFINITIONS}/things.{group}")).json

    assert going["metadata"]["deletionTimestamp"]
    assert going["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await api.until(DEFINITIONS, lambda listed: f"things.{group}" not in names(listed))
    await api.until("/apis", lambda found: group not in [each["name"] for each in found["groups"]])
    for gone in (path, f"/apis/{group}/v1", f"/apis/{group}"):
        reply = await api.get(gone)
        assert (reply.status, reply.text) == (404, "404 page not found\n")


async def test_names_that_are_taken_are_not_accepted(api: Api) -> None:
    """A second definition of the same kind is stored, reports it in its conditions, and is not served."""
    group = fresh_group()
    await establish(api, definition(group))
    name = f"others.{group}"
    made(await api.post(DEFINITIONS, definition(group, "others")))
    found = await api.until(f"{DEFINITIONS}/{name}", lambda obj: (obj.get("status") or {}).get("conditions"))
    conditions = {each["type"]: (each["status"], each["reason"], each["message"])
                  for each in found["status"]["conditions"]}  # fmt: skip

    assert conditions["NamesAccepted"] == ("False", "ListKindConflict", '"ThingList" is already in use')
    assert conditions["Established"] == ("False", "NotAccepted", "not all names are accepted")
    await retire(api, name, f"things.{group}")


async def test_changes_of_a_definition_take_effect(api: Api, namespace: str) -> None:
    """A new short name and a new maximum apply soon; the scope cannot change."""
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
    found = causes(await api.patch(path, {"spec": {"scope": "Cluster"}}, MERGE))

    assert found == [(INVALID, "spec.scope", 'Invalid value: "Cluster": field is immutable')]
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
OPENAPI = "spec.validation.openAPIV3Schema"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (without("names.plural", "others"), [(INVALID, "metadata.name",
         'Invalid value: "things.{group}": must be spec.names.plural+"."+spec.group')]),
        (without("scope"), [(REQUIRED, "spec.scope", "Required value")]),
        (without("scope", "Foo"), [("FieldValueNotSupported", "spec.scope",
         'Unsupported value: "Foo": supported values: "Cluster", "Namespaced"')]),
        (without("versions.0.schema"), [(REQUIRED, "spec.versions[0].schema.openAPIV3Schema", "Required value")]),
        (without("versions", []), [
            (INVALID, "spec.versions", "Invalid value: []: must have exactly one version marked as storage version"),
            (INVALID, "status.storedVersions", "Invalid value: null: must have at least one stored version")]),
        (without("versions.0.schema.openAPIV3Schema", {"type": "object", "properties": {"spec": {"type": "foo"}}}),
         [("FieldValueNotSupported", f"{OPENAPI}.properties[spec].type",
           'Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string"')]),
        (without("versions.0.schema.openAPIV3Schema", {"properties": {"spec": {"properties": {}}}}), [
            (REQUIRED, f"{OPENAPI}.properties[spec].type",
             "Required value: must not be empty for specified object fields"),
            (REQUIRED, f"{OPENAPI}.type", "Required value: must not be empty at the root")]),
        (without("group", ""), [
            (INVALID, "metadata.name", 'Invalid value: "things.{group}": must be spec.names.plural+"."+spec.group'),
            (REQUIRED, "spec.group", "Required value")]),
    ],
    ids=["name", "no-scope", "scope", "no-schema", "no-versions", "type", "not-structural", "no-group"],
)  # fmt: skip
async def test_an_invalid_definition_is_refused(api: Api, change: Any, found: list[tuple[str, str, str]]) -> None:
    """422; schemas must be structural."""
    group = fresh_group()
    body = json.loads(json.dumps(definition(group)))
    change(body)

    expected = [(reason, field, text.replace("{group}", group)) for reason, field, text in found]
    assert causes(await api.post(DEFINITIONS, body)) == expected

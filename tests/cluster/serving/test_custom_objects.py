"""Custom resources: defaults, pruning, validation, status, patches and columns, as their definition specifies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import definition, establish, fresh_group, retire, thing
from tests.cluster.objects import causes, made, names, read_token, refusal, written_token
from tests.cluster.talking import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api

TOO_OLD = "The provided continue parameter is too old to display a consistent list result."


async def serve(server: Server, name: str) -> None:
    """Define the kind Thing in a group, and wait until it can be listed and watched."""
    async with Api(server) as api:
        await establish(api, definition(name))
        await api.until(f"/apis/{name}/v1", lambda found: found["resources"])
        path = f"/apis/{name}/v1/things"
        while (await api.get(path, params={"watch": "1", "timeoutSeconds": "1", "resourceVersion": "1"})).status != 200:
            pass


async def drop(server: Server, name: str) -> None:
    async with Api(server) as api:
        await retire(api, f"things.{name}")


@pytest.fixture(scope="module")
def group(server: Server) -> Iterator[str]:
    """A group with the kind Thing, one for the module, because a real server takes seconds to serve it."""
    name = fresh_group()
    asyncio.run(serve(server, name))
    yield name
    asyncio.run(drop(server, name))


@pytest.fixture
def things(group: str, namespace: str) -> str:
    """The path of the Things in the test's namespace."""
    return f"/apis/{group}/v1/namespaces/{namespace}/things"


async def test_custom_objects_behave_like_any_others(api: Api, things: str) -> None:
    """Create, get, list, watch, patch and delete; the generation counts changes of the spec."""
    created = made(await api.post(things, thing(things, "a", {"size": 3})))
    changed = made(await api.patch(f"{things}/a", {"spec": {"size": 4}}, MERGE))

    assert (created["metadata"]["generation"], changed["metadata"]["generation"]) == (1, 2)
    listed = (await api.get(things)).json
    assert (listed["kind"], names(listed)) == ("ThingList", ["a"])
    assert listed["items"][0]["kind"] == "Thing"
    async with api.watch(things, {"resourceVersion": created["metadata"]["resourceVersion"]}) as events:
        assert (await anext(events))["object"] == changed
    reply = await api.delete(f"{things}/a")
    assert reply.json["details"]["kind"] == "things"
    assert (await api.get(f"{things}/a")).status == 404


async def test_defaults_are_filled_in(api: Api, things: str) -> None:
    """Also for a null where null is not allowed, and inside a default; not where the parent object is missing."""
    created = made(await api.post(things, thing(things, "a", {"size": 1})))
    nulled = made(await api.post(things, thing(things, "b", {"size": 1, "color": None, "tags": None, "nick": None})))
    bare = made(await api.post(things, thing(things, "c")))

    expected = {"size": 1, "color": "red", "nested": {"deep": True}}
    assert created["spec"] == expected
    assert nulled["spec"] == {**expected, "nick": None}
    assert "spec" not in bare


async def test_unknown_fields_are_pruned(api: Api, things: str) -> None:
    """At every depth, except where `x-kubernetes-preserve-unknown-fields` keeps them."""
    spec = {"size": 1, "foo": 1, "free": {"x": [1]}, "nested": {"deep": False, "foo": 2}, "labels": {"any": "x"}}
    created = made(await api.post(things, thing(things, "a", spec, extra=1)))

    assert created["spec"] == {
        "size": 1,
        "color": "red",
        "free": {"x": [1]},
        "nested": {"deep": False},
        "labels": {"any": "x"},
    }
    assert "extra" not in created


async def test_unknown_fields_are_refused_when_validation_is_strict(api: Api, things: str) -> None:
    """400 that names them, with `fieldValidation=Strict`."""
    body = thing(things, "a", {"size": 1, "foo": 1, "nested": {"bar": 2}})
    reply = await api.post(things, body, params={"fieldValidation": "Strict"})

    told = 'strict decoding error: unknown field "spec.foo", unknown field "spec.nested.bar"'
    assert refusal(reply) == (400, "BadRequest", f'Thing in version "v1" cannot be handled as a Thing: {told}')


INVALID, TYPE = "FieldValueInvalid", "FieldValueTypeInvalid"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, [("FieldValueRequired", "spec.size", "Required value")]),
        ({"size": 0},
         [(INVALID, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1")]),
        ({"size": 10},
         [(INVALID, "spec.size", "Invalid value: 10: spec.size in body should be less than or equal to 9")]),
        ({"size": "3"},
         [(TYPE, "spec.size", 'Invalid value: "string": spec.size in body must be of type integer: "string"')]),
        ({"size": 1, "color": "green"},
         [("FieldValueNotSupported", "spec.color", 'Unsupported value: "green": supported values: "red", "blue"')]),
        ({"size": 1, "tags": ["ABC"]},
         [(INVALID, "spec.tags[0]", "Invalid value: \"ABC\": spec.tags[0] in body should match '^[a-z]+$'")]),
        ([], [(TYPE, "spec", 'Invalid value: "array": spec in body must be of type object: "array"')]),
        ({"size": 0, "color": "green"},
         [("FieldValueNotSupported", "spec.color", 'Unsupported value: "green": supported values: "red", "blue"'),
          (INVALID, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1")]),
    ],
    ids=["missing", "too-small", "too-big", "type", "enum", "pattern", "spec-type", "two"],
)  # fmt: skip
async def test_an_object_must_match_its_schema(
    api: Api, things: str, spec: object, found: list[tuple[str, str, str]]
) -> None:
    """422 with a cause for each violation, in any order."""
    assert sorted(causes(await api.post(things, thing(things, "a", spec)))) == sorted(found)
    made(await api.post(things, thing(things, "b", {"size": 1})))
    if isinstance(spec, dict) and spec:
        reply = await api.patch(f"{things}/b", {"spec": spec}, MERGE)
        assert sorted(causes(reply)) == sorted(found)


async def test_status_and_spec_are_written_separately(api: Api, things: str) -> None:
    """The main path ignores the status, the status path everything else; only the spec counts for the generation."""
    created = made(await api.post(things, thing(things, "a", {"size": 1}, status={"phase": "x"})))
    by_status = made(
        await api.patch(
            f"{things}/a/status",
            {"status": {"phase": "y"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}},
            MERGE,
        )
    )
    by_main = made(await api.patch(f"{things}/a", {"status": {"phase": "z"}, "spec": {"size": 2}}, MERGE))

    assert "status" not in created
    assert (by_status["spec"]["size"], by_status["status"]) == (1, {"phase": "y"})
    assert by_status["metadata"]["generation"] == 1
    assert "labels" not in by_status["metadata"]
    assert (by_main["spec"]["size"], by_main["status"], by_main["metadata"]["generation"]) == (2, {"phase": "y"}, 2)
    assert (await api.get(f"{things}/a/status")).json == by_main


async def test_a_replace_must_give_the_version(api: Api, things: str) -> None:
    """Unlike for built-in kinds: 422 without metadata.resourceVersion."""
    created = made(await api.post(things, thing(things, "a", {"size": 1})))
    text = "Invalid value: 0: must be specified for an update"

    assert causes(await api.put(f"{things}/a", thing(things, "a", {"size": 2}))) == [
        (INVALID, "metadata.resourceVersion", text)
    ]
    changed = made(await api.put(f"{things}/a", {**created, "spec": {"size": 2}}))
    assert changed["spec"] == {"size": 2, "color": "red", "nested": {"deep": True}}


async def test_custom_objects_can_be_patched(api: Api, things: str) -> None:
    """JSON patch, merge patch and apply work; strategic merge patch is answered 415."""
    made(await api.post(things, thing(things, "a", {"size": 1})))
    operation = [{"op": "replace", "path": "/spec/size", "value": 2}]
    assert made(await api.patch(f"{things}/a", operation, JSON_PATCH))["spec"]["size"] == 2
    applied = thing(things, "b", {"size": 3})
    assert made(await api.patch(f"{things}/b", applied, APPLY, params={"fieldManager": "x"}))["spec"]["color"] == "red"
    reply = await api.patch(f"{things}/a", {"spec": {"size": 4}}, STRATEGIC)

    forms = f"{JSON_PATCH}, {MERGE}, {APPLY}"
    told = f"the body of the request was in an unknown format - accepted media types include: {forms}"
    assert refusal(reply) == (415, "UnsupportedMediaType", told)


async def test_a_watch_from_before_the_kind_was_served_expires(api: Api, things: str) -> None:
    """HTTP 200, then one ERROR event: a Status with code 410 and reason Expired; then the stream ends."""
    reply = await api.get(things, params={"watch": "1", "resourceVersion": "1", "timeoutSeconds": "5"})
    events = [json.loads(line) for line in reply.text.splitlines()]

    assert reply.status == 200
    assert [each["type"] for each in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["status"], status["code"], status["reason"]) == ("Status", "Failure", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_a_list_that_continues_too_late_expires(api: Api, server: Server, things: str) -> None:
    """410 Expired once the history is gone, with a token to continue with the objects as they are by then."""
    for name in "abc":
        made(await api.post(things, thing(things, name, {"size": 1})))
    token = read_token((await api.get(things, params={"limit": "1"})).json["metadata"]["continue"])
    server.compact()  # a real server still has the versions that it saw itself: the token is changed to an older one
    reply = await api.get(things, params={"limit": "1", "continue": written_token({**token, "rv": 1})})

    status = reply.json
    assert (reply.status, status["code"], status["reason"]) == (410, 410, "Expired")
    assert status["message"].startswith(TOO_OLD)
    rest = (await api.get(things, params={"continue": status["metadata"]["continue"]})).json
    assert names(rest) == ["b", "c"]

"""Patches: JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.objects import config, made, of_core, pod, refusal
from tests.cluster.talking import JSON_PATCH, MERGE, STRATEGIC, Api

NOTES = "/metadata/annotations"
BEFORE = {"a": "1", "x/y": "0"}
UNFIT = (422, "Invalid", "the server rejected our request due to an error in our request")


async def annotated(api: Api, namespace: str) -> str:
    """Create a ConfigMap with the annotations ``BEFORE``; returns its path."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m", {"a": "1"}, annotations=BEFORE)))
    return f"{path}/m"


WORKING = [
    pytest.param([], BEFORE, id="nothing"),
    pytest.param([{"op": "add", "path": f"{NOTES}/b", "value": "2"}], {**BEFORE, "b": "2"}, id="add"),
    pytest.param([{"op": "add", "path": f"{NOTES}/a", "value": "2"}], {**BEFORE, "a": "2"}, id="add-replaces"),
    pytest.param([{"op": "replace", "path": f"{NOTES}/a", "value": "2"}], {**BEFORE, "a": "2"}, id="replace"),
    pytest.param([{"op": "replace", "path": f"{NOTES}/b", "value": "2"}], {**BEFORE, "b": "2"}, id="replace-missing"),
    pytest.param([{"op": "remove", "path": f"{NOTES}/x~1y"}], {"a": "1"}, id="remove-escaped"),
    pytest.param([{"op": "copy", "from": f"{NOTES}/a", "path": f"{NOTES}/b"}], {**BEFORE, "b": "1"}, id="copy"),
    pytest.param([{"op": "move", "from": f"{NOTES}/a", "path": f"{NOTES}/b"}], {"x/y": "0", "b": "1"}, id="move"),
    pytest.param(
        [{"op": "test", "path": f"{NOTES}/a", "value": "1"}, {"op": "replace", "path": f"{NOTES}/a", "value": "2"}],
        {**BEFORE, "a": "2"},
        id="test-holds",
    ),
    pytest.param([{"op": "test", "path": f"{NOTES}/none", "value": None}], BEFORE, id="test-of-nothing-for-null"),
    pytest.param([{"op": "replace", "path": NOTES, "value": {"c": "3"}}], {"c": "3"}, id="replace-all"),
]


@pytest.mark.parametrize(("operations", "after"), WORKING)
async def test_a_json_patch_applies_its_operations_in_order(
    api: Api, namespace: str, operations: list[Any], after: object
) -> None:
    """RFC 6902: add, replace, remove, copy, move and test; `~1` stands for a slash."""
    path = await annotated(api, namespace)
    changed = made(await api.patch(path, operations, JSON_PATCH))

    assert changed["metadata"]["annotations"] == after


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([{"op": "test", "path": f"{NOTES}/a", "value": "9"}], id="test-fails"),
        pytest.param([{"op": "test", "path": f"{NOTES}/none", "value": "9"}], id="test-of-nothing"),
        pytest.param([{"op": "test", "path": f"{NOTES}/a", "value": None}], id="test-of-something-for-null"),
        pytest.param([{"op": "test", "path": "/none/below", "value": None}], id="test-below-nothing-for-null"),
        pytest.param([{"op": "test", "path": "/metadata/managedFields/9", "value": None}], id="test-of-no-item"),
        pytest.param([{"op": "test", "path": "", "value": None}], id="test-of-all-for-null"),
        pytest.param([{"op": "remove", "path": f"{NOTES}/none"}], id="remove-of-nothing"),
        pytest.param([{"op": "add", "path": "/none/below", "value": "1"}], id="add-below-nothing"),
        pytest.param([{"op": "jump", "path": NOTES}], id="unknown-operation"),
        pytest.param([{"op": "remove"}], id="no-path"),
        pytest.param(
            [{"op": "add", "path": f"{NOTES}/b", "value": "2"}, {"op": "remove", "path": f"{NOTES}/none"}],
            id="second-fails",
        ),
    ],
)
async def test_a_json_patch_that_does_not_fit_has_no_effect(api: Api, namespace: str, operations: list[Any]) -> None:
    """422 Invalid without an explanation. One operation that fails undoes all."""
    path = await annotated(api, namespace)

    assert refusal(await api.patch(path, operations, JSON_PATCH)) == UNFIT
    assert (await api.get(path)).json["metadata"]["annotations"] == BEFORE


@pytest.mark.parametrize(
    "body",
    [{"op": "remove"}, [1], b"", b"\xff", b"[" * 20_000],
    ids=["object", "numbers", "empty", "no-text", "deep"],
)
async def test_a_malformed_json_patch_is_refused(api: Api, namespace: str, body: object) -> None:
    """400."""
    path = await annotated(api, namespace)

    assert refusal(await api.patch(path, body, JSON_PATCH))[:2] == (400, "BadRequest")


@pytest.mark.parametrize(
    ("patch", "after"),
    [
        pytest.param({"data": {"b": "3", "c": "4"}}, {"a": "1", "b": "3", "c": "4"}, id="adds-and-replaces"),
        pytest.param({"data": {"a": None}}, {"b": "2"}, id="null-removes"),
        pytest.param({"data": {"none": None}}, {"a": "1", "b": "2"}, id="null-of-nothing"),
        pytest.param({"data": None}, None, id="null-removes-all"),
        pytest.param({}, {"a": "1", "b": "2"}, id="empty"),
        pytest.param({"unknown": 1}, {"a": "1", "b": "2"}, id="unknown-field-is-dropped"),
    ],
)
async def test_a_merge_patch_merges_objects_and_null_removes(
    api: Api, namespace: str, patch: Any, after: object
) -> None:
    """RFC 7386."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m", {"a": "1", "b": "2"})))
    changed = made(await api.patch(f"{path}/m", patch, MERGE))

    assert changed.get("data") == after
    assert "unknown" not in changed


async def test_a_merge_patch_replaces_lists(api: Api, namespace: str) -> None:
    """Items that are not in the new list are gone, ports included."""
    path = of_core(namespace, "services")
    made(await api.post(path, {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 80}]}}))
    changed = made(await api.patch(f"{path}/s", {"spec": {"ports": [{"name": "b", "port": 81}]}}, MERGE))

    assert changed["spec"]["ports"] == [{"name": "b", "port": 81, "targetPort": 81, "protocol": "TCP"}]


@pytest.mark.parametrize("body", [[], '"x"', "7"])
async def test_a_merge_patch_must_be_an_object(api: Api, namespace: str, body: object) -> None:
    """400."""
    path = await annotated(api, namespace)

    assert refusal(await api.patch(path, body, MERGE))[:2] == (400, "BadRequest")


@pytest.mark.parametrize("field", ["name", "namespace"])
async def test_a_patch_cannot_rename_or_move_an_object(api: Api, namespace: str, field: str) -> None:
    """Neither its name nor its namespace can change."""
    path = await annotated(api, namespace)
    told = {
        "name": "the name of the object (other) does not match the name on the URL (m)",
        "namespace": "the namespace of the provided object does not match the namespace sent on the request",
    }

    reply = await api.patch(path, {"metadata": {field: "other"}}, MERGE)
    assert refusal(reply) == (400, "BadRequest", told[field])


async def test_a_patch_to_wrong_types_is_refused(api: Api, namespace: str) -> None:
    """422 whose only cause is the field `patch`; the message ends with the field that does not fit."""
    path = await annotated(api, namespace)
    reply = await api.patch(path, {"data": {"b": 1}}, MERGE)
    code, reason, message = refusal(reply)

    assert (code, reason) == (422, "Invalid")
    assert message.endswith("json: cannot unmarshal number into Go struct field ConfigMap.data of type string")
    assert [(each["reason"], each["field"]) for each in reply.json["details"]["causes"]] == [
        ("FieldValueInvalid", "patch")
    ]


async def with_conditions(api: Api, namespace: str, *types: str) -> str:
    """Create a pod with these conditions; returns the path of its status."""
    path = of_core(namespace, "pods")
    made(await api.post(path, pod("p")))
    conditions = [{"type": each, "status": "True"} for each in types]
    made(await api.patch(f"{path}/p/status", {"status": {"conditions": conditions}}, STRATEGIC))
    return f"{path}/p/status"


@pytest.mark.parametrize(
    ("patch", "after"),
    [
        pytest.param({"conditions": [{"type": "A", "status": "False"}]}, ["A=False", "B=True"], id="changes-one"),
        pytest.param({"conditions": [{"type": "B", "$patch": "delete"}]}, ["A=True"], id="delete"),
        pytest.param({"conditions": [{"type": "none", "$patch": "delete"}]}, ["A=True", "B=True"], id="delete-nothing"),
        pytest.param(
            {"conditions": [{"type": "C", "status": "True"}, {"$patch": "replace"}]}, ["C=True"], id="replace"
        ),
        pytest.param(
            {
                "$setElementOrder/conditions": [{"type": "C"}, {"type": "B"}, {"type": "A"}],
                "conditions": [{"type": "C", "status": "True"}],
            },
            ["C=True", "B=True", "A=True"],
            id="set-element-order",
        ),
        pytest.param({"conditions": None}, [], id="null"),
    ],
)
async def test_a_strategic_patch_merges_conditions_by_type(
    api: Api, namespace: str, patch: object, after: list[str]
) -> None:
    """With the directives `$patch: delete`, `$patch: replace` and `$setElementOrder`."""
    path = await with_conditions(api, namespace, "A", "B")
    changed = made(await api.patch(path, {"status": patch}, STRATEGIC))
    found = [f"{each['type']}={each['status']}" for each in changed["status"].get("conditions", ())]

    assert found == after


async def test_a_strategic_patch_changes_one_container_by_name(api: Api, namespace: str) -> None:
    """The others stay as they are; an item without the merge key is an error."""
    path = of_core(namespace, "pods")
    two = [{"name": "a", "image": "one"}, {"name": "b", "image": "two"}]
    made(await api.post(path, pod("p", {"containers": two})))
    changed = made(await api.patch(f"{path}/p", {"spec": {"containers": [{"name": "b", "image": "new"}]}}, STRATEGIC))

    assert [(each["name"], each["image"]) for each in changed["spec"]["containers"]] == [("a", "one"), ("b", "new")]
    reply = await api.patch(f"{path}/p", {"spec": {"containers": [{"image": "new"}]}}, STRATEGIC)
    assert refusal(reply)[:2] == (500, "")


async def test_a_strategic_patch_merges_service_ports_by_port(api: Api, namespace: str) -> None:
    """It also deletes a port by its number."""
    path = of_core(namespace, "services")
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    made(await api.post(path, {"metadata": {"name": "s"}, "spec": {"ports": ports}}))
    patch = {"spec": {"ports": [{"port": 81, "targetPort": 99}, {"port": 80, "$patch": "delete"}]}}
    changed = made(await api.patch(f"{path}/s", patch, STRATEGIC))

    assert [(each["port"], each["targetPort"]) for each in changed["spec"]["ports"]] == [(81, 99)]


async def test_a_strategic_patch_treats_finalizers_as_a_set(api: Api, namespace: str) -> None:
    """Values are added; `$deleteFromPrimitiveList` removes them."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m", finalizers=["x/a"])))
    patch: dict[str, Any] = {"metadata": {"finalizers": ["x/b"]}}
    added = made(await api.patch(f"{path}/m", patch, STRATEGIC))
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}}
    less = made(await api.patch(f"{path}/m", patch, STRATEGIC))

    assert sorted(added["metadata"]["finalizers"]) == ["x/a", "x/b"]
    assert less["metadata"]["finalizers"] == ["x/b"]
    made(await api.patch(f"{path}/m", {"metadata": {"finalizers": None}}, MERGE))


@pytest.mark.parametrize(
    ("labels", "after"),
    [
        ({"c": "3"}, {"a": "1", "b": "2", "c": "3"}),
        ({"$patch": "replace", "c": "3"}, {"c": "3"}),
        ({"$patch": "delete"}, None),
        ({"$retainKeys": ["a"], "a": "9"}, {"a": "9"}),
        ({"a": None}, {"b": "2"}),
    ],
    ids=["merge", "replace", "delete", "retain-keys", "null"],
)
async def test_a_strategic_patch_has_directives_for_maps(
    api: Api, namespace: str, labels: object, after: object
) -> None:
    """`$patch: replace`, `$patch: delete` and `$retainKeys` on labels."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m", labels={"a": "1", "b": "2"})))
    changed = made(await api.patch(f"{path}/m", {"metadata": {"labels": labels}}, STRATEGIC))

    assert changed["metadata"].get("labels") == after


async def test_a_patch_can_be_a_dry_run(api: Api, namespace: str) -> None:
    """`dryRun=All` answers with the result without storing it."""
    path = await annotated(api, namespace)
    before = (await api.get(path)).json
    tried = made(await api.patch(path, {"data": {"b": "2"}}, MERGE, params={"dryRun": "All"}))

    assert tried["data"] == {"a": "1", "b": "2"}
    assert (await api.get(path)).json == before

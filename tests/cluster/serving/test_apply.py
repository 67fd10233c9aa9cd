"""Server-side apply: who owns which field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.objects import JSON, MODIFIED_TEXT, causes, config, made, of_core, pod, refusal
from tests.cluster.talking import APPLY, MERGE, Api, Reply


async def apply(api: Api, path: str, body: object, manager: str = "one", **params: str) -> Reply:
    return await api.patch(path, body, APPLY, params={"fieldManager": manager, **params})


def owners(obj: JSON) -> dict[tuple[str, str], JSON]:
    """The fields of each manager, by its name and operation."""
    return {(each["manager"], each["operation"]): each["fieldsV1"] for each in obj["metadata"].get("managedFields", ())}


def clash(*found: tuple[str, str]) -> tuple[str, list[JSON]]:
    """The message and the causes of a conflict with one manager about some fields."""
    listed = [{"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": f} for who, f in found]
    if len(found) == 1:
        return f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1]}", listed
    fields = "\n".join(f"- {field}" for _, field in found)
    return f"Apply failed with {len(found)} conflicts: conflicts with {found[0][0]}:\n{fields}", listed


async def test_an_apply_creates_a_missing_object(api: Api, namespace: str) -> None:
    """201, then 200. The manager owns what it applied; repeating the apply makes no new version."""
    path = of_core(namespace, "configmaps", "m")
    first = await apply(api, path, config("m", {"a": "1"}))
    second = await apply(api, path, config("m", {"a": "1"}))

    assert (first.status, second.status) == (201, 200)
    assert owners(first.json) == {("one", "Apply"): {"f:data": {"f:a": {}}}}
    assert second.json["metadata"]["resourceVersion"] == first.json["metadata"]["resourceVersion"]
    entry = first.json["metadata"]["managedFields"][0]
    assert (entry["apiVersion"], entry["fieldsType"]) == ("v1", "FieldsV1")
    assert entry["time"] == first.json["metadata"]["creationTimestamp"]


async def test_an_apply_may_be_yaml_and_may_omit_the_name(api: Api, namespace: str) -> None:
    """For an existing object the name is that of the path; a create must give it."""
    path = of_core(namespace, "configmaps", "m")
    told = "the name of the object (m based on URL) was undeterminable: name must be provided"
    body = "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n"
    assert refusal(await apply(api, path, body)) == (400, "BadRequest", told)
    made(await apply(api, path, config("m")))
    applied = made(await apply(api, path, body))

    assert (applied["metadata"]["name"], applied["data"]) == ("m", {"a": "b"})


async def test_a_field_of_another_manager_is_a_conflict(api: Api, namespace: str) -> None:
    """409 with a cause for each field; the object stays as it is."""
    path = of_core(namespace, "configmaps", "m")
    made(await apply(api, path, config("m", {"a": "1", "b": "1", "c": "1"})))
    one = await apply(api, path, config("m", {"a": "2"}), "two")
    two = await apply(api, path, config("m", {"a": "2", "b": "2", "c": "1"}), "two")

    for reply, (message, listed) in (
        (one, clash(('"one"', ".data.a"))),
        (two, clash(('"one"', ".data.a"), ('"one"', ".data.b"))),
    ):
        assert refusal(reply) == (409, "Conflict", message)
        assert reply.json["details"] == {"causes": listed}
    assert (await api.get(path)).json["data"]["a"] == "1"


async def test_force_takes_a_field_over(api: Api, namespace: str) -> None:
    """The other manager no longer owns the field, and may apply without it."""
    path = of_core(namespace, "configmaps", "m")
    made(await apply(api, path, config("m", {"a": "1", "b": "1"})))
    forced = made(await apply(api, path, config("m", {"a": "2"}), "two", force="true"))

    assert forced["data"] == {"a": "2", "b": "1"}
    assert owners(forced) == {("one", "Apply"): {"f:data": {"f:b": {}}}, ("two", "Apply"): {"f:data": {"f:a": {}}}}
    assert refusal(await apply(api, path, config("m", {"a": "1", "b": "1"})))[0] == 409


async def test_managers_may_share_a_value(api: Api, namespace: str) -> None:
    """Two managers may apply the same value; the field is removed when neither applies it any more."""
    path = of_core(namespace, "configmaps", "m")
    made(await apply(api, path, config("m", {"a": "1"})))
    shared = made(await apply(api, path, config("m", {"a": "1"}), "two"))
    kept = made(await apply(api, path, config("m")))
    gone = made(await apply(api, path, config("m"), "two"))

    assert owners(shared).keys() == {("one", "Apply"), ("two", "Apply")}
    assert (kept["data"], owners(kept)) == ({"a": "1"}, {("two", "Apply"): {"f:data": {"f:a": {}}}})
    assert "data" not in gone
    assert "managedFields" not in gone["metadata"]


async def test_fields_that_are_no_longer_applied_are_removed(api: Api, namespace: str) -> None:
    """Only fields that no other manager owns."""
    path = of_core(namespace, "configmaps", "m")
    made(await apply(api, path, config("m", {"a": "1", "b": "1"}, labels={"x": "1"})))
    less = made(await apply(api, path, config("m", {"b": "1"})))

    assert less["data"] == {"b": "1"}
    assert "labels" not in less["metadata"]


async def test_containers_merge_by_name(api: Api, namespace: str) -> None:
    """Each manager owns its own container, and its own variables in a shared one."""
    path = of_core(namespace, "podtemplates", "t")

    def template(*containers: JSON) -> JSON:
        return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"},
                "template": {"spec": {"containers": list(containers)}}}  # fmt: skip

    made(await apply(api, path, template({"name": "a", "image": "i", "env": [{"name": "A", "value": "1"}]})))
    both = made(
        await apply(
            api,
            path,
            template({"name": "a", "env": [{"name": "B", "value": "2"}]}, {"name": "b", "image": "j"}),
            "two",
        )
    )
    found = {each["name"]: each for each in both["template"]["spec"]["containers"]}

    assert [each["name"] for each in found["a"]["env"]] == ["A", "B"]
    assert (found["a"]["image"], found["b"]["image"]) == ("i", "j")
    fields = owners(both)["two", "Apply"]["f:template"]["f:spec"]["f:containers"]
    assert fields['k:{"name":"b"}'] == {".": {}, "f:image": {}, "f:name": {}}
    reply = await apply(api, path, template({"name": "a", "image": "k"}), "two")
    message, listed = clash(('"one"', '.template.spec.containers[name="a"].image'))
    assert refusal(reply) == (409, "Conflict", message)
    assert reply.json["details"] == {"causes": listed}
    less = made(await apply(api, path, template({"name": "a"}), "two"))
    assert [each["name"] for each in less["template"]["spec"]["containers"]] == ["a"]


async def test_finalizers_are_a_set(api: Api, namespace: str) -> None:
    """Each manager owns its own values."""
    path = of_core(namespace, "configmaps", "m")
    made(await apply(api, path, config("m", finalizers=["x/a"])))
    both = made(await apply(api, path, config("m", finalizers=["x/b"]), "two"))
    less = made(await apply(api, path, config("m")))

    assert sorted(both["metadata"]["finalizers"]) == ["x/a", "x/b"]
    assert owners(both)["two", "Apply"] == {"f:metadata": {"f:finalizers": {'v:"x/b"': {}}}}
    assert less["metadata"]["finalizers"] == ["x/b"]
    made(await apply(api, path, config("m"), "two"))


async def test_an_apply_conflicts_with_other_writes(api: Api, namespace: str) -> None:
    """The message also names the API version of that write; with force the field changes its owner."""
    path = of_core(namespace, "configmaps", "m")
    made(await apply(api, path, config("m", {"a": "1"})))
    made(await api.patch(path, {"data": {"a": "2"}}, MERGE, params={"fieldManager": "patcher"}))
    reply = await apply(api, path, config("m", {"a": "1"}))
    message, listed = clash(('"patcher" using v1', ".data.a"))

    assert refusal(reply) == (409, "Conflict", message)
    assert reply.json["details"] == {"causes": listed}
    forced = made(await apply(api, path, config("m", {"a": "1"}), force="true"))
    assert forced["data"] == {"a": "1"}
    assert owners(forced) == {("one", "Apply"): {"f:data": {"f:a": {}}}}


async def test_a_removed_field_has_no_owner(api: Api, namespace: str) -> None:
    """Removing a field by a patch takes it from all its owners."""
    path = of_core(namespace, "configmaps", "m")
    made(await apply(api, path, config("m", {"a": "1", "b": "1"})))
    left = made(await api.patch(path, {"data": {"a": None}}, MERGE, params={"fieldManager": "patcher"}))

    assert owners(left) == {("one", "Apply"): {"f:data": {"f:b": {}}}}


async def test_the_status_has_owners_of_its_own(api: Api, namespace: str) -> None:
    """Entries of the status subresource are marked as such."""
    path = of_core(namespace, "pods")
    made(await apply(api, f"{path}/p", {"apiVersion": "v1", "kind": "Pod", **pod("p")}))
    status = {"status": {"message": "hello"}}
    changed = made(await api.patch(f"{path}/p/status", status, MERGE, params={"fieldManager": "kubelet"}))
    entries = {each["manager"]: each for each in changed["metadata"]["managedFields"]}

    assert entries["kubelet"]["subresource"] == "status"
    assert entries["kubelet"]["fieldsV1"] == {"f:status": {"f:message": {}}}
    assert "subresource" not in entries["one"]
    assert entries["one"]["fieldsV1"].keys() == {"f:spec"}


async def test_managed_fields_can_be_reset(api: Api, namespace: str) -> None:
    """A list of one empty entry drops all owners; the next apply meets them as `before-first-apply`."""
    path = of_core(namespace, "configmaps", "m")
    made(await apply(api, path, config("m", {"a": "1"})))
    emptied = made(await api.patch(path, {"metadata": {"managedFields": [{}]}}, MERGE))

    assert "managedFields" not in emptied["metadata"]
    message, _ = clash(('"before-first-apply" using v1', ".data.a"))
    assert refusal(await apply(api, path, config("m", {"a": "2"}), "two")) == (409, "Conflict", message)


async def test_an_apply_needs_a_manager(api: Api, namespace: str) -> None:
    """422 for PatchOptions without `fieldManager`."""
    reply = await api.patch(of_core(namespace, "configmaps", "m"), config("m"), APPLY)

    assert causes(reply) == [("FieldValueRequired", "fieldManager", "Required value: is required for apply patch")]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"metadata": {"name": "m"}}, "invalid object type: /, Kind="),
        ({"kind": "ConfigMap"}, "invalid object type: /, Kind=ConfigMap"),
        ({"kind": "Pod", "apiVersion": "v1"}, "invalid object type: /v1, Kind=Pod"),
        (config("other"), "the name of the object (other) does not match the name on the URL (m)"),
        (config("m", managedFields=[{"manager": "x", "operation": "Apply", "apiVersion": "v1",
                                     "fieldsType": "FieldsV1", "fieldsV1": {}}]), "metadata.managedFields must be nil"),
    ],
    ids=["no-kind", "no-version", "another-kind", "another-name", "managed-fields"],
)  # fmt: skip
async def test_an_apply_of_another_kind_is_refused(api: Api, namespace: str, body: Any, told: str) -> None:
    """400, whether the object exists or not."""
    path = of_core(namespace, "configmaps", "m")
    if "name on the URL" not in told:
        made(await apply(api, path, config("m")))

    assert refusal(await apply(api, path, body)) == (400, "BadRequest", told)


async def test_an_apply_may_give_a_version_or_a_uid(api: Api, namespace: str) -> None:
    """409 for an old version, and for a uid if the object does not exist."""
    path = of_core(namespace, "configmaps")
    made(await apply(api, f"{path}/m", config("m")))

    reply = await apply(api, f"{path}/m", config("m", resourceVersion="1"))
    assert refusal(reply) == (409, "Conflict", f'Operation cannot be fulfilled on configmaps "m": {MODIFIED_TEXT}')
    reply = await apply(api, f"{path}/n", config("n", uid="abc"))
    told = "uid mismatch: the provided object specified uid abc, and no existing object was found"
    assert refusal(reply) == (409, "Conflict", f'Operation cannot be fulfilled on configmaps "n": {told}')


async def test_an_apply_of_a_status_never_creates_an_object(api: Api, namespace: str) -> None:
    """404 if the object does not exist."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"message": "x"}}
    reply = await apply(api, of_core(namespace, "pods", "p", "status"), body)

    assert refusal(reply) == (404, "NotFound", 'pods "p" not found')


async def test_an_apply_can_be_a_dry_run(api: Api, namespace: str) -> None:
    """`dryRun=All` for creating and for changing an object."""
    path = of_core(namespace, "configmaps", "m")
    assert (await apply(api, path, config("m", {"a": "1"}), dryRun="All")).status == 201
    assert (await api.get(path)).status == 404
    made(await apply(api, path, config("m", {"a": "1"})))
    assert made(await apply(api, path, config("m", {"a": "2"}), dryRun="All"))["data"] == {"a": "2"}
    assert (await api.get(path)).json["data"] == {"a": "1"}


async def test_a_create_is_in_the_way_of_an_apply(api: Api, namespace: str) -> None:
    """Another value is a conflict with the manager that made the object; with force the field changes its owner."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m", {"a": "1", "b": "1"})))
    body = config("m", {"a": "2"})

    assert refusal(await apply(api, f"{path}/m", body))[:2] == (409, "Conflict")
    forced = made(await apply(api, f"{path}/m", body, force="true"))
    assert forced["data"] == {"a": "2", "b": "1"}
    assert owners(forced)["one", "Apply"] == {"f:data": {"f:a": {}}}
    made(await apply(api, f"{path}/m", body))

"""Names: given, generated, taken and invalid."""

from __future__ import annotations

import re

import pytest

from tests.cluster.objects import MODIFIED_TEXT, SUBDOMAIN_TEXT, causes, config, made, of_core, pod, refusal
from tests.cluster.talking import MERGE, Api


@pytest.mark.parametrize(
    ("prefix", "kept"),
    [("m-", 2), ("a" * 57 + "-", 58), ("a" * 62, 58), ("a.b-", 4)],
    ids=["short", "just-fits", "cut", "with-a-dot"],
)
async def test_a_generated_name_is_the_prefix_and_five_characters(
    api: Api, namespace: str, prefix: str, kept: int
) -> None:
    """`generateName` is cut to 58 characters and gets 5 of `bcdfghjklmnpqrstvwxz2456789`; it is stored as given."""
    created = made(await api.post(of_core(namespace, "configmaps"), {"metadata": {"generateName": prefix}}))
    metadata = created["metadata"]

    assert metadata["generateName"] == prefix
    assert metadata["name"][:-5] == prefix[:kept]
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{5}", metadata["name"][-5:])


async def test_a_taken_name_is_refused(api: Api, namespace: str) -> None:
    """409 with reason AlreadyExists; details give name and resource."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m")))
    reply = await api.post(path, config("m"))

    assert refusal(reply) == (409, "AlreadyExists", 'configmaps "m" already exists')
    assert reply.json["details"] == {"name": "m", "kind": "configmaps"}


async def test_the_refusal_of_a_taken_name_includes_the_group(api: Api, namespace: str) -> None:
    """`jobs.batch "j" already exists`, and `details.group`."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]}}
    body = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    made(await api.post(path, body))
    reply = await api.post(path, body)

    assert refusal(reply) == (409, "AlreadyExists", 'jobs.batch "j" already exists')
    assert reply.json["details"] == {"name": "j", "group": "batch", "kind": "jobs"}


async def test_a_name_is_free_again_after_a_delete(api: Api, namespace: str) -> None:
    """The new object has another uid and a higher resourceVersion."""
    path = of_core(namespace, "configmaps")
    first = made(await api.post(path, config("m")))["metadata"]
    await api.delete(f"{path}/m")
    second = made(await api.post(path, config("m")))["metadata"]

    assert second["uid"] != first["uid"]
    assert int(second["resourceVersion"]) > int(first["resourceVersion"])


async def test_a_name_may_be_used_in_every_namespace_and_kind(api: Api, namespace: str) -> None:
    """Names are unique only within a kind and a namespace."""
    made(await api.post(of_core(namespace, "configmaps"), config("same")))
    made(await api.post(of_core(namespace, "secrets"), {"metadata": {"name": "same"}}))
    made(await api.post(of_core("default", "configmaps"), config(f"same-{namespace}")))
    made(await api.post(of_core(namespace, "configmaps"), config(f"same-{namespace}")))

    assert (await api.delete(of_core("default", "configmaps", f"same-{namespace}"))).status == 200


BAD_NAMES = [
    pytest.param("configmaps", "Big", SUBDOMAIN_TEXT, id="capital"),
    pytest.param("configmaps", "a_b", SUBDOMAIN_TEXT, id="underscore"),
    pytest.param("configmaps", "-a", SUBDOMAIN_TEXT, id="hyphen-first"),
    pytest.param("configmaps", "a..b", SUBDOMAIN_TEXT, id="empty-part"),
    pytest.param("configmaps", "a" * 254, "must be no more than 253 characters", id="254-characters"),
    pytest.param("pods", "a/b", SUBDOMAIN_TEXT, id="slash"),
    pytest.param("persistentvolumeclaims", "A", SUBDOMAIN_TEXT, id="claim"),
    pytest.param("services", "a" * 64, "must be no more than 63 characters", id="service-64"),
]


@pytest.mark.parametrize(("plural", "name", "text"), BAD_NAMES)
async def test_an_invalid_name_is_refused(api: Api, namespace: str, plural: str, name: str, text: str) -> None:
    """422 Invalid with one cause: FieldValueInvalid at `metadata.name`, and the violated rule."""
    specs = {
        "pods": pod("x")["spec"],
        "services": {"ports": [{"port": 80}]},
        "persistentvolumeclaims": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    body = {"metadata": {"name": name}}
    reply = await api.post(of_core(namespace, plural), {**body, "spec": specs[plural]} if plural in specs else body)

    assert causes(reply) == [("FieldValueInvalid", "metadata.name", f'Invalid value: "{name}": {text}')]


@pytest.mark.parametrize("metadata", [{}, {"name": ""}, {"labels": {"a": "b"}}], ids=["none", "empty", "labels-only"])
async def test_an_object_without_a_name_is_refused(api: Api, namespace: str, metadata: dict[str, object]) -> None:
    """422: name or generateName is required; the details have no name."""
    reply = await api.post(of_core(namespace, "configmaps"), {"metadata": metadata})

    text = "Required value: name or generateName is required"
    assert causes(reply) == [("FieldValueRequired", "metadata.name", text)]
    assert "name" not in reply.json["details"]


async def test_a_create_must_not_give_a_resource_version(api: Api, namespace: str) -> None:
    """500 with a message and without a reason, as Kubernetes answers."""
    reply = await api.post(of_core(namespace, "configmaps"), config("m", resourceVersion="5"))

    assert refusal(reply) == (500, "", "resourceVersion should not be set on objects to be created")


async def test_name_and_namespace_of_a_body_must_match_the_path(api: Api, namespace: str) -> None:
    """400 that names both; a body without them takes the namespace, but not the name, from the path."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m")))

    text = "the namespace of the provided object does not match the namespace sent on the request"
    assert refusal(await api.post(path, config("x", namespace="other"))) == (400, "BadRequest", text)
    text = "the name of the object (x) does not match the name on the URL (m)"
    assert refusal(await api.put(f"{path}/m", config("x"))) == (400, "BadRequest", text)
    text = "the name of the object (m based on URL) was undeterminable: name must be provided"
    assert refusal(await api.put(f"{path}/m", {"metadata": {}})) == (400, "BadRequest", text)


async def test_a_missing_namespace_is_not_found(api: Api) -> None:
    """404 that names the namespace, not the object."""
    reply = await api.post(of_core("no-such-namespace", "configmaps"), config("m"))

    assert refusal(reply) == (404, "NotFound", 'namespaces "no-such-namespace" not found')
    assert reply.json["details"] == {"name": "no-such-namespace", "kind": "namespaces"}


async def test_a_missing_object_is_not_found(api: Api, namespace: str) -> None:
    """404 for get, replace, patch and delete."""
    path = of_core(namespace, "pods", "none")
    replies = [
        await api.get(path),
        await api.put(path, pod("none")),
        await api.patch(path, {}, content_type=MERGE),
        await api.delete(path),
    ]

    for reply in replies:
        assert refusal(reply) == (404, "NotFound", 'pods "none" not found')
        assert reply.json["details"] == {"name": "none", "kind": "pods"}


async def test_a_replace_of_an_old_version_is_a_conflict(api: Api, namespace: str) -> None:
    """Of two writers that read the same version, the second gets 409 Conflict, and its write has no effect."""
    path = of_core(namespace, "configmaps")
    read = made(await api.post(path, config("m", {"a": "1"})))
    made(await api.put(f"{path}/m", {**read, "data": {"a": "2"}}))
    reply = await api.put(f"{path}/m", {**read, "data": {"a": "3"}})

    text = f'Operation cannot be fulfilled on configmaps "m": {MODIFIED_TEXT}'
    assert refusal(reply) == (409, "Conflict", text)
    assert reply.json["details"] == {"name": "m", "kind": "configmaps"}
    assert (await api.get(f"{path}/m")).json["data"] == {"a": "2"}


async def test_a_patch_can_give_the_version_that_it_is_for(api: Api, namespace: str) -> None:
    """409 for any version but the newest."""
    path = of_core(namespace, "configmaps", "m")
    read = made(await api.post(of_core(namespace, "configmaps"), config("m", {"a": "1"})))
    version = read["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version}, "data": {"a": "2"}}
    made(await api.patch(path, body, content_type=MERGE))
    reply = await api.patch(path, body, content_type=MERGE)

    assert refusal(reply) == (409, "Conflict", f'Operation cannot be fulfilled on configmaps "m": {MODIFIED_TEXT}')


async def test_a_replace_without_a_version_is_unconditional(api: Api, namespace: str) -> None:
    """The last writer wins; only for built-in kinds."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m", {"a": "1"})))
    changed = made(await api.put(f"{path}/m", config("m", {"a": "2"})))

    assert changed["data"] == {"a": "2"}


async def test_a_replace_of_another_uid_is_a_conflict(api: Api, namespace: str) -> None:
    """409 with both uids: the object of that name is not the one that was meant."""
    path = of_core(namespace, "configmaps")
    uid = made(await api.post(path, config("m")))["metadata"]["uid"]
    code, reason, message = refusal(await api.put(f"{path}/m", config("m", uid="other")))

    assert (code, reason) == (409, "Conflict")
    assert message.startswith('Operation cannot be fulfilled on configmaps "m": ')
    assert message.endswith(f"Precondition failed: UID in precondition: other, UID in object meta: {uid}")


async def test_a_write_without_a_change_makes_no_new_version(api: Api, namespace: str) -> None:
    """Neither does a replace with the object as it was read, nor an empty patch."""
    path = of_core(namespace, "configmaps")
    read = made(await api.post(path, config("m", {"a": "1"})))
    again = made(await api.put(f"{path}/m", read))
    patched = made(await api.patch(f"{path}/m", {"data": {"a": "1"}}, content_type=MERGE))

    assert again["metadata"]["resourceVersion"] == read["metadata"]["resourceVersion"]
    assert patched["metadata"]["resourceVersion"] == read["metadata"]["resourceVersion"]

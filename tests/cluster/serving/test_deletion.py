"""Deletion: grace periods, preconditions, finalizers, dependents, and whole collections."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.objects import JSON, config, made, names, of_core, of_group, pod, refusal, secret
from tests.cluster.talking import MERGE, Api


async def gone(api: Api, path: str) -> bool:
    return (await api.get(path)).status == 404


async def until_gone(api: Api, collection: str, name: str) -> None:
    """Wait until a collection no longer lists the object."""
    await api.until(collection, lambda listed: name not in names(listed))


@pytest.mark.parametrize("plural", ["configmaps", "secrets", "events"])
async def test_a_delete_returns_a_status(api: Api, namespace: str, plural: str) -> None:
    """Success, with name, kind and uid of the deleted object."""
    path = of_core(namespace, plural)
    body = {"metadata": {"name": "x"}, **({"involvedObject": {"namespace": namespace}} if plural == "events" else {})}
    uid = made(await api.post(path, body))["metadata"]["uid"]
    reply = await api.delete(f"{path}/x")

    assert reply.status == 200
    assert reply.json["status"] == "Success"
    assert reply.json["details"] == {"name": "x", "kind": plural, "uid": uid}
    assert await gone(api, f"{path}/x")


@pytest.mark.parametrize("plural", ["pods", "services", "serviceaccounts", "resourcequotas", "podtemplates"])
async def test_a_delete_of_some_kinds_returns_the_object(api: Api, namespace: str, plural: str) -> None:
    """Pods, Services, ServiceAccounts, ResourceQuotas and PodTemplates are returned in their last state."""
    specs: dict[str, Any] = {
        "pods": pod("x"),
        "services": {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}},
        "podtemplates": {"metadata": {"name": "x"}, "template": {"spec": pod("x")["spec"]}},
    }
    path = of_core(namespace, plural)
    uid = made(await api.post(path, specs.get(plural, {"metadata": {"name": "x"}})))["metadata"]["uid"]
    reply = await api.delete(f"{path}/x")

    assert reply.status == 200
    assert reply.json["kind"] != "Status"
    assert reply.json["metadata"]["uid"] == uid
    assert await gone(api, f"{path}/x")


async def test_a_pod_without_a_node_is_deleted_at_once(api: Api, namespace: str) -> None:
    """Its grace period becomes 0, because no node runs it. The delete counts as a change of the pod."""
    path = of_core(namespace, "pods")
    made(await api.post(path, pod("p", {"terminationGracePeriodSeconds": 40})))
    answer = (await api.delete(f"{path}/p")).json

    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert answer["metadata"]["generation"] == 2
    assert await gone(api, f"{path}/p")


async def test_a_pod_on_a_node_gets_its_grace_period(api: Api, namespace: str) -> None:
    """It stays, marked, until the node confirms or a grace of 0 ends it; a second delete can only shorten the grace."""
    path = of_core(namespace, "pods", "p")
    made(await api.post(of_core(namespace, "pods"), pod("p", {"nodeName": "n1", "terminationGracePeriodSeconds": 40})))
    first = (await api.delete(path)).json["metadata"]
    longer = (await api.delete(path, {"gracePeriodSeconds": 90})).json["metadata"]
    shorter = (await api.delete(path, {"gracePeriodSeconds": 5})).json["metadata"]

    assert [each["deletionGracePeriodSeconds"] for each in (first, longer, shorter)] == [40, 40, 5]
    assert first["deletionTimestamp"] == longer["deletionTimestamp"] > shorter["deletionTimestamp"]
    assert [each["generation"] for each in (first, longer, shorter)] == [2, 2, 2]
    assert not await gone(api, path)
    await api.delete(path, {"gracePeriodSeconds": 0})
    assert await gone(api, path)


@pytest.mark.parametrize(("asked", "given"), [(0, None), (1, 1), (7, 7), (-1, 1)])
async def test_a_delete_can_set_the_grace_period(api: Api, namespace: str, asked: int, given: int | None) -> None:
    """In the body or in the query; a negative one counts as one second."""
    path = of_core(namespace, "pods")
    for name in ("in-body", "in-query"):
        made(await api.post(path, pod(name, {"nodeName": "n1"})))
    await api.delete(f"{path}/in-body", {"gracePeriodSeconds": asked})
    await api.delete(f"{path}/in-query", params={"gracePeriodSeconds": str(asked)})

    for name in ("in-body", "in-query"):
        left = await api.get(f"{path}/{name}")
        assert (left.json["metadata"]["deletionGracePeriodSeconds"] if left.status == 200 else None) == given


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_gets_no_grace_period(api: Api, namespace: str, phase: str) -> None:
    """It is deleted at once, although it has a node."""
    path = of_core(namespace, "pods")
    made(await api.post(path, pod("p", {"nodeName": "n1"})))
    made(await api.patch(f"{path}/p/status", {"status": {"phase": phase}}, MERGE))
    await api.delete(f"{path}/p")

    assert await gone(api, f"{path}/p")


async def test_watchers_see_a_pod_marked_before_it_is_gone(api: Api, namespace: str) -> None:
    """MODIFIED with deletionTimestamp, then DELETED."""
    path = of_core(namespace, "pods")
    version = made(await api.post(path, pod("p")))["metadata"]["resourceVersion"]
    await api.delete(f"{path}/p")
    async with api.watch(path, {"resourceVersion": version}) as events:
        marked, deleted = await anext(events), await anext(events)

    assert [marked["type"], deleted["type"]] == ["MODIFIED", "DELETED"]
    assert marked["object"]["metadata"]["deletionTimestamp"]
    assert deleted["object"]["metadata"]["deletionTimestamp"]


async def test_a_finalizer_keeps_an_object_until_it_is_removed(api: Api, namespace: str) -> None:
    """A delete marks the object and returns it; removing the last finalizer deletes it."""
    path = of_core(namespace, "secrets")
    version = made(await api.post(path, secret("m", finalizers=["x/y"])))["metadata"]["resourceVersion"]
    marked = (await api.delete(f"{path}/m")).json
    again = (await api.delete(f"{path}/m")).json

    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    last = made(await api.patch(f"{path}/m", {"metadata": {"finalizers": None}}, MERGE))
    assert "finalizers" not in last["metadata"]
    assert await gone(api, f"{path}/m")
    async with api.watch(path, {"resourceVersion": version}) as events:
        found = [await anext(events), await anext(events)]
    assert [each["type"] for each in found] == ["MODIFIED", "DELETED"]
    assert found[1]["object"]["metadata"]["finalizers"] == ["x/y"]


async def test_a_terminating_object_can_be_changed(api: Api, namespace: str) -> None:
    """Its name is taken until it is gone."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("m", finalizers=["x/y"])))
    await api.delete(f"{path}/m")

    assert made(await api.patch(f"{path}/m", {"data": {"a": "1"}}, MERGE))["data"] == {"a": "1"}
    taken = (409, "AlreadyExists", 'object is being deleted: configmaps "m" already exists')
    assert refusal(await api.post(path, config("m"))) == taken
    made(await api.patch(f"{path}/m", {"metadata": {"finalizers": []}}, MERGE))
    assert await gone(api, f"{path}/m")


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("uid", ("the UID in the precondition (1) does not match the UID in record ({uid}). The object might have been "
                "deleted and then recreated")),
        ("resourceVersion", ("the ResourceVersion in the precondition (1) does not match the ResourceVersion in record "
                            "({resourceVersion}). The object might have been modified")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("plural", ["configmaps", "pods"])
async def test_a_precondition_must_hold(api: Api, namespace: str, plural: str, field: str, told: str) -> None:
    """409 Conflict with both values."""
    path = of_core(namespace, plural)
    metadata = made(await api.post(path, pod("x") if plural == "pods" else config("x")))["metadata"]
    code, reason, message = refusal(await api.delete(f"{path}/x", {"preconditions": {field: "1"}}))

    assert (code, reason) == (409, "Conflict")
    assert message.endswith(f' "x": {told.format(**metadata)}')
    assert not await gone(api, f"{path}/x")
    await api.delete(f"{path}/x", {"preconditions": {field: metadata[field]}})
    assert await gone(api, f"{path}/x")


def owned(name: str, owner: JSON) -> JSON:
    metadata = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
    return config(name, ownerReferences=[reference])


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_dependents_are_deleted_with_their_owner(api: Api, namespace: str, policy: str) -> None:
    """And theirs with them; which one goes first is up to the server."""
    path = of_core(namespace, "configmaps")
    owner = made(await api.post(path, config("owner")))
    child = made(await api.post(path, owned("child", owner)))
    made(await api.post(path, owned("grandchild", child)))
    assert (await api.delete(f"{path}/owner", params={"propagationPolicy": policy})).status == 200

    await api.until(path, lambda listed: not {"owner", "child", "grandchild"} & set(names(listed)))


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}])
async def test_orphaned_dependents_stay(api: Api, namespace: str, options: JSON) -> None:
    """They lose the reference to their owner."""
    path = of_core(namespace, "configmaps")
    owner = made(await api.post(path, config("owner")))
    made(await api.post(path, owned("child", owner)))
    assert (await api.delete(f"{path}/owner", options)).status == 200
    await until_gone(api, path, "owner")
    child = await api.until(f"{path}/child", lambda obj: "ownerReferences" not in obj["metadata"])
    assert "deletionTimestamp" not in child["metadata"]


async def test_a_dependent_of_two_owners_stays(api: Api, namespace: str) -> None:
    """It only loses the reference to the deleted owner."""
    path = of_core(namespace, "configmaps")
    owners = [made(await api.post(path, config(name))) for name in ("one", "two")]
    body = config("child")
    body["metadata"]["ownerReferences"] = [owned("", each)["metadata"]["ownerReferences"][0] for each in owners]
    made(await api.post(path, body))
    await api.delete(f"{path}/one", params={"propagationPolicy": "Background"})

    child = await api.until(f"{path}/child", lambda obj: len(obj["metadata"]["ownerReferences"]) == 1)
    assert child["metadata"]["ownerReferences"][0]["name"] == "two"


async def test_a_job_leaves_its_pods_unless_asked_otherwise(api: Api, namespace: str) -> None:
    """For batch/v1 Jobs the default propagation is Orphan, unlike for every other kind."""
    path = of_group("batch/v1", namespace, "jobs")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]}}
    job = made(await api.post(path, {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}))
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"]}
    pods = of_core(namespace, "pods")
    made(await api.post(pods, pod("p", ownerReferences=[reference])))
    assert (await api.delete(f"{path}/j")).status == 200

    await until_gone(api, path, "j")
    left = await api.until(f"{pods}/p", lambda obj: "ownerReferences" not in obj["metadata"])
    assert "deletionTimestamp" not in left["metadata"]


async def test_a_collection_can_be_deleted_by_selector(api: Api, namespace: str) -> None:
    """The answer lists the deleted objects; all others stay."""
    path = of_core(namespace, "configmaps")
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        made(await api.post(path, config(name, labels={"app": app})))
    reply = await api.delete(path, params={"labelSelector": "app=x"})

    assert (reply.status, reply.json["kind"], names(reply.json)) == (200, "ConfigMapList", ["a", "c"])
    assert set(names((await api.get(path)).json)) & {"a", "b", "c"} == {"b"}
    assert names((await api.delete(path, params={"fieldSelector": "metadata.name=b"})).json) == ["b"]
    assert names((await api.delete(path, params={"labelSelector": "app"})).json) == []


async def test_a_delete_can_be_a_dry_run(api: Api, namespace: str) -> None:
    """`dryRun=All` answers like a delete, for one object and for a collection."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("a", labels={"app": "x"})))
    one = await api.delete(f"{path}/a", params={"dryRun": "All"})
    many = await api.delete(path, params={"dryRun": "All", "labelSelector": "app=x"})

    assert (one.status, one.json["status"]) == (200, "Success")
    assert names(many.json) == ["a"]
    assert not await gone(api, f"{path}/a")

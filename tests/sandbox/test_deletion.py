"""Deletion: grace, finalizers, preconditions, owners, collections and namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sandbox.talking import MERGE, PODS, TEAM, ask, create, first_events, pod

if TYPE_CHECKING:
    import aiohttp

    from k8s.sandbox import Sandbox
    from tests.sandbox.talking import JSON

MAPS = f"{TEAM}/configmaps"


async def there(session: aiohttp.ClientSession, path: str) -> bool:
    """Whether an object is still there."""
    return (await ask(session, "GET", path))[0] == 200


async def test_a_pod_without_a_node_goes_at_once(session: aiohttp.ClientSession) -> None:
    """The answer is the pod itself."""
    made = await create(session, pod("x"))
    code, answer = await ask(session, "DELETE", f"{PODS}/x")

    assert (code, answer["kind"], answer["metadata"]["uid"]) == (200, "Pod", made["metadata"]["uid"])
    assert not await there(session, f"{PODS}/x")


async def test_other_kinds_answer_with_a_status(session: aiohttp.ClientSession) -> None:
    """Success, with name and uid."""
    made = await create(session, {"metadata": {"name": "m"}}, MAPS)
    code, answer = await ask(session, "DELETE", f"{MAPS}/m")

    assert (code, answer["status"]) == (200, "Success")
    assert answer["details"] == {"name": "m", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_a_pod_on_a_node_is_given_its_grace(session: aiohttp.ClientSession) -> None:
    """A second delete can only shorten it; grace 0 ends it."""
    await create(session, pod("x", spec={"nodeName": "n", "terminationGracePeriodSeconds": 40}))
    _, first = await ask(session, "DELETE", f"{PODS}/x")
    assert first["metadata"]["deletionGracePeriodSeconds"] == 40
    assert first["metadata"]["deletionTimestamp"]

    _, longer = await ask(session, "DELETE", f"{PODS}/x", {"gracePeriodSeconds": 90})
    assert longer["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]
    _, shorter = await ask(session, "DELETE", f"{PODS}/x", {"gracePeriodSeconds": 5})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    await ask(session, "DELETE", f"{PODS}/x", {"gracePeriodSeconds": 0})
    assert not await there(session, f"{PODS}/x")


async def test_a_finalizer_keeps_an_object_until_it_is_removed(session: aiohttp.ClientSession) -> None:
    """The last removal deletes it; watchers see a MODIFIED, then a DELETED with the finalizer still on it."""
    made = await create(session, {"metadata": {"name": "m", "finalizers": ["x/y"]}}, MAPS)
    _, marked = await ask(session, "DELETE", f"{MAPS}/m")
    assert marked["metadata"]["deletionTimestamp"]
    assert await there(session, f"{MAPS}/m")

    await ask(session, "PATCH", f"{MAPS}/m", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert not await there(session, f"{MAPS}/m")
    version = made["metadata"]["resourceVersion"]
    found = await first_events(session, f"{MAPS}?watch=1&resourceVersion={version}", 2)
    assert [each["type"] for each in found] == ["MODIFIED", "DELETED"]
    assert found[1]["object"]["metadata"]["finalizers"] == ["x/y"]


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_a_precondition_must_hold(session: aiohttp.ClientSession, field: str) -> None:
    """409 with both values, naming the kind."""
    await create(session, pod("x"))
    code, answer = await ask(session, "DELETE", f"{PODS}/x", {"preconditions": {field: "99999"}})

    assert (code, answer["reason"]) == (409, "Conflict")
    assert answer["message"].startswith('Operation cannot be fulfilled on Pod "x": the ')
    assert "in the precondition (99999) does not match the" in answer["message"]
    assert await there(session, f"{PODS}/x")


def owned(name: str, owner: JSON) -> JSON:
    """A ConfigMap that belongs to another object."""
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                 "uid": owner["metadata"]["uid"]}  # fmt: skip
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_dependents_follow_their_owner(sandbox: Sandbox, session: aiohttp.ClientSession, policy: str) -> None:
    """Background: the owner first; Foreground: the owner last. Both end with nothing."""
    owner = await create(session, {"metadata": {"name": "owner"}}, MAPS)
    child = await create(session, owned("child", owner), MAPS)
    await create(session, owned("grandchild", child), MAPS)
    await ask(session, "DELETE", f"{MAPS}/owner", {"propagationPolicy": policy})

    assert await there(session, f"{MAPS}/owner") == (policy == "Foreground")
    maps = sandbox._core.store.of(sandbox.kind("configmaps"))
    await sandbox.until(lambda: not list(maps.within("team")))


async def test_orphans_stay(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Without the reference to their owner."""
    owner = await create(session, {"metadata": {"name": "owner"}}, MAPS)
    await create(session, owned("child", owner), MAPS)
    await ask(session, "DELETE", f"{MAPS}/owner?propagationPolicy=Orphan")
    maps = sandbox._core.store.of(sandbox.kind("configmaps"))
    await sandbox.until(lambda: maps.get("team", "owner") is None)

    _, child = await ask(session, "GET", f"{MAPS}/child")
    assert "ownerReferences" not in child["metadata"]


async def test_a_collection_is_deleted_by_selector(session: aiohttp.ClientSession) -> None:
    """The answer lists what went."""
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        await create(session, pod(name, labels={"app": app}))
    code, answer = await ask(session, "DELETE", f"{PODS}?labelSelector=app%3Dx")

    assert code == 200
    assert [each["metadata"]["name"] for each in answer["items"]] == ["a", "c"]
    assert [each["metadata"]["name"] for each in (await ask(session, "GET", PODS))[1]["items"]] == ["b"]


async def test_a_namespace_empties_itself_and_takes_nothing_new(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """While it terminates, creates are refused with the cause NamespaceTerminating."""
    await create(session, {"metadata": {"name": "m", "finalizers": ["x/y"]}}, MAPS)
    await create(session, pod("x"))
    _, going = await ask(session, "DELETE", TEAM)
    assert going["status"]["phase"] == "Terminating"
    code, answer = await ask(session, "POST", PODS, pod("y"))

    assert code == 403
    assert answer["message"] == (
        'pods "y" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    assert answer["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    pods = sandbox._core.store.of(sandbox.kind("pods"))
    await sandbox.until(lambda: pods.get("team", "x") is None)
    assert await there(session, TEAM)
    await ask(session, "PATCH", f"{MAPS}/m", {"metadata": {"finalizers": None}}, content_type=MERGE)
    namespaces = sandbox._core.store.of(sandbox.kind("namespaces"))
    await sandbox.until(lambda: namespaces.get("", "team") is None)


async def test_an_eviction_deletes_a_pod(session: aiohttp.ClientSession) -> None:
    """Through its subresource."""
    await create(session, pod("x"))
    code, _ = await ask(session, "POST", f"{PODS}/x/eviction", {"metadata": {"name": "x"}})

    assert code == 201
    assert not await there(session, f"{PODS}/x")


async def test_a_binding_gives_a_pod_its_node(session: aiohttp.ClientSession) -> None:
    """Which no plain update may do."""
    await create(session, pod("x"))
    body = {"metadata": {"name": "x"}, "target": {"kind": "Node", "name": "n"}}
    code, _ = await ask(session, "POST", f"{PODS}/x/binding", body)

    assert code == 201
    assert (await ask(session, "GET", f"{PODS}/x"))[1]["spec"]["nodeName"] == "n"

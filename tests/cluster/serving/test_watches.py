"""Watches: what they send, from which version on, and how they end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.cluster.objects import JSON, made, of_core, secret
from tests.cluster.talking import MERGE, Api

INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


async def take(events: AsyncIterator[JSON], count: int) -> list[JSON]:
    return [await anext(events) for _ in range(count)]


def told(events: list[JSON]) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"].get("name", "")) for each in events]


async def streamed(api: Api, path: str, **params: str) -> list[JSON]:
    """All events of a watch that ends after ``timeoutSeconds``, by default 1."""
    reply = await api.get(path, params={"watch": "1", "timeoutSeconds": "1", **params})
    assert reply.status == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


async def version_of(api: Api, path: str) -> str:
    version: str = (await api.get(path)).json["metadata"]["resourceVersion"]
    return version


@asynccontextmanager
async def watched(api: Api, path: str, **params: str) -> AsyncIterator[AsyncIterator[JSON]]:
    async with api.watch(path, {"resourceVersion": await version_of(api, path), **params}) as events:
        yield events


async def test_a_watch_sends_every_change_in_order(api: Api, namespace: str) -> None:
    """ADDED, MODIFIED, DELETED, each with the whole object and a rising version."""
    path = of_core(namespace, "secrets")
    async with watched(api, path) as events:
        made(await api.post(path, secret("a", {"k": "MQ=="})))
        made(await api.patch(f"{path}/a", {"data": {"k": "Mg=="}}, MERGE))
        made(await api.post(path, secret("b")))
        await api.delete(f"{path}/a")
        found = await take(events, 4)

    assert told(found) == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert [each["object"].get("data") for each in found] == [{"k": "MQ=="}, {"k": "Mg=="}, None, {"k": "Mg=="}]
    assert found[0]["object"]["kind"] == "Secret"
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in found]
    assert versions == sorted(set(versions))


async def test_a_watch_event_has_the_version_of_the_answer(api: Api, namespace: str) -> None:
    """The object in a watch event equals the answer to the write."""
    path = of_core(namespace, "secrets")
    async with watched(api, path) as events:
        answer = made(await api.post(path, secret("a")))
        assert (await anext(events))["object"] == answer


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_without_a_version_starts_with_all_objects(api: Api, namespace: str, version: str) -> None:
    """Each existing object as ADDED, then the changes."""
    path = of_core(namespace, "secrets")
    for name in "ba":
        made(await api.post(path, secret(name)))
    await api.until(path, lambda listed: len(listed["items"]) == 2)
    async with api.watch(path, {"resourceVersion": version}) as events:
        first = await take(events, 2)
        made(await api.post(path, secret("c")))
        later = await anext(events)

    assert sorted(told(first)) == [("ADDED", "a"), ("ADDED", "b")]
    assert told([later]) == [("ADDED", "c")]


async def test_a_watch_resumes_after_a_version(api: Api, namespace: str) -> None:
    """It gets exactly the later events, deletes included."""
    path = of_core(namespace, "secrets")
    version = made(await api.post(path, secret("a")))["metadata"]["resourceVersion"]
    made(await api.post(path, secret("b")))
    await api.delete(f"{path}/a")
    async with api.watch(path, {"resourceVersion": version}) as events:
        assert told(await take(events, 2)) == [("ADDED", "b"), ("DELETED", "a")]


async def test_a_watch_of_one_name_sees_no_other_objects(api: Api, namespace: str) -> None:
    """With `fieldSelector=metadata.name=b`."""
    path = of_core(namespace, "secrets")
    async with watched(api, path, fieldSelector="metadata.name=b") as events:
        for name in "abc":
            made(await api.post(path, secret(name)))
        await api.delete(f"{path}/c")
        await api.delete(f"{path}/b")

        assert told(await take(events, 2)) == [("ADDED", "b"), ("DELETED", "b")]


async def test_an_object_can_enter_and_leave_a_selection(api: Api, namespace: str) -> None:
    """A change of labels is ADDED for watches that select the new labels and DELETED for those of the old ones."""
    path = of_core(namespace, "secrets")
    made(await api.post(path, secret("a", labels={"app": "y"})))
    async with watched(api, path, labelSelector="app=x") as events:
        for label in ("x", "y"):
            made(await api.patch(f"{path}/a", {"metadata": {"labels": {"app": label}}}, MERGE))
        entered, left = await take(events, 2)

    assert told([entered, left]) == [("ADDED", "a"), ("DELETED", "a")]
    assert left["object"]["metadata"]["labels"] == {"app": "x"}
    assert int(left["object"]["metadata"]["resourceVersion"]) > int(entered["object"]["metadata"]["resourceVersion"])


async def test_a_watch_of_all_namespaces_sees_all_objects(api: Api, namespace: str) -> None:
    """With no namespace in the path."""
    async with watched(api, "/api/v1/secrets", fieldSelector=f"metadata.namespace={namespace}") as events:
        made(await api.post(of_core("default", "secrets"), secret(f"w-{namespace}")))
        made(await api.post(of_core(namespace, "secrets"), secret("a")))
        found = await anext(events)
    await api.delete(of_core("default", "secrets", f"w-{namespace}"))

    assert (found["object"]["metadata"]["namespace"], found["object"]["metadata"]["name"]) == (namespace, "a")


@pytest.mark.long
async def test_a_watch_ends_after_its_timeout(api: Api, namespace: str) -> None:
    """`timeoutSeconds=1`: the stream ends in order, without a final event."""
    path = of_core(namespace, "secrets")
    version = await version_of(api, path)

    assert await streamed(api, path, resourceVersion=version) == []


@pytest.mark.long
async def test_a_watch_with_bookmarks_gets_one_before_its_end(api: Api, namespace: str) -> None:
    """If there were changes that it does not select. It has a kind and a version to resume from."""
    path = of_core(namespace, "secrets")
    params = {"fieldSelector": "metadata.name=none", "allowWatchBookmarks": "true", "timeoutSeconds": "10"}
    async with watched(api, path, **params) as events:
        version = made(await api.post(path, secret("a")))["metadata"]["resourceVersion"]
        found = [await anext(events)]
        while int(found[-1]["object"]["metadata"]["resourceVersion"]) < int(version):
            found.append(await anext(events))

    for each in found:
        bookmark = each["object"]
        assert each["type"] == "BOOKMARK"
        assert (bookmark["kind"], bookmark["apiVersion"]) == ("Secret", "v1")
        assert "name" not in bookmark["metadata"]


async def test_a_watch_list_sends_all_objects_and_then_a_bookmark(api: Api, namespace: str) -> None:
    """As client-go's WatchList asks: the objects, a bookmark annotated `k8s.io/initial-events-end`, then changes."""
    path = of_core(namespace, "secrets")
    newest = ""
    for name in "ba":
        newest = made(await api.post(path, secret(name)))["metadata"]["resourceVersion"]
    async with api.watch(path, {**INITIAL, "allowWatchBookmarks": "true"}) as events:
        first = await take(events, 3)
        made(await api.post(path, secret("c")))
        later = await anext(events)

    assert sorted(told(first[:2])) == [("ADDED", "a"), ("ADDED", "b")]
    assert first[2]["type"] == "BOOKMARK"
    metadata = first[2]["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(metadata["resourceVersion"]) >= int(newest)
    assert told([later]) == [("ADDED", "c")]


async def test_an_empty_watch_list_starts_with_the_bookmark(api: Api, namespace: str) -> None:
    """So a client knows at once that there are no objects."""
    async with api.watch(of_core(namespace, "secrets"), {**INITIAL, "allowWatchBookmarks": "true"}) as events:
        first = await anext(events)

    assert first["type"] == "BOOKMARK"
    assert first["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_list_obeys_its_selectors(api: Api, namespace: str) -> None:
    """Only matching objects are sent; the bookmark follows them."""
    path = of_core(namespace, "secrets")
    for name in "ab":
        made(await api.post(path, secret(name)))
    params = {**INITIAL, "allowWatchBookmarks": "true", "fieldSelector": "metadata.name=b"}
    async with api.watch(path, params) as events:
        found = await take(events, 2)

    assert told(found) == [("ADDED", "b"), ("BOOKMARK", "")]


@pytest.mark.long
async def test_a_watch_from_a_future_version_waits(api: Api, namespace: str) -> None:
    """It gets no event and no error until its timeout."""
    assert await streamed(api, of_core(namespace, "secrets"), resourceVersion="999999999") == []

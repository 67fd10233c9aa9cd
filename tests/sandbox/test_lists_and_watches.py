"""Lists with selectors and pages; watches that resume, bookmark, and say when it is too late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from k8s.sandbox import Sandbox
from tests.sandbox.talking import MERGE, PODS, QUOTAS, TEAM, ask, create, events, first_events, pod

if TYPE_CHECKING:
    from tests.sandbox.talking import JSON

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def names(session: aiohttp.ClientSession, query: str) -> list[str]:
    """Names of the pods that a list gives."""
    code, found = await ask(session, "GET", f"{PODS}?{query}")
    assert code == 200, found
    return [each["metadata"]["name"] for each in found["items"]]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("labelSelector=app%3Da", ["one"]),
        ("labelSelector=app!%3Da", ["three", "two"]),
        ("labelSelector=app", ["one", "two"]),
        ("labelSelector=!app", ["three"]),
        ("labelSelector=app in (a, b),tier", ["two"]),
        ("labelSelector=app notin (a)", ["three", "two"]),
        ("labelSelector=tier > 1", ["two"]),
        ("fieldSelector=metadata.name%3Dtwo", ["two"]),
        ("fieldSelector=metadata.name!%3Dtwo,status.phase%3DPending", ["one", "three"]),
        ("fieldSelector=status.phase%3DRunning", []),
        ("labelSelector=app&fieldSelector=metadata.namespace%3Dteam", ["one", "two"]),
    ],
)
async def test_selectors_choose(session: aiohttp.ClientSession, query: str, wanted: list[str]) -> None:
    """Equality, sets, existence, comparison, fields; lists are sorted by name."""
    for name, labels in (("one", {"app": "a"}), ("two", {"app": "b", "tier": "2"}), ("three", {})):
        await create(session, pod(name, labels=labels))

    assert await names(session, query) == wanted


async def test_pages_show_one_moment(session: aiohttp.ClientSession) -> None:
    """What changes between two pages does not show."""
    for number in range(5):
        await create(session, pod(f"p{number}"))
    _, first = await ask(session, "GET", f"{PODS}?limit=2")
    await ask(session, "DELETE", f"{PODS}/p3")
    await create(session, pod("p2a"))
    _, second = await ask(session, "GET", f"{PODS}?limit=2&continue={first['metadata']['continue']}")
    _, third = await ask(session, "GET", f"{PODS}?limit=2&continue={second['metadata']['continue']}")

    assert first["metadata"]["remainingItemCount"] == 3
    listed = [each["metadata"]["name"] for page in (first, second, third) for each in page["items"]]
    assert listed == ["p0", "p1", "p2", "p3", "p4"]
    assert "continue" not in third["metadata"]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }


async def test_a_page_token_can_be_too_old(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """410 Expired once the history is gone."""
    for name in "abc":
        await create(session, pod(name))
    _, first = await ask(session, "GET", f"{PODS}?limit=1")
    await create(session, pod("d"))
    sandbox.compact()

    code, answer = await ask(session, "GET", f"{PODS}?limit=1&continue={first['metadata']['continue']}")
    assert (code, answer["reason"]) == (410, "Expired")
    assert answer["message"].startswith("The provided continue parameter is too old")


async def test_a_watch_resumes_where_a_list_ended(session: aiohttp.ClientSession) -> None:
    """Every change once, in order; a pod is marked before it goes."""
    await create(session, pod("before"))
    _, listed = await ask(session, "GET", PODS)
    await create(session, pod("x"))
    await ask(session, "PATCH", f"{PODS}/x", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
    await ask(session, "DELETE", f"{PODS}/x")
    version = listed["metadata"]["resourceVersion"]
    found = await first_events(session, f"{PODS}?watch=1&resourceVersion={version}", 4)

    assert [(each["type"], each["object"]["metadata"].get("deletionGracePeriodSeconds")) for each in found] == [
        ("ADDED", None), ("MODIFIED", None), ("MODIFIED", 0), ("DELETED", 0),
    ]  # fmt: skip
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in found]
    assert versions == sorted(versions)
    assert versions[0] > int(version)


async def test_a_watch_from_nowhere_starts_with_what_is_there(session: aiohttp.ClientSession) -> None:
    """As synthetic ADDED events."""
    await create(session, pod("a"))
    await create(session, pod("b"))

    found = await first_events(session, f"{PODS}?watch=true", 2)
    assert [each["object"]["metadata"]["name"] for each in found] == ["a", "b"]


async def test_a_watch_from_a_forgotten_version_says_expired_in_the_stream(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """HTTP 200, then an ERROR event with code 410."""
    await create(session, pod("a"))
    sandbox.compact()

    (found,) = [each async for each in events(session, f"{PODS}?watch=1&resourceVersion=1")]
    assert (found["type"], found["object"]["code"], found["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_initial_events_end_with_a_bookmark(session: aiohttp.ClientSession) -> None:
    """As client-go's WatchList asks."""
    await create(session, pod("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    added, bookmark = await first_events(session, f"{PODS}?{query}", 2)

    assert (added["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["kind"] == "Pod"
    version = bookmark["object"]["metadata"]["resourceVersion"]
    await create(session, pod("b"))
    (after,) = await first_events(session, f"{PODS}?watch=1&resourceVersion={version}", 1)
    assert after["object"]["metadata"]["name"] == "b"


async def test_bookmarks_come_to_those_who_ask() -> None:
    """With the newest version, at intervals."""
    async with Sandbox(bookmark_every=0.05) as sandbox, aiohttp.ClientSession(sandbox.url) as session:
        sandbox.create_namespace("team")
        sandbox.create_namespace("later")
        (found,) = await first_events(session, f"{PODS}?watch=1&resourceVersion=1&allowWatchBookmarks=1", 1)

        assert found["type"] == "BOOKMARK"
        assert int(found["object"]["metadata"]["resourceVersion"]) == sandbox._core.store.version


async def test_objects_enter_and_leave_a_selection(session: aiohttp.ClientSession) -> None:
    """A change of labels is ADDED or DELETED to a watch with a selector."""
    _, listed = await ask(session, "GET", PODS)
    await create(session, pod("x"))
    for value in ("yes", "yes-again", None):
        body = {"metadata": {"labels": {"in": value and "yes", "other": value}}}
        await ask(session, "PATCH", f"{PODS}/x", body, content_type=MERGE)
    query = f"watch=1&labelSelector=in%3Dyes&resourceVersion={listed['metadata']['resourceVersion']}"

    found = await first_events(session, f"{PODS}?{query}", 3)
    assert [each["type"] for each in found] == ["ADDED", "MODIFIED", "DELETED"]


async def test_a_watch_ends_when_it_said_so(session: aiohttp.ClientSession) -> None:
    """``timeoutSeconds``."""
    started = asyncio.get_running_loop().time()

    assert [each async for each in events(session, f"{PODS}?watch=1&timeoutSeconds=1&resourceVersion=0")] == []
    assert 0.9 <= asyncio.get_running_loop().time() - started < 5


async def test_many_watchers_see_the_same(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """All events, in the same order, of all namespaces or of one."""
    sandbox.create_namespace("other")
    version = sandbox._core.store.version

    async def watched(path: str, count: int) -> list[str]:
        found = await first_events(session, f"{path}?watch=1&resourceVersion={version}", count)
        return [each["object"]["metadata"]["name"] for each in found]

    watching = [asyncio.create_task(watched("/api/v1/pods", 40)) for _ in range(3)]
    watching.append(asyncio.create_task(watched("/api/v1/namespaces/other/pods", 20)))
    for number in range(20):
        await create(session, pod(f"a{number}"))
        await create(session, pod(f"b{number}"), "/api/v1/namespaces/other/pods")
    *everything, other = await asyncio.gather(*watching)

    assert everything[0] == everything[1] == everything[2] == [f"{n}{i}" for i in range(20) for n in "ab"]
    assert other == [f"b{number}" for number in range(20)]


async def test_an_event_may_come_after_the_answer() -> None:
    """As often as asked for; nothing is lost and nothing overtakes."""
    async with Sandbox(late_events=1, late_event_max=0.05) as sandbox, aiohttp.ClientSession(sandbox.url) as session:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "9"})
        answered: list[str] = []
        seen: list[tuple[str, str]] = []
        version = sandbox._core.store.version

        async def watch() -> None:
            async for event in events(session, f"{QUOTAS}?watch=1&resourceVersion={version}"):
                seen.append((event["object"]["status"]["used"]["pods"], answered[-1] if answered else ""))
                if len(seen) == 3:
                    return

        watching = asyncio.create_task(watch())
        for number in range(3):
            await create(session, pod(f"p{number}"))
            answered.append(str(number))
        await watching

        assert [count for count, _ in seen] == ["1", "2", "3"]
        assert seen[0][1] != ""


async def test_a_table_has_columns_and_rows(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Lists, single objects and watches, as ``kubectl get`` asks for them."""
    await create(session, pod("a"))
    _, listed = await ask(session, "GET", PODS, accept=TABLE)
    _, single = await ask(session, "GET", f"{PODS}/a", accept=TABLE)

    columns = [(column["name"], column["priority"]) for column in listed["columnDefinitions"]]
    assert columns[:5] == [("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0)]
    assert columns[5:] == [("IP", 1), ("Node", 1), ("Nominated Node", 1), ("Readiness Gates", 1)]
    assert listed["rows"][0]["cells"][:4] == ["a", "0/1", "Pending", "0"]
    assert listed["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert (single["kind"], single["rows"][0]["cells"][0]) == ("Table", "a")
    async with session.get(f"{PODS}?watch=1&timeoutSeconds=1", headers={"Accept": TABLE}) as answer:
        lines = (await answer.text()).splitlines()
    assert '"kind":"Table"' in lines[0]
    sandbox.create_quota("team", "q", {"pods": "3", "limits.cpu": "2"})
    _, quotas = await ask(session, "GET", QUOTAS, accept=TABLE)
    assert quotas["rows"][0]["cells"][:3] == ["q", "pods: 1/3", "limits.cpu: 0/2"]


async def test_metadata_alone_can_be_asked_for(session: aiohttp.ClientSession) -> None:
    """PartialObjectMetadata, of one and of many."""
    await create(session, {"metadata": {"name": "m"}, "data": {"a": "b"}}, f"{TEAM}/configmaps")
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    accepts = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    _, one = await ask(session, "GET", f"{TEAM}/configmaps/m", accept=accept)
    _, many = await ask(session, "GET", f"{TEAM}/configmaps", accept=accepts)

    bare: JSON = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": one["metadata"]}
    assert one == bare
    assert many["items"] == [bare]

"""The history of the sandbox: it can be compacted, its events delayed, and the interval of bookmarks chosen."""

from __future__ import annotations

import asyncio

import aiohttp

from backoff_ctrl.k8s.lab.sandbox import Sandbox
from tests.sandbox.talking import PODS, QUOTAS, ask, create, events, first_events, pod


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


async def test_a_watch_from_a_forgotten_version_says_expired_in_the_stream(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """HTTP 200, then an ERROR event with code 410."""
    await create(session, pod("a"))
    sandbox.compact()

    (found,) = [each async for each in events(session, f"{PODS}?watch=1&resourceVersion=1")]
    assert (found["type"], found["object"]["code"], found["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_bookmarks_come_to_those_who_ask() -> None:
    """With the newest version, at intervals."""
    async with Sandbox(bookmark_every=0.05) as sandbox, aiohttp.ClientSession(sandbox.url) as session:
        sandbox.create_namespace("team")
        sandbox.create_namespace("later")
        _, listed = await ask(session, "GET", PODS)
        (found,) = await first_events(session, f"{PODS}?watch=1&resourceVersion=1&allowWatchBookmarks=1", 1)

        assert found["type"] == "BOOKMARK"
        assert int(found["object"]["metadata"]["resourceVersion"]) >= int(listed["metadata"]["resourceVersion"])


async def test_an_event_may_come_after_the_answer() -> None:
    """As often as configured; no event is lost or overtakes another."""
    for longest in (1, 5, 20):  # a slow machine may need more than a second to answer
        seen = await late_events(longest)
        assert [count for count, _ in seen] == ["1", "2", "3"]
        if seen[0][1] != "":
            return
    raise AssertionError("the first event was never late")


async def late_events(longest: float) -> list[tuple[str, str]]:
    """Three creates, and what a watch of their quota saw: ``used``, and the last create answered by then."""
    async with Sandbox(late_events=1, late_event_max=longest) as sandbox, aiohttp.ClientSession(sandbox.url) as session:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "9"})
        answered: list[str] = []
        seen: list[tuple[str, str]] = []
        _, listed = await ask(session, "GET", QUOTAS)
        version = listed["metadata"]["resourceVersion"]

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
        return seen

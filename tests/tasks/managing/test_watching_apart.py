"""One watch for all namespaces; where that is forbidden, one for each; where that is too, steps have to read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.bounded_json import Trim
from backoff_ctrl.k8s.kube.answers.objects import Object, object_of
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import WatchBrokenError, WatchedKind, WatchForbiddenError
from backoff_ctrl.k8s.kube.watching.status import WatchRecord
from backoff_ctrl.k8s.lab.replay.virtual_time import run_virtual
from backoff_ctrl.k8s.tasks.plugins.following import KindWatch
from tests.kit.patience import PATIENCE
from tests.kit.watch_script import elapse

PODS = WatchedKind("/api/v1", "pods", frozenset({"Pod"}), labels="ours")


def pod(name: str, version: int, namespace: str = "team") -> dict[str, Any]:
    about = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(version), "managedFields": [{}]}
    return {"metadata": about}


class Server(ClusterSource):
    """An API server that lets some places be listed, and whose streams a test writes and breaks."""

    def __init__(self, *allowed: str | None) -> None:
        self.allowed = set(allowed)
        self.pods = [pod("a", 1), pod("b", 2, "other")]
        self.lists: list[str | None] = []
        self.stream: asyncio.Queue[Any] = asyncio.Queue()

    async def is_served(self, group: str) -> bool:
        return True

    async def pages(
        self, kind: WatchedKind, namespace: str | None, trim: Trim | None = None
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        self.lists.append(namespace)
        if namespace not in self.allowed:
            raise WatchForbiddenError("403: no")
        items = [each for each in self.pods if namespace in (None, each["metadata"]["namespace"])]
        yield {"metadata": {"resourceVersion": "10"}, "items": [trim(each) if trim else each for each in items]}

    async def watch(
        self, kind: WatchedKind, namespace: str | None, version: str, trim: Trim | None = None
    ) -> AsyncGenerator[object, None]:
        while True:
            event = await self.stream.get()
            if isinstance(event, Exception):
                raise event
            yield event


class Watched:
    """A watch of a server, and what it told."""

    def __init__(self, server: Server) -> None:
        self.told: list[tuple[str, bool]] = []
        self._news = asyncio.Event()
        made = ("v1", "Pod")
        self.watch = KindWatch(server, PODS, made, self._changed, WatchRecord(), random.Random(1))

    def _changed(self, found: Object, gone: bool) -> None:
        self.told.append((found.name, gone))
        self._news.set()

    async def until_told(self, *expected: tuple[str, bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.told != list(expected):
                self._news.clear()
                await self._news.wait()


async def turns(holds: Callable[[], bool]) -> None:
    """Let the watch take its turns until this holds: all that it waits for is there."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come about")


async def test_one_watch_serves_all_namespaces_and_tells_each_change_once() -> None:
    server = Server(None)
    watched = Watched(server)
    watched.watch.need("team")
    watched.watch.need("other")
    assert not watched.watch.fed("team")
    await watched.until_told(("a", False), ("b", False))
    await turns(watched.watch.is_fed)
    found = watched.watch.find("team", "a")
    assert found is not None
    assert (found.body["kind"], "managedFields" in found.body["metadata"]) == ("Pod", False)
    server.stream.put_nowait({"type": "MODIFIED", "object": {"kind": "Pod", **pod("a", 12)}})
    server.stream.put_nowait({"type": "MODIFIED", "object": {"kind": "Pod", **pod("a", 11)}})  # late
    server.stream.put_nowait({"type": "DELETED", "object": {"kind": "Pod", **pod("b", 13, "other")}})
    await watched.until_told(("a", False), ("b", False), ("a", False), ("b", True))
    assert watched.watch.find("other", "b") is None
    assert server.lists == [None]
    await watched.watch.aclose()


async def test_a_lost_watch_shows_nothing_until_it_has_listed_again() -> None:
    """What was seen may be wrong by now: who asks has to read."""
    server = Server(None)
    watched = Watched(server)
    watched.watch.need("team")
    await watched.until_told(("a", False), ("b", False))
    server.allowed.clear()
    server.stream.put_nowait(WatchBrokenError("the connection broke"))
    await turns(lambda: not watched.watch.fed("team"))
    assert watched.watch.find("team", "a") is None
    server.pods = [pod("a", 20)]
    server.allowed.add(None)
    await watched.until_told(("a", False), ("b", False), ("a", False), ("b", True))
    assert watched.watch.find("team", "a") is not None
    await watched.watch.aclose()


async def test_where_all_together_are_forbidden_each_namespace_in_use_is_watched() -> None:
    server = Server("team")
    watched = Watched(server)
    watched.watch.need("team")
    watched.watch.need("other")
    await watched.until_told(("a", False))
    await turns(lambda: watched.watch.fed("team"))
    assert not watched.watch.fed("other")
    assert not watched.watch.is_fed()
    await watched.watch.aclose()


def test_a_refusal_that_lasts_is_said_once_for_each_place(caplog: pytest.LogCaptureFixture) -> None:
    """The first one is not: a server that has just started refuses everything."""

    async def main() -> None:
        watched = Watched(Server())
        watched.watch.need("team")
        await elapse(0.5)
        assert caplog.text == ""
        await elapse(500)
        await watched.watch.aclose()

    run_virtual(main())

    said = "pods in {} can't be watched, each step reads its object: 403: no"
    assert caplog.messages == [said.format("all namespaces"), said.format("team")]


async def test_what_an_answer_showed_outlives_a_list_that_is_older() -> None:
    server = Server(None)
    watched = Watched(server)
    watched.watch.need("team")
    watched.watch.note(object_of(pod("made", 30)))
    await watched.until_told(("made", False), ("a", False), ("b", False))
    await turns(lambda: watched.watch.fed("team"))
    assert watched.watch.find("team", "made") is not None
    await watched.watch.aclose()

"""client-go informers, as controllers use them, get the same events from both servers."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.cluster.kubectl.following import Informers, Tap, informers
from tests.cluster.talking import MERGE, Api

pytestmark = pytest.mark.go


class Scene:
    """One server, a namespace on it, and informers that follow it through a tap."""

    def __init__(self, api: Api, namespace: str, tap: Tap, told: Informers) -> None:
        self.api = api
        self.tap = tap
        self.told = told
        self.place = f"/api/v1/namespaces/{namespace}"

    async def create(self, name: str) -> None:
        container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "100m"}}}
        made = await self.api.post(
            f"{self.place}/pods", {"metadata": {"name": name}, "spec": {"containers": [container]}}
        )
        assert made.status == 201, made.text

    async def change(self, name: str, label: str) -> None:
        body = {"metadata": {"labels": {"to": label}}}
        assert (await self.api.patch(f"{self.place}/pods/{name}", body, MERGE)).status == 200

    async def begin(self, name: str) -> None:
        body = {"status": {"phase": "Running"}}
        assert (await self.api.patch(f"{self.place}/pods/{name}/status", body, MERGE)).status == 200

    async def delete(self, name: str) -> None:
        assert (await self.api.delete(f"{self.place}/pods/{name}", {"gracePeriodSeconds": 0})).status == 200

    async def charged(self, pods: str) -> None:
        """Wait until the quota counts this number of pods and the informers have seen it."""
        await self.api.until(
            f"{self.place}/resourcequotas/q", lambda q: q.get("status", {}).get("used", {}).get("pods") == pods
        )
        await self.told.until(lambda lines: [x["used"].get("pods") for x in lines if "used" in x][-1:] == [pods])


async def _scene(stack: AsyncExitStack, program: Path, server: Server, *, streaming: bool) -> Scene:
    api = await stack.enter_async_context(Api(server))
    namespace = f"test-{secrets.token_hex(5)}"
    assert (await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})).status == 201
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9", "requests.cpu": "2"}}}
    place = f"/api/v1/namespaces/{namespace}"
    assert (await api.post(f"{place}/resourcequotas", quota)).status == 201
    await api.until(f"{place}/resourcequotas/q", lambda q: "hard" in q.get("status", {}))
    tap = await stack.enter_async_context(Tap(server).tapped())
    told = await stack.enter_async_context(informers(program, server, namespace, streaming=streaming, url=tap.url))
    return Scene(api, namespace, tap, told)


def _is_synced(lines: list[dict[str, object]]) -> bool:
    return {"what": "synced"} in lines


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "listing"])
async def test_informers_see_the_same_sequence(
    sandbox: Server, kubernetes: Server, binaries: Binaries, streaming: bool
) -> None:
    """The existing objects, then each change in order, whether they start with a list or with WatchList streaming."""
    stories = []
    for server in (kubernetes, sandbox):
        async with AsyncExitStack() as stack:
            scene = await _scene(stack, binaries.informers, server, streaming=streaming)
            await scene.told.until(_is_synced)
            await scene.create("a")
            await scene.charged("1")
            await scene.change("a", "x")
            await scene.begin("a")
            await scene.create("b")
            await scene.charged("2")
            await scene.delete("a")
            await scene.told.seen("delete", "a")
            await scene.charged("1")
            told = scene.told
            stories.append((told.story("pods"), told.story("resourcequotas"), told.asked("pods")))

    assert stories[1] == stories[0]
    pods, quotas, asked = stories[0]
    assert [(line["what"], line["name"]) for line in pods][:4] == [
        ("add", "a"),
        ("update", "a"),
        ("update", "a"),
        ("add", "b"),
    ]
    assert quotas[0]["initial"]
    assert asked == (["stream"] if streaming else ["list", "watch"])


async def test_informers_resume_where_a_connection_broke(
    sandbox: Server, kubernetes: Server, binaries: Binaries
) -> None:
    """What changed in between arrives as single events, without a new list."""
    stories = []
    for server in (kubernetes, sandbox):
        async with AsyncExitStack() as stack:
            scene = await _scene(stack, binaries.informers, server, streaming=True)
            await scene.told.until(_is_synced)
            await scene.create("a")
            await scene.told.seen("add", "a")
            scene.tap.shut()
            await scene.change("a", "x")
            await scene.create("b")
            await scene.change("a", "y")
            scene.tap.open()
            await scene.told.seen("update", "a", 2)
            stories.append((scene.told.story("pods"), scene.told.asked("pods")))

    assert stories[1] == stories[0]
    assert [line["name"] for line in stories[0][0]] == ["a", "a", "b", "a"]
    assert stories[0][1] == ["stream", "watch"]


@pytest.mark.long
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "listing"])
async def test_informers_survive_a_compacted_history(
    sandbox: Server, breakable: Bed, binaries: Binaries, streaming: bool
) -> None:
    """After a 410 they list again: they notice objects that are gone, and see changed ones as they are now."""
    stories = []

    def restart() -> None:
        breakable.stop("kube-apiserver", grace=0)
        breakable.start("kube-apiserver")

    forgets: list[tuple[Server, Callable[[], None] | None]] = [(breakable.server, restart), (sandbox, None)]
    for server, forget in forgets:
        async with AsyncExitStack() as stack:
            scene = await _scene(stack, binaries.informers, server, streaming=streaming)
            await scene.told.until(_is_synced)
            for name in ("a", "b"):
                await scene.create(name)
                await scene.told.seen("add", name)
            scene.tap.shut()
            await scene.delete("a")
            await scene.change("b", "x")
            await scene.create("c")
            if forget:
                forget()
            else:
                assert (await scene.api.post("/sandbox/compact", {})).status == 200
            scene.tap.open()
            await scene.told.seen("delete", "a", guessed=True)
            await scene.told.seen("add", "c")
            await scene.told.seen("update", "b", labels={"to": "x"})
            await scene.told.asks("pods", ["stream"] if streaming else ["list", "watch"])
            stories.append((sorted(map(str, scene.told.story("pods")[2:])), scene.told.asked("pods")))

    assert stories[1] == stories[0]
    anew = stories[0][1][1:]
    assert anew == (["watch", "stream"] if streaming else ["watch", "watch", "list", "watch"])

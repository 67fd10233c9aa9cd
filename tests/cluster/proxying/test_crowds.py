"""Many held creates and the end of things, through the real command: the API server's, the proxy's, a crash.

``make held`` runs these with 1,000 creates instead of 100, and prints what each takes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.control_plane.bed import API, Bed
from tests.cluster.faults.storm import hung_up
from tests.cluster.proxying.crowd import Crowd, free_port, resident_kb
from tests.cluster.proxying.sidecar import Proxy, proxy
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE

COUNT: Final = int(os.environ.get("BACKOFF_TEST_HELD", "100"))
GROUP: Final = COUNT // 10
IN_FLIGHT: Final = 64
"""How far a pod may be stored from its place in line: so many creates are on their way at a time."""
MEMORY_BAR: Final = 20.0
PATIENT: Final = ("--hold=600", "--hold-total=600", "--max-connections=4000")


class Scene:
    """A namespace whose quota of pods is full, a crowd, and what the server has of it."""

    def __init__(self, api: Api, crowd: Crowd) -> None:
        self.api = api
        self.crowd = crowd
        self._base = f"/api/v1/namespaces/{crowd.namespace}"

    async def room_for(self, pods: int) -> None:
        reply = await self.api.patch(f"{self._base}/resourcequotas/q", {"spec": {"hard": {"pods": str(pods)}}}, MERGE)
        assert reply.status == 200, reply.text

    async def pods(self) -> Counter[str]:
        reply = await self.api.get(f"{self._base}/pods")
        labels = [each["metadata"]["labels"] for each in reply.json["items"] if each["metadata"].get("labels")]
        return Counter(each["creator"] for each in labels)

    async def all_once(self) -> None:
        """Assert that each creator has its pod, and none has two."""
        assert await self.pods() == Counter(map(str, range(self.crowd.count)))


@asynccontextmanager
async def _scene(bed: Bed, *, named: bool = False) -> AsyncIterator[Scene]:
    server = bed.server
    async with Api(server) as api:
        namespace = f"crowd-{os.urandom(4).hex()}"
        assert (await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})).status == 201
        room = Room(api, namespace)
        await room.quota("q", {"pods": "1"})
        await room.create("pods", pod("first"))
        async with Crowd(COUNT, namespace, server.token("creator"), named=named) as crowd:
            yield Scene(api, crowd)


async def _all_held(scene: Scene, running: Proxy) -> tuple[list[asyncio.Task[None]], float]:
    """Let the crowd come in groups, so that their order is known, until all wait; return the kB that each takes.

    The first group is not counted: with it the proxy begins to watch, and loads what it needs for that.
    """
    tasks: list[asyncio.Task[None]] = []
    first = 0.0
    for start in range(0, COUNT, GROUP):
        tasks += scene.crowd.send(running.url, range(start, min(COUNT, start + GROUP)))
        await scene.crowd.held(running.folder / "proxy.log", len(tasks))
        first = first or await resident_kb(running.process.pid)
    return tasks, (await resident_kb(running.process.pid) - first) / (COUNT - GROUP)


def _proxy(bed: Bed, folder: Path, name: str, port: int = 0) -> Any:
    (folder / name).mkdir()
    return proxy(bed.server.kubeconfig("creator"), folder / name, *PATIENT, f"--listen=127.0.0.1:{port}")


async def _done(tasks: list[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*tasks)


@pytest.mark.long
async def test_all_get_in_in_order_though_the_api_server_restarts(
    breakable: Bed, tmp_path: Path, say: Callable[[str], None]
) -> None:
    """None is lost, none refused, none twice; and each takes little memory while it waits."""
    async with _scene(breakable) as scene, _proxy(breakable, tmp_path, "a") as running:
        tasks, each = await _all_held(scene, running)
        say(f"{COUNT} held creates: {each:.1f} kB each, body included")
        assert COUNT < 1000 or each <= MEMORY_BAR
        breakable.stop(API)
        await asyncio.sleep(1)
        breakable.start(API)
        breakable.renew_controllers()
        await scene.room_for(COUNT + 1)
        await _done(tasks)
        assert Counter(scene.crowd.codes.values()) == {201: COUNT}
        await scene.all_once()
        stored = sorted(scene.crowd.versions, key=scene.crowd.versions.__getitem__)
        far = max(abs(place - number) for place, number in enumerate(stored))
        say(f"{COUNT} held creates, the API server restarted: all in, at most {far} places from their own")
        assert far <= IN_FLIGHT + GROUP
        assert await running.stop() == 0


@pytest.mark.long
async def test_sigterm_hands_all_back_and_their_repeats_get_in(
    breakable: Bed, tmp_path: Path, say: Callable[[str], None]
) -> None:
    """Each is told to come again, the proxy exits with 0, and what comes to the next one is made once."""
    port = free_port()
    async with _scene(breakable) as scene:
        async with _proxy(breakable, tmp_path, "a", port) as running:
            tasks, _ = await _all_held(scene, running)
            began = asyncio.get_running_loop().time()
            assert await running.stop() == 0
            ended = asyncio.get_running_loop().time() - began
            await _done(tasks)
        assert Counter(scene.crowd.codes.values()) == {429: COUNT}
        assert {headers.get("Retry-After") for headers in scene.crowd.headers.values()} == {"5"}, (
            "a restart is over by then"
        )
        assert not await scene.pods()
        say(f"{COUNT} held creates handed back at SIGTERM; the proxy exited with 0 after {ended:.1f} s")
        async with _proxy(breakable, tmp_path, "b", port) as again:
            await scene.room_for(COUNT + 1)
            await _done(scene.crowd.send(again.url, range(COUNT)))
            assert Counter(scene.crowd.codes.values()) == {201: COUNT}
            await scene.all_once()


@pytest.mark.long
async def test_sigkill_and_a_repeat_make_no_second_object(
    breakable: Bed, tmp_path: Path, say: Callable[[str], None]
) -> None:
    """Some were held, some on their way, some answered: what was not answered comes again, and is there once."""
    port = free_port()
    async with _scene(breakable, named=True) as scene:
        async with _proxy(breakable, tmp_path, "a", port) as running:
            tasks, _ = await _all_held(scene, running)
            await scene.room_for(1 + COUNT // 2)
            await scene.crowd.got(COUNT // 4)
            running.process.kill()
            await _done(tasks)
        lost = [number for number, code in scene.crowd.codes.items() if code == 0]
        stored = await scene.pods()
        unheard = sum(str(number) in stored for number in lost)
        assert Counter(scene.crowd.codes.values()) == {201: COUNT - len(lost), 0: len(lost)}
        async with _proxy(breakable, tmp_path, "b", port) as again:
            await scene.room_for(2 * COUNT)  # at a full quota the server does not say that a name is taken
            await _done(scene.crowd.send(again.url, lost))
            repeats = Counter(scene.crowd.codes[number] for number in lost)
            assert repeats == {201: len(lost) - unheard, **({409: unheard} if unheard else {})}
            await scene.all_once()
        say(f"SIGKILL: {len(lost)} of {COUNT} heard nothing, {unheard} of these were stored; repeats: {dict(repeats)}")
    await hung_up()

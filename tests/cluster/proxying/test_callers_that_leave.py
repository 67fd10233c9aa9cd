"""Callers that hang up, pause, give up or outlive a restart, and ask again: none gets two objects."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.cluster.control_plane.servers import Server
from tests.cluster.faults.storm import hung_up
from tests.cluster.proxying.hang_ups import KINDS, hang_up
from tests.cluster.proxying.sidecar import proxy
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

CALLERS = 40
"""Of each kind; ``python -m tests.cluster.proxying.hang_ups`` runs 500."""


@pytest.mark.long
async def test_who_hangs_up_at_a_random_moment_and_asks_again_gets_his_own_object(
    kubernetes: Server, tmp_path: Path
) -> None:
    """Right after the request, within the time of an answer, while the proxy stands still, while the create is held."""
    told = [each async for each in hang_up(kubernetes, tmp_path, CALLERS, seed=1)]
    assert [each.kind for each in told] == [*KINDS]
    assert all(each.good for each in told), "\n".join(map(str, told))
    await hung_up()


GIVES_UP_AFTER: Final = {"ten": 10.0, "short": 1.5, "long": 100.0}
"""Seconds after which each creator gives up a request: fabric8 does so after 10."""
_REFUSED: Final = re.compile(
    r'^apiserver_request_total\{code="403",.*resource="pods",.*verb="POST".*\} (\d+)', re.MULTILINE
)


@dataclass
class Creators:
    """Creators that send their create anew as often as they give up."""

    url: str
    token: str
    gave_up: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GIVES_UP_AFTER, 0))
    order: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def create(self, name: str) -> None:
        headers, patience = {"Authorization": f"Bearer {self.token}"}, aiohttp.ClientTimeout(total=GIVES_UP_AFTER[name])
        async with aiohttp.ClientSession(headers=headers, timeout=patience) as session:
            while True:
                try:
                    async with session.post(self.url, json=pod("", generateName=f"{name}-")) as answer:
                        assert answer.status == 201, await answer.text()
                        break
                except TimeoutError:
                    self.gave_up[name] += 1
                    self.news.set()
        self.order.append(name)

    async def until_given_up(self, name: str) -> None:
        """Wait until a creator has given up once, and the next time begins."""
        while not self.gave_up[name]:
            self.news.clear()
            await self.news.wait()


@pytest.mark.long
async def test_all_get_in_in_order_with_one_object_each(
    kubernetes: Server, real_api: Api, real_namespace: str, tmp_path: Path
) -> None:
    """Whoever gives up after 10 s, or after 1.5, stands where it stood.

    The server refuses no more than it would if all stayed: at most one for each pod that goes, since its admission may
    learn of the room a moment later than whoever watches the quota.
    """
    room = Room(real_api, real_namespace)
    await room.quota("q", {"pods": "1"})
    newest = (await room.create("pods", pod("first")))["metadata"]["name"]
    refused = await _refusals(real_api)
    async with proxy(kubernetes.kubeconfig("creator"), tmp_path, "--hold=60", "--hold-total=60") as running:
        creators = Creators(f"{running.url}{room.path('pods')}", kubernetes.token("creator"))
        tasks = []
        for place, name in enumerate(GIVES_UP_AFTER):
            tasks.append(asyncio.create_task(creators.create(name)))
            await _lines(tmp_path / "proxy.log", place + 1)
        await creators.until_given_up("ten")
        for task in tasks:
            await room.delete("pods", newest, gracePeriodSeconds="0")
            await asyncio.wait_for(task, PATIENCE)
            (newest,) = await _names(real_api, room)
    assert creators.order == [*GIVES_UP_AFTER]
    assert (creators.gave_up["ten"], creators.gave_up["long"]) == (1, 0)
    assert creators.gave_up["short"] >= 6
    assert await _refusals(real_api) - refused <= len(GIVES_UP_AFTER)


async def _names(api: Api, room: Room) -> list[str]:
    listed: list[dict[str, Any]] = (await api.get(room.path("pods"))).json["items"]
    return [each["metadata"]["name"] for each in listed]


async def _refusals(api: Api) -> int:
    """How many creates of pods the server has refused, as it counts them."""
    return sum(map(int, _REFUSED.findall((await api.get("/metrics")).text)))


async def _lines(log: Path, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await asyncio.to_thread(log.read_bytes)).count(b" waits (quota: ") < count:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)

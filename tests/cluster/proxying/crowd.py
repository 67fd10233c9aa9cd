"""Many creators at once behind one proxy, each with one create of its own, sent again as its caller would."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from tests.kit.patience import PATIENCE

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


STARTING: Final = 100
"""Tries of a create that is refused, but not for quota: a kube-apiserver refuses all until it has loaded its roles."""


@dataclass
class Crowd:
    """Creators with a token, in a namespace. Use it as an async context manager."""

    count: int
    namespace: str
    token: str
    codes: dict[int, int] = field(default_factory=dict)
    """What each was answered last; 0: its connection broke."""
    headers: dict[int, Any] = field(default_factory=dict)
    """The headers of those answers."""
    versions: dict[int, int] = field(default_factory=dict)
    """The version at which each pod was stored."""
    named: bool = False
    """Whether all choose their names; else half of them leave that to the server."""

    async def __aenter__(self) -> Self:
        """Open a session with as many connections as it likes."""
        self._news = asyncio.Event()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    def send(self, url: str, numbers: range | list[int]) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._one(url, number)) for number in numbers]

    async def held(self, log: Path, count: int) -> None:
        """Wait until so many creates have begun to wait: each has a line in the proxy's log."""
        async with asyncio.timeout(PATIENCE):
            while (await asyncio.to_thread(log.read_bytes)).count(b" waits (quota: ") < count:  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.02)

    async def got(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.versions) < count:
                self._news.clear()
                await self._news.wait()

    def pod(self, number: int) -> dict[str, Any]:
        named = self.named or number % 2
        metadata: dict[str, Any] = {"name": f"p-{number:04}"} if named else {"generateName": f"p-{number:04}-"}
        spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "busybox:1"}]}
        metadata["labels"] = {"creator": str(number)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    async def _one(self, url: str, number: int) -> None:
        path = f"{url}/api/v1/namespaces/{self.namespace}/pods"
        self.codes[number] = 0
        body: dict[str, Any] = {}
        for _ in range(STARTING):
            try:
                async with self._session.post(path, json=self.pod(number)) as answer:
                    body = await answer.json()
            except aiohttp.ClientError:
                return
            self.codes[number], self.headers[number] = answer.status, answer.headers
            if answer.status != 403 or "exceeded quota" in body.get("message", ""):
                break
            await asyncio.sleep(0.1)  # an API server that has just started knows no roles yet
        if self.codes[number] == 201:
            self.versions[number] = int(body["metadata"]["resourceVersion"])
            self._news.set()


async def resident_kb(process: int) -> float:
    """Return the memory of a process, once it does not change any more."""
    sizes = [0.0, 1.0]
    while sizes[-1] != sizes[-2]:
        statm = await asyncio.to_thread(Path(f"/proc/{process}/statm").read_text)
        sizes.append(int(statm.split()[1]) * _PAGE / 1024)
        await asyncio.sleep(0.5)
    return sizes[-1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])

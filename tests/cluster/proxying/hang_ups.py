"""Callers that hang up at random moments around the send of their create, and then ask for the same again.

``python -m tests.cluster.proxying.hang_ups --callers 500`` runs them through `backoff-ctrl proxy` on a real API server,
with plain names, with ``generateName``, and with bodies that are all equal; it prints a line for each, and exits with 1
unless every caller got an object of its own and none was stored twice.

The moments: 0 to 3 ms after the request; any time within an answer's; while the proxy stands still, by SIGSTOP; and
while a full quota has the create held. A caller goes by a reset or in peace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import Proxy, proxy
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE

KINDS: Final = ("plain names", "generateName", "equal bodies")
MOMENTS: Final = ("at once", "within an answer's time", "while it stands still", "while held")
AT_A_TIME: Final = 16
SOON: Final = 0.003
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER for 0 s: the connection is reset."""


@dataclass
class Told:
    """What became of the callers of one kind."""

    kind: str
    callers: int
    owned: dict[int, str] = field(default_factory=dict)
    """The uid of the object that each got."""
    codes: Counter[int] = field(default_factory=Counter)
    """The last answer of each."""
    wrong: list[str] = field(default_factory=list)
    stored: list[dict[str, Any]] = field(default_factory=list)
    """All pods of the namespace, but the one that fills the quota."""

    @property
    def own(self) -> int:
        """How many callers got an object that exists, and that nobody else got."""
        shared = Counter(self.owned.values())
        there = {each["metadata"]["uid"] for each in self.stored}
        return sum(shared[uid] == 1 and uid in there for uid in self.owned.values())

    @property
    def good(self) -> bool:
        """Whether all got their own, and nothing else was stored."""
        return self.own == self.callers == len(self.stored) and not self.wrong

    def __str__(self) -> str:
        codes = ", ".join(f"{count} times {code}" for code, count in sorted(self.codes.items()))
        twice = len(self.stored) - self.callers
        said = f"{self.kind}: {self.own} of {self.callers} got their own object, {twice} stored too many ({codes})"
        return "\n".join([said, *self.wrong[:5], *self._twice()])

    def _twice(self) -> list[str]:
        """Say of whom more than one is stored, where bodies tell."""
        of = Counter(int(each["metadata"].get("labels", {}).get("number", 0)) for each in self.stored)
        return [
            f"caller {number}, who hung up {MOMENTS[(number - 1) % len(MOMENTS)]}: {count} are stored"
            for number, count in of.items()
            if number and count > 1
        ]


class Callers:
    """Callers of one kind, in a namespace of their own with a quota."""

    def __init__(self, server: Server, api: Api, running: Proxy, kind: str, rng: random.Random) -> None:
        self._room = Room(api, f"hang-ups-{rng.randbytes(4).hex()}")
        self._api = api
        self._proxy = running
        self._token = server.token("creator")
        self._kind = kind
        self._rng = rng
        self._answer_s = 0.0

    async def run(self, count: int) -> Told:
        """Let so many hang up and ask again, a quarter at each moment; return what became of them."""
        told = Told(self._kind, count)
        made = await self._api.post("/api/v1/namespaces", {"metadata": {"name": self._room.namespace}})
        assert made.status == 201, made.text
        await self._room.quota("q", {"pods": str(2 * count + 3)})
        self._answer_s = min([await self._timed(f"first-{number}") for number in range(3)])
        moments = (self._at_once, self._some_time, self._while_it_stands_still, self._while_held)
        async with asyncio.timeout(PATIENCE + count):
            for place, moment in enumerate(moments):
                await moment(range(place + 1, count + 1, len(moments)), told)
        pods = (await self._api.get(self._room.path("pods"))).json["items"]
        told.stored = [each for each in pods if "first" not in str(each["metadata"].get("labels"))]
        return told

    # -- the moments ---------

    async def _at_once(self, numbers: Sequence[int], told: Told) -> None:
        await self._each(numbers, lambda each: self._left_and_back(each, told, self._rng.uniform(0, SOON)))

    async def _some_time(self, numbers: Sequence[int], told: Told) -> None:
        await self._each(
            numbers, lambda each: self._left_and_back(each, told, self._rng.uniform(0, 1.5) * self._answer_s)
        )

    async def _while_it_stands_still(self, numbers: Sequence[int], told: Told) -> None:
        """In groups: it is stopped, all ask and leave, some ask again, and it goes on."""
        for start in range(0, len(numbers), AT_A_TIME):
            os.kill(self._proxy.process.pid, signal.SIGSTOP)
            back = []
            try:
                for each in numbers[start : start + AT_A_TIME]:
                    body = self._body(each)
                    await self._leave(body, 0)
                    if self._rng.random() < 0.5:
                        back.append(asyncio.create_task(self._ask(body, told, each)))
                        await asyncio.sleep(SOON)
                    else:
                        back.append(asyncio.create_task(self._after(0.1 * self._rng.random(), body, told, each)))
            finally:
                os.kill(self._proxy.process.pid, signal.SIGCONT)
            await asyncio.gather(*back)

    async def _while_held(self, numbers: Sequence[int], told: Told) -> None:
        """The quota is full; it is raised while they come and go."""
        await self._hard(1)
        tasks = [asyncio.create_task(self._left_and_back(each, told, self._rng.uniform(0, 0.3))) for each in numbers]
        await asyncio.sleep(0.2)
        await self._hard(2 * told.callers + 3)
        await asyncio.gather(*tasks)

    async def _hard(self, pods: int) -> None:
        reply = await self._api.patch(
            self._room.path("resourcequotas", "q"), {"spec": {"hard": {"pods": str(pods)}}}, MERGE
        )
        assert reply.status == 200, reply.text
        await self._room.admission_is_current()

    async def _each(self, numbers: Sequence[int], one: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        left = iter(numbers)

        async def work() -> None:
            for each in left:
                await one(each)

        await asyncio.gather(*(work() for _ in range(AT_A_TIME)))

    # -- one caller ---------

    async def _left_and_back(self, number: int, told: Told, seconds: float) -> None:
        body = self._body(number)
        await self._leave(body, seconds)
        await self._after(self._rng.choice((0.0, SOON, 0.1)) * self._rng.random(), body, told, number)

    async def _after(self, seconds: float, body: bytes, told: Told, number: int) -> None:
        await asyncio.sleep(seconds)
        await self._ask(body, told, number)

    def _body(self, number: int) -> bytes:
        labels = {} if self._kind == KINDS[2] else {"number": str(number)}
        manifest = pod(
            f"p-{number:04}" if self._kind == KINDS[0] else "", labels=labels, spec={"schedulerName": "nobody"}
        )
        return json.dumps(manifest | {"apiVersion": "v1", "kind": "Pod"}).encode()

    async def _leave(self, body: bytes, seconds: float) -> None:
        connection = await self._sent(body)
        await asyncio.sleep(seconds)
        if self._rng.random() < 2 / 3:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.close()

    async def _timed(self, name: str) -> float:
        manifest = pod(name, labels={"sort": "first"}, spec={"schedulerName": "nobody"})
        began = asyncio.get_running_loop().time()
        await self._ask(json.dumps(manifest | {"apiVersion": "v1", "kind": "Pod"}).encode(), told=None)
        return asyncio.get_running_loop().time() - began

    async def _ask(self, body: bytes, told: Told | None, number: int = 0) -> None:
        code = 429
        found: dict[str, Any] = {}
        while code in (429, 503):
            connection = await self._sent(body)
            try:
                code, found = await _answer(connection)
            finally:
                connection.close()
        if told is None:
            assert code == 201, found
            return
        told.codes[code] += 1
        if code not in (200, 201):
            told.wrong.append(f"caller {number}: {code} {found.get('message')}")
        elif found["metadata"].get("labels", {}).get("number", str(number)) != str(number):
            told.wrong.append(f"caller {number} got {found['metadata']['name']}")
        else:
            told.owned[number] = found["metadata"]["uid"]

    async def _sent(self, body: bytes) -> socket.socket:
        loop = asyncio.get_running_loop()
        place = urlsplit(self._proxy.url)
        connection = socket.socket()
        connection.setblocking(False)
        await loop.sock_connect(connection, (place.hostname, place.port))
        head = (
            f"POST {self._room.path('pods')} HTTP/1.1\r\nHost: proxy\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        await loop.sock_sendall(connection, head.encode() + body)
        return connection


async def _answer(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    loop = asyncio.get_running_loop()
    came = bytearray()
    async with asyncio.timeout(PATIENCE):
        while piece := await loop.sock_recv(connection, 65536):
            came += piece
    head, _, body = bytes(came).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def hang_up(
    server: Server, folder: Path, callers: int, seed: int, kinds: Sequence[str] = KINDS
) -> AsyncIterator[Told]:
    """Run these kinds through one proxy, and yield what became of each."""
    async with Api(server) as api, proxy(server.kubeconfig("creator"), folder) as running:
        for kind in kinds:
            yield await Callers(server, api, running, kind, random.Random(f"{kind} {seed}")).run(callers)


async def _main(callers: int, seed: int, kinds: Sequence[str]) -> bool:
    good = True
    with tempfile.TemporaryDirectory() as folder, Bed(wanted(), kcm_qps=500) as bed:
        async for told in hang_up(bed.server, Path(folder), callers, seed, kinds):
            sys.stdout.write(f"{told}\n")
            sys.stdout.flush()
            good &= told.good
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.proxying.hang_ups", description=__doc__)
    parser.add_argument("--callers", type=int, default=500, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, help="this one alone")
    asked = parser.parse_args()
    sys.exit(0 if asyncio.run(_main(asked.callers, asked.seed, [asked.kind] if asked.kind else KINDS)) else 1)

"""Newcomers that come in the pauses of those who wait: who goes first, and how long room is left idle.

``python -m tests.cluster.proxying.newcomers`` has nine kubectl wait at a full quota of one pod, twenty more come at
random moments, and releases each pod soon after it was made, thirty in all. It prints how often somebody overtook who
had come before, and for how long room was idle while somebody waited; it exits with 1 if anybody overtook. ``--hold 2``
makes everybody pause after each two seconds; without it the sidecar holds kubectl for half a minute at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import proxy
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import Api

WAITING: Final = 9
NEWCOMERS: Final = 20
PATIENCE: Final = 300.0
NEVER: Final = 10**9
_WAITS: Final = re.compile(r"pods \S+/(\S+) waits")


@dataclass
class Account:
    """Who came, who went in, and how long room was idle."""

    came: list[str] = field(default_factory=list)
    """In the order in which they began to wait."""
    went_in: list[str] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def overtakings(self) -> list[str]:
        """Each pair of which the later one went in first. Who did not wait overtook all who did then."""
        came = {name: at for at, name in enumerate(self.came)}
        found = []
        for at, name in enumerate(self.went_in):
            mine = came.get(name, NEVER)
            found += [f"{name} before {other}" for other in self.went_in[at + 1 :] if came.get(other, NEVER) < mine]
        return found

    def __str__(self) -> str:
        idle = sorted(self.idle)
        said = f"{len(self.went_in)} went in, {len(self.overtakings)} overtakings; room was idle for "
        said += f"{idle[len(idle) // 2]:.2f} s each time (median), {idle[-1]:.2f} s at the most"
        return "\n".join([said, *self.overtakings[:5], *self.failed[:5]])


class Race:
    """One run in a namespace of its own."""

    def __init__(self, api: Api, url: str, kubectl: Path, folder: Path) -> None:
        self._room = Room(api, f"newcomers-{os.urandom(4).hex()}")
        self._url = url
        self._kubectl = kubectl
        self._folder = folder
        self.account = Account()

    async def run(self, waiting: int, newcomers: int, rng: random.Random) -> Account:
        """Let them all come, and release room until all were in."""
        room = self._room
        made = await room.api.post("/api/v1/namespaces", {"metadata": {"name": room.namespace}})
        assert made.status == 201, made.text
        await room.quota("q", {"pods": "1"})
        await room.create("pods", pod("first", spec={"schedulerName": "nobody"}))
        callers = []
        for number in range(waiting):
            callers.append(asyncio.create_task(self._ask(f"early-{number}")))
            await self._waits(number + 1)
        late = [self._later(f"late-{number}", rng.uniform(0, newcomers)) for number in range(newcomers)]
        callers += [asyncio.create_task(each) for each in late]
        present = "first"
        for _ in callers:
            await asyncio.sleep(rng.uniform(0.3, 1.2))
            present = await self._release(present)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*callers)
        self.account.came = self._came()
        await room.api.delete(f"/api/v1/namespaces/{room.namespace}")
        return self.account

    def _came(self) -> list[str]:
        log = (self._folder / "proxy.log").read_text()
        return _WAITS.findall(log)

    async def _waits(self, callers: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self._came()) < callers:  # noqa: ASYNC110 - it is another process that says so
                await asyncio.sleep(0.02)

    async def _release(self, present: str) -> str:
        """Delete the pod; return the next one, once it is there."""
        clock = asyncio.get_running_loop().time
        gone = await self._room.api.delete(self._room.path("pods", present) + "?gracePeriodSeconds=0")
        assert gone.status == 200, gone.text
        began = clock()
        somebody_waits = len(self._came()) > len(self.account.went_in)
        async with asyncio.timeout(PATIENCE):
            while not (pods := await self._pods()):  # noqa: ASYNC110 - it is polled as finely as that
                await asyncio.sleep(0.01)
        if somebody_waits:
            self.account.idle.append(clock() - began)
        name = str(pods[0]["metadata"]["name"])
        self.account.went_in.append(name)
        return name

    async def _pods(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await self._room.api.get(self._room.path("pods"))).json["items"]
        return listed

    async def _later(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._ask(name)

    async def _ask(self, name: str) -> None:
        file = self._folder / f"{name}.json"
        manifest = pod(name, spec={"schedulerName": "nobody"})
        file.write_text(json.dumps(manifest | {"apiVersion": "v1", "kind": "Pod"}))
        command = [str(self._kubectl), "--server", self._url, f"--namespace={self._room.namespace}", "create"]
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        command += ["-f", str(file), f"--cache-dir={self._folder / 'cache'}"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=environment | {"HOME": str(self._folder)},
        )  # fmt: skip
        out, _ = await process.communicate()
        if process.returncode:
            self.account.failed.append(f"{name}: {out.decode()}")


async def raced(
    server: Server, kubectl: Path, folder: Path, *, hold: float | None, waiting: int, newcomers: int, seed: int = 1
) -> Account:
    """Run it once, behind a sidecar that holds a request for so many seconds (None: as it likes)."""
    options = ["--use-own-credentials", "--hold-total=300", *([] if hold is None else [f"--hold={hold}"])]
    async with Api(server) as api, proxy(server.kubeconfig("creator"), folder, *options) as running:
        return await Race(api, running.url, kubectl, folder).run(waiting, newcomers, random.Random(seed))


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.proxying.newcomers", description=__doc__)
    parser.add_argument("--hold", type=float, help="of the sidecar; default: its own")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    binaries = wanted()
    with tempfile.TemporaryDirectory() as folder, Bed(binaries, kcm_qps=500) as bed:
        how = {"hold": asked.hold, "waiting": WAITING, "newcomers": NEWCOMERS, "seed": asked.seed}
        run = raced(bed.server, binaries.kubectl, Path(folder), **how)
        account = asyncio.run(run)
    sys.stdout.write(f"{account}\n")
    return 1 if account.overtakings or account.failed else 0


if __name__ == "__main__":
    sys.exit(_main())

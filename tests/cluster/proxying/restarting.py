"""A sidecar that is restarted again and again under kubectl and a client-go program that create pods at a full quota.

``python -m tests.cluster.proxying.restarting --times 10`` prints what became of their creates, and exits with 1 if one
failed, or is stored twice. The socket is handed over, as systemd does: whoever connects during a restart waits in it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.programs.creators import CREATORS
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import MERGE, Api

KUBECTLS: Final = 6
"""At a time."""
EACH: Final = 3
"""Pods that each of them makes, one after the other."""
CLIENT_GO: Final = 24
"""Pods of the client-go program, eight at a time."""
PATIENCE: Final = 300.0


@dataclass
class Account:
    """What became of the creates."""

    restarts: int
    asked: int = KUBECTLS * EACH + CLIENT_GO
    created: int = 0
    failed: list[str] = field(default_factory=list)
    stored: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Whether each is stored once, and no caller saw an error."""
        return not self.failed and self.created == self.asked == len(self.stored) == self.stored.total()

    def __str__(self) -> str:
        said = f"{self.restarts} restarts: {self.created} of {self.asked} creates answered with success, "
        return "\n".join([f"{said}{len(self.failed)} failed, {self.stored.total()} pods stored", *self.failed[:5]])


class Sidecar:
    """The command, with a listening socket that outlives it."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._command = [
            "bash", "-c", f'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&{self._socket.fileno()}', "bash",
            sys.executable, "-m", "backoff_ctrl", "proxy", "--use-own-credentials", "--kubeconfig", str(kubeconfig),
            "--listen", self.url.removeprefix("http://"),
        ]  # fmt: skip
        self._log = folder / "proxy.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.PIPE, stderr=log, pass_fds=(self._socket.fileno(),)
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            said = (await self._process.stdout.readline()).decode()
        assert said == f"listening on {self.url}\n", self._log.read_text()

    async def restart(self) -> None:
        """End it by SIGTERM, as systemd and kubelets do, and start the next one."""
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert await self._process.wait() == 0, self._log.read_text()

    def close(self) -> None:
        self._socket.close()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


async def restarted(server: Server, kubectl: Path, folder: Path, times: int, seed: int = 1) -> Account:
    """Restart a sidecar so often under its creators, and return what became of their creates."""
    rng = random.Random(seed)
    account = Account(times)
    async with Api(server) as api:
        room = Room(api, f"restarting-{os.urandom(4).hex()}")
        made = await api.post("/api/v1/namespaces", {"metadata": {"name": room.namespace}})
        assert made.status == 201, made.text
        await room.quota("q", {"pods": "0"})
        sidecar = Sidecar(server.kubeconfig("creator"), folder)
        try:
            await sidecar.start()
            creators = [
                asyncio.create_task(_kubectl(number, sidecar.url, room, kubectl, folder, account))
                for number in range(KUBECTLS)
            ]
            creators.append(asyncio.create_task(_client_go(sidecar.url, room, folder, account)))
            for number in range(1, times + 1):
                await asyncio.sleep(rng.uniform(0.5, 2.0))
                await _raise(room, account.asked * number // (2 * times))
                await sidecar.restart()
            await _raise(room, account.asked)
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*creators)
            await sidecar.stop()
        finally:
            sidecar.close()
        listed = (await api.get(room.path("pods"))).json["items"]
        account.stored.update(each["metadata"]["name"] for each in listed)
        await api.delete(f"/api/v1/namespaces/{room.namespace}")
    return account


async def _raise(room: Room, pods: int) -> None:
    reply = await room.api.patch(room.path("resourcequotas", "q"), {"spec": {"hard": {"pods": str(pods)}}}, MERGE)
    assert reply.status == 200, reply.text


async def _kubectl(number: int, url: str, room: Room, kubectl: Path, folder: Path, account: Account) -> None:
    for turn in range(EACH):
        name = f"kubectl-{number}-{turn}"
        manifest = pod(name, spec={"schedulerName": "nobody"})
        file = folder / f"{name}.json"
        file.write_text(json.dumps(manifest | {"apiVersion": "v1", "kind": "Pod"}))
        command = [str(kubectl), "--server", url, f"--namespace={room.namespace}", "create", "-f", str(file)]
        code, out, said = await _ran([*command, f"--cache-dir={folder / 'cache'}"], folder)
        if code == 0 and out == f"pod/{name} created\n":
            account.created += 1
        else:
            account.failed.append(f"{name}: {code} {out}{said}")


async def _client_go(url: str, room: Room, folder: Path, account: Account) -> None:
    config = folder / "client-go.kubeconfig"
    cluster = {"name": "c", "cluster": {"server": url}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    config.write_text(
        json.dumps(
            {"kind": "Config", "clusters": [cluster], "contexts": [context], "users": users, "current-context": "x"}
        )
    )
    command = [str(CREATORS.path("creator")), f"-kubeconfig={config}", f"-namespace={room.namespace}"]
    code, out, said = await _ran([*command, f"-count={CLIENT_GO}", "-parallel=8", "-prefix=go-"], folder)
    lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    account.created += sum(line["what"] == "created" for line in lines)
    account.failed += [f"client-go: {line}" for line in lines if line["what"] == "failed"]
    if code:
        account.failed.append(f"client-go ended with {code}: {said}")


async def _ran(command: Sequence[str], folder: Path) -> tuple[int | None, str, str]:
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"} | {"HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, said = await process.communicate()
    except BaseException:
        process.kill()
        raise
    return process.returncode, out.decode(), said.decode()


def _main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.proxying.restarting", description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    times = parser.parse_args(arguments).times
    binaries = wanted()
    with tempfile.TemporaryDirectory() as folder, Bed(binaries, kcm_qps=500) as bed:
        account = asyncio.run(restarted(bed.server, binaries.kubectl, Path(folder), times))
    sys.stdout.write(f"{account}\n")
    return 0 if account.good else 1


if __name__ == "__main__":
    sys.exit(_main())

"""exec, attach, cp, port-forward, logs -f and get -w by kubectl through the sidecar: as without it, both protocols."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import proxy
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE

BIG: Final = os.urandom(3 * 2**20)
PROTOCOLS: Final = {"websocket": ("true", "GET"), "spdy": ("false", "POST")}
"""What kubectl's two switches are set to, and the method by which it then asks for an upgrade."""


@dataclass(frozen=True)
class Followed:
    """A command that runs, and what it says."""

    process: asyncio.subprocess.Process
    out: asyncio.StreamReader


@dataclass(frozen=True)
class Kubectl:
    """kubectl with a kubeconfig, in one namespace."""

    program: Path
    kubeconfig: Path
    namespace: str
    websockets: str = "true"

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        switches = dict.fromkeys(
            ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"), self.websockets
        )
        return await asyncio.create_subprocess_exec(
            *(str(self.program), f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(self.kubeconfig.parent), **switches},
        )

    async def __call__(self, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run a command to its end; return its code and what it said."""
        process = await self.start(*arguments)
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return process.returncode, out, err

    @asynccontextmanager
    async def follow(self, *arguments: str) -> AsyncIterator[Followed]:
        process = await self.start(*arguments)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE):
                yield Followed(process, process.stdout)
        finally:
            process.terminate()
            await process.communicate()


@asynccontextmanager
async def _running_pod(api: Api, namespace: str, kubelet: Path) -> AsyncIterator[str]:
    """Register a node whose kubelet is a process of this test, with a pod that runs there; give their name."""
    process = await asyncio.create_subprocess_exec(
        kubelet, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    name = f"node-{secrets.token_hex(4)}"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    try:
        port = int(await process.stdout.readline())
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await _written(api, "/api/v1/nodes", {"metadata": {"name": name}})
        await _written(api, f"/api/v1/nodes/{name}/status", {"status": status}, MERGE)
        spec = {"nodeName": name, "containers": [{"name": "main", "image": "busybox:1", "stdin": True}]}
        await _written(api, pods, {"metadata": {"name": name}, "spec": spec})
        await _written(api, f"{pods}/{name}/status", {"status": {"phase": "Running"}}, MERGE)
        yield name
    finally:
        await api.delete(f"{pods}/{name}", params={"gracePeriodSeconds": "0"})
        await api.delete(f"/api/v1/nodes/{name}")
        process.stdin.close()
        await process.wait()


async def _written(api: Api, path: str, body: Any, patch: str = "") -> None:
    reply = await (api.patch(path, body, patch) if patch else api.post(path, body))
    assert reply.status in {200, 201}, reply.text


@pytest.mark.long
@pytest.mark.parametrize("way", ["direct", "tls", "plain"])
async def test_streams_are_as_without_the_sidecar(
    way: str,
    kubernetes: Server,
    real_api: Api,
    real_namespace: str,
    creators: GoPrograms,
    binaries: Binaries,
    tmp_path: Path,
) -> None:
    """Output, errors, exit codes and every byte, over WebSockets and over SPDY."""
    own = kubernetes.kubeconfig("tester")
    options = ("--use-own-credentials", "--allow-exec") if way == "plain" else ()
    async with (
        _running_pod(real_api, real_namespace, creators.path("kubelet")) as pod,
        proxy(own, tmp_path, *options, tls=way == "tls") as running,
    ):
        kubeconfig = own if way == "direct" else running.kubeconfig(kubernetes.token("tester"))
        kubectl = Kubectl(binaries.kubectl, kubeconfig, real_namespace)
        for websockets, method in PROTOCOLS.values():
            kubectl = replace(kubectl, websockets=websockets)
            await _executes(kubectl, pod, method)
            await _copies(kubectl, pod, tmp_path)
            await _forwards_ports(kubectl, pod)
        await _follows_a_log(kubectl, pod)
        await _watches(kubectl, pod, real_api)
        assert await running.stop() == 0


async def _executes(kubectl: Kubectl, pod: str, method: str) -> None:
    """Both outputs, the exit code, and an end of the input that ends the command; by the protocol that is asked for."""
    script = ("sh", "-c", "cat; echo oh >&2; exit 3")
    code, out, err = await kubectl("exec", "-i", pod, "-v=6", "--", *script, stdin=b"hello")
    assert (code, out) == (3, b"hello"), err
    assert {b"oh", b"command terminated with exit code 3"} <= {*err.splitlines()}
    assert re.search(rf'verb="{method}" url="\S+/exec\?.* status="101 '.encode(), err), err
    said = b"to the container\n"
    assert await kubectl("attach", "-i", "-q", pod, stdin=said) == (0, said, b"")


async def _copies(kubectl: Kubectl, pod: str, folder: Path) -> None:
    (folder / "sent").write_bytes(BIG)
    for source, target in ((str(folder / "sent"), f"{pod}:copied"), (f"{pod}:copied", str(folder / "back"))):
        code, _, err = await kubectl("cp", source, target)
        assert code == 0, err
    assert (folder / "back").read_bytes() == BIG


async def _forwards_ports(kubectl: Kubectl, pod: str) -> None:
    """Two connections at a time, each ended by one side first; large both ways."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.write(hashlib.sha256(await reader.read()).digest() + BIG)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as target:
        port = target.sockets[0].getsockname()[1]
        async with kubectl.follow("port-forward", pod, f":{port}") as forwarding:
            found = re.search(rb"127\.0\.0\.1:(\d+) -> ", await forwarding.out.readline())
            assert found, "it forwards"
            sides = [await asyncio.open_connection("127.0.0.1", int(found[1])) for _ in range(2)]
            for number, (reader, writer) in enumerate(sides):
                writer.write(b"%d\n" % number)
                assert await reader.readline() == b"%d\n" % number
            for reader, writer in sides:
                writer.write(BIG)
                writer.write_eof()
                assert await reader.read() == hashlib.sha256(BIG).digest() + BIG
                writer.close()


async def _follows_a_log(kubectl: Kubectl, pod: str) -> None:
    async with kubectl.follow("exec", "-i", pod, "--", "sh", "-c", "tee -a $LOG") as written:
        writing = written.process.stdin
        assert writing is not None
        async with kubectl.follow("logs", "-f", pod) as log:
            for line in (b"first\n", b"second\n"):
                writing.write(line)
                assert await log.out.readline() == line


async def _watches(kubectl: Kubectl, pod: str, api: Api) -> None:
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}"
    shown = ("--no-headers", "-o", "custom-columns=P:.metadata.labels.x")
    async with kubectl.follow("get", "pods", "-w", *shown) as seen:
        assert (await seen.out.readline()).strip() == b"<none>"
        for number in range(2):
            await _written(api, path, {"metadata": {"labels": {"x": str(number)}}}, MERGE)
            assert (await seen.out.readline()).strip() == str(number).encode()

"""A mode of the installed chart, run as a process: its Deployment's arguments, its account's token, its Secrets."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
import socket
import ssl
import sys
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import PATIENCE, Api, Reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

JSON = dict[str, Any]

_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}", certificate-authority: {trust}}}}}]
users: [{{name: u, user: {{tokenFile: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u, namespace: {namespace}}}}}]
current-context: x
"""
_FLAGS = {
    "inject": ("--listen", "--probe-listen"),
    "gateway": ("--listen", "--probe-listen"),
    "serve": ("--listen",),
}
_PORT = re.compile(r"0\.0\.0\.0:\d+")


@dataclass(frozen=True)
class Account:
    """A service account of the cluster, and a token of it."""

    server: Server
    namespace: str
    name: str
    token: str

    async def ask(self, method: str, path: str, body: JSON | None = None, content_type: str | None = None) -> Reply:
        """Send a request as this account."""
        tokens = {**self.server.tokens, self.name: self.token}
        made = Server(**{**vars(self.server), "tokens": tokens})
        async with Api(made, self.name) as api:
            return await api.call(method, path, body, content_type=content_type)

    def kubeconfig(self, folder: Path) -> Path:
        """Return a kubeconfig of this account."""
        (folder / "token").write_text(self.token)
        path = folder / "kubeconfig"
        path.write_text(
            _KUBECONFIG.format(
                url=self.server.url, trust=self.server.certificate, token=folder / "token", namespace=self.namespace
            )
        )
        return path


@dataclass(frozen=True)
class Mode:
    """A mode that runs."""

    urls: dict[str, str]
    """By the flag that opens it: ``--listen``, ``--probe-listen``."""
    host: str
    """The name of its Service, for which its certificate is."""
    folder: Path
    """With ``ca.crt``, whom its callers trust."""

    async def ask(self, flag: str, path: str, *, token: str = "", body: JSON | None = None) -> tuple[int, str]:
        """Ask it at the address of a flag; return status and text."""
        url = self.urls[flag] + path
        secure = url.startswith("https")
        tls = ssl.create_default_context(cafile=self.folder / "ca.crt") if secure else True
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        name = self.host if secure else None
        method = "GET" if body is None else "POST"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, url, json=body, ssl=tls, server_hostname=name) as answer,
        ):
            return answer.status, await answer.text()

    async def until(self, flag: str, path: str, holds: Callable[[int, str], object], token: str = "") -> str:
        """Ask again and again until the answer holds; return its text."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            status, text = await self.ask(flag, path, token=token)
            if holds(status, text):
                return text
            assert asyncio.get_running_loop().time() < deadline, (path, status, text)
            await asyncio.sleep(0.1)


async def account(api: Api, namespace: str, name: str) -> Account:
    """Return a service account with a token of the TokenRequest API."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    made = await api.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    assert made.status == 201, made.text
    return Account(api.server, namespace, name, made.json["status"]["token"])


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on: all are held until the last one is found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@asynccontextmanager
async def running(api: Api, namespace: str, mode: str, folder: Path) -> AsyncIterator[Mode]:
    """Run what the Deployment of a mode says, as its account, on this machine."""
    free = dict(zip(_FLAGS[mode], free_ports(len(_FLAGS[mode])), strict=True))
    deployment = await api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/backoff-ctrl-{mode}")
    spec = deployment.json["spec"]["template"]["spec"]
    mine = await account(api, namespace, spec["serviceAccountName"])
    (container,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    args = [*container["args"], *([f"--namespace={namespace}"] if mode == "inject" else ())]  # a pod finds its own
    for volume in spec["volumes"]:
        if "secret" in volume:
            secret = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{volume['secret']['secretName']}")
            for name, value in secret.json["data"].items():
                (folder / name).write_bytes(base64.b64decode(value))
            args = [each.replace(f"={mounts[volume['name']]}/", f"={folder}/") for each in args]
    urls = {}
    for number, each in enumerate(args):
        flag = each.partition("=")[0]
        if flag in free:
            args[number] = _PORT.sub(f"{'0.0.0.0' if mode == 'serve' else '127.0.0.1'}:{free[flag]}", each)
            urls[flag] = f"{'http' if flag == '--probe-listen' else 'https'}://127.0.0.1:{free[flag]}"
    assert urls.keys() == free.keys()
    log = folder / f"{mode}.log"
    environment = {**os.environ, "KUBECONFIG": str(mine.kubeconfig(folder)), "HOME": str(folder)}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "backoff_ctrl", *args, env=environment, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            said = (await process.stdout.readline()).decode()
        assert said.startswith("listening on "), log.read_text()
        yield Mode(urls, f"backoff-ctrl-{mode}.{namespace}.svc", folder)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0, log.read_text()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

"""``backoff-ctrl proxy`` as a process of its own, and kubeconfigs of those who go through it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit.patience import PATIENCE
from tests.status.asking import Answer

_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"{trust}}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


async def asked(url: str, target: str, token: str | None, body: Any, tls: Any = None, **headers: str) -> Answer:
    """Send a create over a connection of its own, with no client in between: the target is sent as it is written.

    The names of the answer's headers are in lower case.
    """
    host, port = url.rpartition("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    content = json.dumps(body).encode()
    given = {"Host": host, "Content-Type": "application/json", "Content-Length": len(content), "Connection": "close"}
    given |= ({"Authorization": f"Bearer {token}"} if token else {}) | headers
    lines = [f"POST {target} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in given.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + content)
    async with asyncio.timeout(PATIENCE):
        head, _, said = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status, *lines = head.decode().split("\r\n")
    return Answer(int(status.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, said)


@dataclass(frozen=True)
class Proxy:
    """A running proxy."""

    url: str
    process: asyncio.subprocess.Process
    folder: Path
    authority: Path | None = None
    """Whom creators trust, in TLS mode."""

    def kubeconfig(self, token: str) -> Path:
        """Return the kubeconfig of a creator with this token."""
        path = self.folder / "creator.kubeconfig"
        trust = f", certificate-authority: {self.authority}" if self.authority else ""
        path.write_text(_KUBECONFIG.format(url=self.url, trust=trust, token=token))
        return path

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@asynccontextmanager
async def proxy(kubeconfig: Path, folder: Path, *options: str, tls: bool = False) -> AsyncIterator[Proxy]:
    """Run a proxy with this account of its own, and end it."""
    if tls:
        for name in ("authority", "account", "projected"):
            (folder / name).mkdir(exist_ok=True)
        options = (*options, "--tls-authority", f"{folder}/authority", "--tls-account", f"{folder}/account")
        options = (*options, "--tls-token-volume", f"{folder}/projected")
    command = [sys.executable, "-m", "backoff_ctrl", "proxy", "--listen=127.0.0.1:0", f"--kubeconfig={kubeconfig}"]
    with (folder / "proxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, *options, stdout=asyncio.subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            said = (await process.stdout.readline()).decode()
        assert said.startswith("listening on "), (folder / "proxy.log").read_text()
        url = said.removeprefix("listening on ").strip()
        yield Proxy(url, process, folder, folder / "account" / "ca.crt" if tls else None)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

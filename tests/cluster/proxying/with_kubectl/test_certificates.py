"""TLS mode as Go verifies it: kubectl, with the creator's ``ca.crt`` and names of the API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backoff_ctrl.k8s.proxy.authority import NAMES, Serving, TlsFiles
from tests.cluster.control_plane.binaries import Binaries

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "kubernetes.default.svc"])
async def test_kubectl_trusts_the_proxy(binaries: Binaries, tmp_path: Path, name: str) -> None:
    """By the address, and by a name that resolves elsewhere."""
    assert name in NAMES
    serving = Serving(TlsFiles(tmp_path / "authority", tmp_path / "account", tmp_path / "projected"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving.context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        trust = [f"--certificate-authority={tmp_path / 'account' / 'ca.crt'}", f"--tls-server-name={name}"]
        asked = await asyncio.create_subprocess_exec(
            binaries.kubectl, "--kubeconfig=/dev/null", "--token=t", f"--server={url}", *trust,
            "get", "--raw", "/healthz",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await asked.communicate()
    assert (out, asked.returncode) == (b"ok", 0), error

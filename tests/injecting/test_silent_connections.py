"""Silent connections to a port keep nobody out, with TLS or without, however many there are."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web

from backoff_ctrl.api.connections import CONNECTIONS_MAX, serving_at
from backoff_ctrl.api.probes import probes
from tests.patience import PATIENCE
from tests.proxying.passing.certificates import make_pair


async def metrics() -> bytes:
    return b""


@pytest.mark.parametrize("tls", [False, True])
async def test_more_silent_connections_than_may_be_leave_probes_answered(tls: bool, tmp_path: Path) -> None:
    """1,100 were as many as a process may have files open."""
    app = web.Application()
    app.add_routes(probes(lambda: (True, ["ok"]), metrics))
    async with AsyncExitStack() as ends, asyncio.timeout(PATIENCE):
        url = await serving_at(app, ("127.0.0.1", 0), make_pair(tmp_path).server() if tls else None, ends)
        port = int(url.rpartition(":")[2])
        async with ClientSession(connector=TCPConnector(ssl=False)) as kubelet:
            assert (await kubelet.get(f"{url}/livez")).status == 200
            silent: list[socket.socket] = []
            for number in range(CONNECTIONS_MAX + 50):
                silent.append(ends.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)))
                if number % 16 == 0:
                    await asyncio.sleep(0)  # the server accepts
            assert (await kubelet.get(f"{url}/livez")).status == 200
        assert await asyncio.to_thread(silent[0].recv, 1) == b"", "the oldest was ended"
        async with ClientSession(connector=TCPConnector(ssl=False)) as other:
            assert (await other.get(f"{url}/livez")).status == 200

"""An application of aiohttp.web on a port, with a bound on who is connected to it: any pod may reach our ports.

Beyond the bound, a new connection takes the place of the one that got no good answer for longest: of those that have
asked for nothing the oldest first, handshakes included. So silent connections, however many, keep nobody out: neither
the kubelet that asks whether the process lives nor an API server with a review.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from backoff_ctrl.early import listening_early
from backoff_ctrl.k8s.proxy.door import Door, let_fail

SHUTDOWN: Final = 5.0
"""Seconds for answers under way when the server ends."""
HANDSHAKE: Final = 10.0
"""Seconds for a TLS handshake."""
CONNECTIONS_MAX: Final = 256
"""Connections at a time: an API server needs a few, and keeps them; a kubelet and Prometheus one each."""

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serving_at(
    app: web.Application, address: tuple[str, int], context: ssl.SSLContext | None, ends: AsyncExitStack
) -> str:
    """Serve an application until ``ends`` closes; return where it is. Raises ``OSError``.

    Bodies are not decompressed: no API server compresses its requests, and 0.2 MB may become 200.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = listening_early(host, port) or socket.create_server((host, port), family=family)
    ends.callback(bound.close)
    clients = Clients(context)
    app.middlewares.append(clients.answering)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN, auto_decompress=False)
    await runner.setup()
    ends.push_async_callback(runner.cleanup)
    assert runner.server is not None
    clients.open(runner.server, bound)
    ends.callback(clients.close)
    host, port = bound.getsockname()[:2]
    return f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@dataclass(slots=True)
class _Client:
    near: socket.socket
    since: float
    good: float = -1.0
    """When it last got a good answer."""
    shaking: bool = True


class Clients:
    """Who is connected. On one event loop."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._clients: dict[asyncio.BaseProtocol, _Client] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._clients)

    def open(self, server: web.Server, bound: socket.socket) -> None:
        """Accept connections from now on."""
        self._server = server
        self._door = Door(bound, self._take)
        self._door.open()

    def close(self) -> None:
        """Accept no more, and give up handshakes under way."""
        self._door.close()
        for client in self._clients.values():
            if client.shaking:
                let_fail(client.near)

    async def answering(self, request: web.Request, handler: Answering) -> web.StreamResponse:
        """Note who gets a good answer: a middleware of the application."""
        response = await handler(request)
        client = self._clients.get(request.protocol)
        if client is not None and response.status < 400:
            client.good = self._loop.time()
        return response

    answering.__middleware_version__ = 1  # type: ignore[attr-defined]  # aiohttp: it takes the handler

    def _take(self, near: socket.socket) -> None:
        if len(self._clients) >= CONNECTIONS_MAX:
            self._make_room()
        made = self._server()
        self._clients[made] = _Client(near, self._loop.time())
        task = self._loop.create_task(self._welcome(made, near))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _welcome(self, made: asyncio.Protocol, near: socket.socket) -> None:
        limit = None if self._context is None else HANDSHAKE
        try:
            await self._loop.connect_accepted_socket(lambda: made, near, ssl=self._context, ssl_handshake_timeout=limit)
        except OSError:  # it speaks no TLS, took too long, or is gone: it was never served
            near.close()
            self._clients.pop(made, None)
            return
        if made in self._clients:
            self._clients[made].shaking = False

    def _make_room(self) -> None:
        gone = [made for made, client in self._clients.items() if not client.shaking and _transport(made) is None]
        for made in gone:
            del self._clients[made]
        if gone:
            return
        worst = min(self._clients, key=lambda made: self._clients[made].good)
        client, transport = self._clients.pop(worst), _transport(worst)
        if transport is None:
            let_fail(client.near)
        else:
            transport.abort()


def _transport(made: asyncio.BaseProtocol) -> asyncio.Transport | None:
    found: asyncio.Transport | None = getattr(made, "transport", None)
    return found

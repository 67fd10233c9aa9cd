"""A port of ours that any pod may reach: an application there, and a bound on who is connected to it.

Beyond the bound a new connection takes the place of another one. That is

- one of the address with the most connections, if that has more than its share: so that one pod, however it asks,
  keeps neither the kubelet nor an API server out;
- else one that is no newcomer, while these are less than half: a client that asks as soon as it is connected has its
  answer within a second; where they are more, one of them, so that a flood of them takes no place of those that ask;
- among these the one that got no good answer for longest, or never one, handshakes included.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from backoff_ctrl.early import listening_early
from backoff_ctrl.k8s.sidecar.door import Door, let_fail

from .exits import BadInput

SHUTDOWN: Final = 5.0
"""Seconds for answers under way when the server ends."""
HANDSHAKE: Final = 10.0
"""Seconds for a TLS handshake."""
CONNECTIONS_MAX: Final = 256
"""Connections at a time: an API server needs a few, and keeps them; a kubelet and Prometheus one each."""
SHARE: Final = 8
"""An address that has more than one of so many parts of the connections is the first to lose one."""
NEWCOMER: Final = 1.0
"""Seconds for which a connection without a good answer counts as new."""

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]
Peer = tuple[str, int]
"""An address and a port: the name of a connection."""


async def serving_at(
    app: web.Application, address: tuple[str, int], option: str, context: ssl.SSLContext | None, ends: AsyncExitStack
) -> str:
    """Serve an application until ``ends`` closes; return where it is. Raises ``BadInput``, which names the option.

    Bodies are not decompressed: no API server compresses its requests, and 0.2 MB may become 200.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with listening(option, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"):
        bound = listening_early(host, port) or socket.create_server((host, port), family=family)
    ends.callback(bound.close)
    clients = Clients()

    async def noting(request: web.Request, handler: Answering) -> web.StreamResponse:
        response: web.StreamResponse
        try:
            response = await handler(request)
        except web.HTTPException as error:  # as an answer it would keep the frames that raised it, with their bodies
            response = web.Response(status=error.status, reason=error.reason, body=error.body, headers=error.headers)
        if response.status < 400 and request.transport is not None:
            clients.note_good(request.transport.get_extra_info("peername")[:2])
        return response

    noting.__middleware_version__ = 1  # type: ignore[attr-defined]  # aiohttp: it takes the handler
    app.middlewares.append(noting)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN, auto_decompress=False)
    await runner.setup()
    ends.push_async_callback(runner.cleanup)
    assert runner.server is not None
    clients.open(bound, runner.server, context)
    ends.callback(clients.close)
    host, port = bound.getsockname()[:2]
    return f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def listening(option: str, address: str) -> Iterator[None]:
    """Turn an address that can't be listened at into ``BadInput``, and no other error."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise BadInput(f"{option}: can't listen on {address} ({why}): choose another") from None


@dataclass(slots=True)
class _Client:
    near: socket.socket
    since: float
    transport: asyncio.Transport | None = None
    """None: its handshake is under way."""
    good: float = -1.0
    """When it last got a good answer."""


class Clients:
    """The connections to one port, ``most`` at a time. On the event loop that opens it."""

    def __init__(self, most: int = CONNECTIONS_MAX) -> None:
        self._most = most
        self._clients: dict[Peer, _Client] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    def open(
        self, bound: socket.socket, make: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext | None
    ) -> None:
        """Accept connections from now on, and have a protocol made for each."""
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._make = make
        self._door = Door(bound, self._take)
        self._door.open()

    def close(self) -> None:
        """Accept no more, and give up handshakes under way."""
        self._door.close()
        for client in self._clients.values():
            if client.transport is None:
                let_fail(client.near)

    def note_good(self, peer: Peer) -> None:
        """Note that a connection gets a good answer."""
        if client := self._clients.get(peer):
            client.good = self._loop.time()

    def _take(self, near: socket.socket) -> None:
        try:
            peer = near.getpeername()[:2]
        except OSError:  # it is gone
            near.close()
            return
        self._forget_closed()
        if len(self._clients) >= self._most:
            self._make_room()
        client = self._clients[peer] = _Client(near, self._loop.time())
        task = self._loop.create_task(self._welcome(peer, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _welcome(self, peer: Peer, client: _Client) -> None:
        limit = None if self._context is None else HANDSHAKE
        make: Callable[[], Any] = self._make
        try:
            client.transport, _ = await self._loop.connect_accepted_socket(
                make, client.near, ssl=self._context, ssl_handshake_timeout=limit
            )
        except OSError:  # it speaks no TLS, took too long, or is gone: it was never served
            client.near.close()
            if self._clients.get(peer) is client:
                del self._clients[peer]

    def _forget_closed(self) -> None:
        closed = [peer for peer, each in self._clients.items() if each.transport and each.transport.is_closing()]
        for peer in closed:
            del self._clients[peer]

    def _make_room(self) -> None:
        share, since = self._most // SHARE, self._loop.time() - NEWCOMER
        of_address = Counter(address for address, _ in self._clients)
        new = {peer for peer, each in self._clients.items() if each.good < 0 and each.since > since}
        few = len(new) < self._most // 2

        def keeps(peer: Peer) -> tuple[int, bool, float]:
            return -max(share, of_address[peer[0]]), (peer in new) == few, self._clients[peer].good

        client = self._clients.pop(min(self._clients, key=keeps))
        if client.transport is None:
            let_fail(client.near)
        else:
            client.transport.abort()

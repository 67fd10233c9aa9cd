"""The server of a gate's status: its socket, its life on the runtime's loop, and the two threads that make answers."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from aiohttp import web

from backoff_ctrl.k8s.gate.runtime.host import RUNTIME, Blocking, Task, leave_behind
from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.kube.cluster.address import name_of

from .aiohttp_web import Answering
from .connections import Connection, Connections
from .decisions import KeptDecision
from .gate_endpoints import GateEndpoints
from .streams import Streams

PATIENCE: Final = 15.0
"""Seconds that a connection may take for a whole head, for a body, and until it takes what was sent to it."""
STALLED: Final = 10.0
"""Seconds that a listener may take none of what was sent to it; then it is dropped."""
GOODBYE: Final = 1.0
"""Seconds for answers under way when the server ends."""
THREADS: Final = 2
BACKLOG: Final = 64


class StatusServer:
    """Serves from its start until ``close``. ``url`` is where."""

    def __init__(
        self,
        address: tuple[str, int],
        endpoints: GateEndpoints,
        streams: Streams[KeptDecision],
        *,
        shared: bool = False,
    ) -> None:
        """Listen. ``shared``: other processes of this user may listen there, too (SO_REUSEPORT).

        Raises ``OSError`` if the address can't be used.
        """
        self.endpoints = endpoints
        self.streams = streams
        self._socket = _bound(address, shared=shared)
        self._address = self._socket.getsockname()
        self._making = Blocking("backoff-ctrl-status", THREADS)
        self._connections = Connections(streams, PATIENCE, STALLED)
        hosts = frozenset(map(name_of, settings().status_hosts)) - {""}
        self._answering = Answering(endpoints, self._making, hosts, PATIENCE)
        self._task: Task | None = None

    @property
    def port(self) -> int:
        return int(self._address[1])

    @property
    def url(self) -> str:
        host = str(self._address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def is_closed(self) -> bool:
        return self._task is None

    def start(self) -> None:
        self._task = RUNTIME.spawn(self._run, GOODBYE)

    def close(self) -> None:
        """End, and close the streams. A second call does nothing. The runtime's own thread does not wait for it."""
        task, self._task = self._task, None
        if task is None:
            self._socket.close()
            return
        task.stop()
        if not RUNTIME.is_here:
            task.join(3 * GOODBYE)

    def abandon(self) -> None:
        """Drop the sockets in a forked child, where nothing serves them. The parent's stay open."""
        self._task = None
        self._socket.close()
        self._connections.abandon()
        leave_behind(self)

    # -- on the loop ---------

    async def _run(self, task: Task) -> None:
        loop = asyncio.get_running_loop()
        web_server = web.Server(self._answering.answer)
        every = self._connections
        server = await loop.create_server(
            lambda: Connection(every, web_server, loop), sock=self._socket, backlog=BACKLOG
        )
        try:
            while not task.ending:
                await task.wait()
        finally:
            server.close()
            self._socket.close()
            self.streams.close()
            web_server.pre_shutdown()
            try:
                await every.served(GOODBYE / 2)
            finally:
                every.hang_up()
                self._making.shutdown(wait=False)
                every.cancel()
                await every.served(GOODBYE / 4)


def _bound(address: tuple[str, int], *, shared: bool) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except BaseException:
        bound.close()
        raise
    bound.setblocking(False)
    return bound

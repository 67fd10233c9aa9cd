"""Where creators connect: an address, a socket of this machine, or TLS; and how it comes to an end."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import TYPE_CHECKING, Any, Final

from .handshakes import BACKLOG, Handshakes
from .passing.caller import Caller

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from .passing.shared import Shared

_OTHERS: Final = 64
"""Descriptors for everything but callers: files, the loop, watches, probes."""
_LOOK_S: Final = 0.5
_STEP_S: Final = 0.02
IDLE_S: Final = 0.5
"""Seconds that a connection without a request is kept at the end."""


def descriptors_for(connections: int, idle: int) -> int:
    """Raise this process's limit of descriptors if need be; return how many connections of callers it allows.

    Each caller may need one more connection, to the API server.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + idle + _OTHERS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    return max(1, (soft - _OTHERS - min(idle, soft // 4)) // 2)


class Listener:
    """Serves callers on a socket that is bound already."""

    def __init__(self, shared: Shared, bound: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Serve nobody yet."""
        self._shared = shared
        self._bound = bound
        self._tls = tls
        self._server: asyncio.Server | Handshakes | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Begin to serve."""
        loop = asyncio.get_running_loop()
        shared = self._shared
        if self._tls is not None:
            self._server = Handshakes(shared, self._bound, self._tls, lambda: Caller(shared, loop))
            self._server.start()
        else:
            make: Any = loop.create_unix_server if self._bound.family == socket.AF_UNIX else loop.create_server
            self._server = await make(lambda: Caller(shared, loop), sock=self._bound, backlog=BACKLOG)
        self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for caller in list(self._shared.callers):
            caller.look(now)
        self._sweep = loop.call_later(_LOOK_S, self._look)

    async def close(self, within: float) -> None:
        """Let requests under way end, for so many seconds at most, and close.

        Whoever connects meanwhile is served one request: to be refused would be an error, a 429 is none. A connection
        without a request is kept for a moment, since its caller may be sending one; its answer then closes it.
        """
        shared = self._shared
        shared.draining = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        before = set(shared.callers)
        for caller in before:
            caller.drain(at_once=False)
        await _until(lambda: not before & shared.callers, min(deadline, loop.time() + IDLE_S))
        for caller in before & shared.callers:
            caller.drain(at_once=True)
        await _until(lambda: not before & shared.callers, deadline)
        if self._server is not None:
            self._server.close()
        self._bound.close()  # nobody waits in its backlog for an answer that never comes
        await _until(lambda: not shared.callers, min(deadline, loop.time() + IDLE_S))  # who came last has yet to ask
        for caller in list(shared.callers):
            caller.drain(at_once=True)
        await _until(lambda: not shared.callers, deadline)
        for caller in list(shared.callers):
            caller.transport.abort()
        if self._sweep is not None:
            self._sweep.cancel()
        await asyncio.sleep(0)


async def _until(over: Callable[[], bool], deadline: float) -> None:
    """Wait until this is so, or the deadline has passed."""
    while not over() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - once in a process's life
        await asyncio.sleep(_STEP_S)

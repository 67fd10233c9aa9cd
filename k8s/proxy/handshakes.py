"""Accepts creators' connections in TLS mode: each counts from the moment it is accepted, not once it speaks TLS."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from .tls import accepted

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from .passing.shared import Shared

BACKLOG: Final = 1024
_AT_ONCE: Final = 64
"""Connections that are accepted before anybody else is served."""
_RETRY_S: Final = 1.0
"""Seconds after which it is tried again where the system gives no descriptor."""


class Handshakes:
    """Makes TLS connections of those that arrive at a socket.

    Beyond the limit of connections the handshake that has taken longest is given up for the newest, or the connection
    that has sent nothing since, if that is older: both take a few milliseconds, so it is whoever only holds its place
    that goes.
    """

    def __init__(
        self, shared: Shared, bound: socket.socket, tls: ssl.SSLContext, make: Callable[[], asyncio.Protocol]
    ) -> None:
        """Accept nobody yet. ``make`` makes the protocol of a connection whose handshake has succeeded."""
        self._shared = shared
        self._bound = bound
        self._tls = tls
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[asyncio.Task[None], tuple[socket.socket, float]] = {}
        """Their sockets, and when they began."""
        self._retry: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many handshakes are under way."""
        return len(self._under_way)

    def start(self) -> None:
        """Begin to accept."""
        self._bound.setblocking(False)
        self._bound.listen(BACKLOG)
        self._listen()

    def close(self) -> None:
        """Accept nobody any more, and give up the handshakes under way."""
        if self._retry is not None:
            self._retry.cancel()
        if self._bound.fileno() >= 0:  # not closed yet
            self._loop.remove_reader(self._bound)
        for near, _ in self._under_way.values():
            _end(near)

    def _listen(self) -> None:
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                near, _ = self._bound.accept()
            except (BlockingIOError, ConnectionAbortedError):  # nobody is left; or the one that was is gone
                return
            except OSError:  # no descriptors: who waits stays in the backlog
                self._loop.remove_reader(self._bound)
                self._retry = self._loop.call_later(_RETRY_S, self._listen)
                return
            self._take(near)

    def _take(self, near: socket.socket) -> None:
        shared = self._shared
        if len(shared.callers) + len(self._under_way) >= shared.limits.connections:
            shared.counts.turned_away += 1
            if not self._make_room():
                near.close()
                return
        near.setblocking(False)
        task = self._loop.create_task(self._shake(near))
        self._under_way[task] = near, self._loop.time()
        task.add_done_callback(lambda done: self._under_way.pop(done, None))

    def _make_room(self) -> bool:
        """End who has held a place for nothing the longest; return whether there is anybody."""
        longest = next(iter(self._under_way), None)
        if longest is None or next(iter(self._shared.silent.values()), inf) <= self._under_way[longest][1]:
            return self._shared.make_room(self._loop.time())
        _end(self._under_way.pop(longest)[0])
        return True

    async def _shake(self, near: socket.socket) -> None:
        limit = self._shared.limits.head_s
        try:
            await accepted(self._tls, self._make(), near, limit)
        except OSError:  # it speaks no TLS, trusts another authority, took too long, or is gone: it was never served
            near.close()


def _end(near: socket.socket) -> None:
    """Let a handshake fail. Its transport closes the socket."""
    with suppress(OSError):  # its other side is gone already
        near.shutdown(socket.SHUT_RDWR)

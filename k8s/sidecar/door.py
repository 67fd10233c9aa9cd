"""Where connections come in: a listening socket, and what takes each. One for all ports that others may reach."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

BACKLOG: Final = 1024
_AT_ONCE: Final = 64
"""Connections that are accepted in a row before others are served."""
_RETRY_S: Final = 1.0
"""Seconds until the next try when the system has no free descriptor."""


class Door:
    """Accepts connections at a socket. On one event loop.

    ``take`` has the bound on how many there are: unlike asyncio's own server it is called before any handshake.
    """

    def __init__(self, bound: socket.socket, take: Callable[[socket.socket], object]) -> None:
        self._bound = bound
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._bound.setblocking(False)
        self._bound.listen(BACKLOG)
        self._listen()

    def close(self) -> None:
        """Stop accepting. The socket stays open."""
        if self._retry is not None:
            self._retry.cancel()
        if self._bound.fileno() >= 0:  # not closed yet
            self._loop.remove_reader(self._bound)

    def _listen(self) -> None:
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                near, _ = self._bound.accept()
            except (BlockingIOError, ConnectionAbortedError):  # the backlog is empty, or the client is gone
                return
            except OSError:  # no descriptors: clients stay in the backlog
                self._loop.remove_reader(self._bound)
                self._retry = self._loop.call_later(_RETRY_S, self._listen)
                return
            near.setblocking(False)
            self._take(near)


def let_fail(near: socket.socket) -> None:
    """Let a handshake fail. Its transport closes the socket."""
    with suppress(OSError):  # its other side is gone already
        near.shutdown(socket.SHUT_RDWR)

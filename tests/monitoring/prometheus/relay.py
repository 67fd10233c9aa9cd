"""A relay of TCP connections on loopback that a test can cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

PIECE = 1 << 16


class Relay:
    """Passes connections on to a server, until it is cut: then they break, and new ones are refused."""

    def __init__(self, upstream: str) -> None:
        """``upstream`` is the server's URL."""
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self.garbles: tuple[bytes, bytes] | None = None
        """What it replaces in answers by something as long."""
        self._open: set[socket.socket] = set()
        self._listening = _listen(0)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._serve()

    def __enter__(self) -> Self:
        """It listens already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        for each in (self._listening, *self._open):
            with suppress(OSError):  # it has ended by itself
                each.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def mend(self) -> None:
        """Listen again, at the same port."""
        self._listening = _listen(self.port)
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:  # it was cut
                return
            try:
                far = socket.create_connection(self._upstream)
            except OSError:  # the server is away
                near.close()
                continue
            self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            with suppress(OSError):  # the other side is gone
                while piece := source.recv(PIECE):
                    sink.sendall(piece if self.garbles is None else piece.replace(*self.garbles))
                sink.shutdown(socket.SHUT_WR)
        finally:
            self._open.discard(source)
            source.close()


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    return listening

"""Connections to one API server that are kept for the next request, and whole requests on them."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.proxy.tls import connect

from .connection import UpstreamConnection

if TYPE_CHECKING:
    from backoff_ctrl.k8s.proxy.gathering import Outbox

    from .place import Place
    from .trust import Trust

CONNECT_MAX: Final = 10.0
"""Seconds until a connection is given up that does not come about, TLS included."""
IDLE_MAX: Final = 60.0
"""Seconds that an idle connection is kept: below the 90 of a kube-apiserver."""
IDLE_CONNECTIONS_MAX: Final = 256
"""Idle connections that are kept at a time."""
_LOOK_AGAIN: Final = 1.0
_FRESH: Final = 0.005


class Unreachable(Exception):  # noqa: N818 - the state, in the words of its sentence
    """No connection was made, so nothing was sent. The message says why, and is safe to print.

    ``may_come``: whether one may be made soon, since nothing is wrong but that nobody answers.
    """

    def __init__(self, why: str, *, may_come: bool = True) -> None:
        """Keep what to say of it."""
        super().__init__(why)
        self.may_come = may_come


class Pool:
    """Connections to one place with one kind of credentials."""

    def __init__(self, place: Place, trust: Trust, outbox: Outbox) -> None:
        """Connect to nothing yet."""
        self.place = place
        self._trust = trust
        self._outbox = outbox
        self._idle: list[UpstreamConnection] = []
        self._open: set[UpstreamConnection] = set()
        self._looked_at = 0.0

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def take(self, *, careful: bool) -> UpstreamConnection | None:
        """Return an idle connection, the one used last; None if there is none.

        ``careful``: for what must not be sent twice. The server may have closed the connection just now, so that it
        is asked first whether something came.
        """
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_AGAIN:
            self._look(now)
        while self._idle:
            found = self._idle.pop()
            if not found.alive:
                continue
            if careful and now - found.idle_since > _FRESH and not found.silent():
                found.abort()
                continue
            return found
        return None

    def give(self, connection: UpstreamConnection) -> None:
        """Take a connection back whose answer has ended."""
        if connection.reusable and len(self._idle) < IDLE_CONNECTIONS_MAX:
            connection.used = True
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        elif connection.transport is not None:
            connection.transport.close()

    async def open(self) -> UpstreamConnection:
        """Make a connection. Raises ``Unreachable``."""
        self._look(time.monotonic())
        loop = asyncio.get_running_loop()
        connection = UpstreamConnection(self._gone, self._outbox)
        context = self._trust.context
        try:
            async with asyncio.timeout(CONNECT_MAX):
                if context is None:
                    await loop.create_connection(lambda: connection, self.place.host, self.place.port)
                else:
                    await connect(context, self._trust.server_name or "", connection, self.place.host, self.place.port)
        except TimeoutError:
            raise Unreachable(f"no connection within {CONNECT_MAX:g} s") from None
        except (OSError, ssl.CertificateError, UnicodeError) as error:
            raise Unreachable(_reason(error), may_come=not isinstance(error, ssl.SSLError | UnicodeError)) from error
        assert connection.transport is not None
        bound = connection.transport.get_extra_info("socket")
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._open.add(connection)
        return connection

    def _gone(self, connection: UpstreamConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _look(self, now: float) -> None:
        """Take new certificates up, and let old connections go."""
        self._looked_at = now
        if self._trust.renewed():
            self._drop(self._idle)
        self._drop([each for each in self._idle if now - each.idle_since > IDLE_MAX])

    def _drop(self, those: list[UpstreamConnection]) -> None:
        for each in list(those):
            each.abort()
            self._idle.remove(each)

    def close(self) -> None:
        """Close all connections at once."""
        self._idle.clear()
        for each in list(self._open):
            each.abort()


def _reason(error: Exception) -> str:
    """Say why no connection came about, on one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message.rstrip('.')})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no reason given'}): perhaps it speaks plain HTTP"
    if isinstance(error, socket.gaierror):
        return "its name can't be resolved"
    if isinstance(error, ConnectionResetError):
        return "it closes the connection at once"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__

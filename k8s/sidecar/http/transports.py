"""Transports between a socket and a protocol: one gathers short writes, the other speaks TLS.

Short writes are sent together, once the loop has handled all input: each write wakes the process that reads it, which
then competes for this one's core. Sent one by one, messages cost up to a third more. Long ones are worth a wake-up
each.

TLS is done by OpenSSL in memory, whole messages at a time. The event loop's own layer costs several times what OpenSSL
itself does for the small messages of an API server, and keeps 256 KiB for each connection. This one has less to do: no
connection changes to TLS midway, and what was read is never kept back. Both: docs/decisions/sidecar-speed.md.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import Any, Final

LONG: Final = 16 * 1024
"""A piece of at least so many bytes is sent at once, together with what waits before it."""


class Outbox:
    """The transports of one event loop with unsent bytes."""

    def __init__(self) -> None:
        self._waiting: deque[Gathering] = deque()

    def add(self, one: Gathering) -> None:
        """Send what waits on a transport before the loop polls again."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(one)

    def flush(self) -> None:
        waiting = self._waiting
        try:
            while waiting:
                waiting.popleft().flush()
        finally:
            if waiting:  # one has failed
                asyncio.get_running_loop().call_soon(self.flush)


class Gathering:
    """A transport whose short writes wait for a moment: they stay in order, and come before any end."""

    def __init__(self, transport: asyncio.Transport, outbox: Outbox) -> None:
        self._transport = transport
        self._outbox = outbox
        self._pieces: list[bytes] = []
        self.can_write_eof = transport.can_write_eof
        self.get_extra_info = transport.get_extra_info
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.set_write_buffer_limits = transport.set_write_buffer_limits

    def write(self, data: bytes) -> None:
        """Send soon, or now if it is long."""
        pieces = self._pieces
        if len(data) >= LONG:
            self.flush()
            if not self.is_closing():
                self._transport.write(data)
        elif data:
            if not pieces:
                self._outbox.add(self)
            pieces.append(data)

    def flush(self) -> None:
        """Send now what waits, unless the connection has ended: then its reader is gone."""
        pieces = self._pieces
        if pieces:
            self._pieces = []
            if not self.is_closing():
                self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def close(self) -> None:
        """Close once everything is sent."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once, without sending what waits."""
        self._pieces = []
        self._transport.abort()

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()


RECORD: Final = 16 * 1024
"""Bytes of the longest record: a read of so many leaves no byte behind in OpenSSL."""
HANDSHAKE_MAX: Final = 10.0
"""Seconds that a handshake may take."""
END_MAX: Final = 30.0
"""Seconds in which the other side has to read what was written last, and close its side."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """The protocol of a socket's transport, and the transport of ``protocol`` once the handshake has succeeded.

    As in any TLS, neither side can close its half alone.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol: asyncio.Protocol,
        loop: asyncio.AbstractEventLoop,
        *,
        server_name: str | None = None,
        within: float = HANDSHAKE_MAX,
    ) -> None:
        """Expect a connection to ``server_name``; if that is None, from a client.

        ``within``: seconds for the handshake. Raises ``ValueError`` for an invalid name.
        """
        super().__init__()
        self._protocol = protocol
        self._loop = loop
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._read, self._encrypt = self._tls.read, self._tls.write
        self._is_client = server_name is not None
        self._within = within
        self._shaken: asyncio.Future[None] = loop.create_future()
        self._socket: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._shaking = True
        self._open = False
        self._paused = False
        self._why: Exception | None = None

    # What the socket's transport calls.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one of a stream
        self._socket = transport
        self._timer = self._loop.call_later(self._within, self._too_slow)
        self._shake()

    def data_received(self, data: bytes) -> None:
        """Decrypt input; after the end it is discarded."""
        if self._open:
            self._incoming.write(data)
            self._deliver()
        elif self._shaking:
            self._incoming.write(data)
            self._shake()

    def eof_received(self) -> bool:
        """Close. Without the server's closing message, its answer may have been truncated by an attacker."""
        if self._is_client and self._open:
            self._why = ConnectionResetError("it ended without a closing message")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_timer()
        self._open = False
        why = self._why or exc
        if not self._shaking:
            self._protocol.connection_lost(why)
        elif not self._shaken.done():
            self._shaken.set_exception(why or ConnectionResetError())

    def pause_writing(self) -> None:
        if self._open:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._open:
            self._protocol.resume_writing()

    # The handshake.

    async def shaken(self) -> None:
        """Wait until the handshake has succeeded. Raises ``OSError``; then, or cancelled, it ends the connection."""
        try:
            await self._shaken
        except BaseException:
            self.abort()
            raise

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._why = error
            self._flush()  # the alert that says why
            self._socket.close()
        else:
            self._flush()
            self._end_timer()
            self._shaking = False
            self._open = True
            self._protocol.connection_made(self)
            if not self._shaken.done():
                self._shaken.set_result(None)
            if self._open and self._incoming.pending:
                self._deliver()

    def _too_slow(self) -> None:
        """Give up the handshake, or the wait for the other side's end."""
        self._why = TimeoutError("the TLS handshake takes too long") if self._shaking else None
        self._socket.abort()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Input and output.

    def _deliver(self) -> None:
        read, incoming = self._read, self._incoming
        pieces: list[bytes] = []
        ended = False
        try:
            while True:
                piece = read(RECORD)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
                if not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            pass  # no error: the rest of a record comes with the next bytes
        except ssl.SSLError as error:
            self._break(error)
            return
        if self._outgoing.pending:
            self._flush()  # OpenSSL has messages of its own: new keys
        if pieces:
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if ended and self._open:
            self._protocol.eof_received()
            self.close()

    def _flush(self) -> None:
        self._socket.write(self._outgoing.read())

    def _break(self, error: Exception) -> None:
        self._why = error
        self._open = False
        self._socket.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send, record by record: OpenSSL's buffer grows slowly."""
        if not data or self.is_closing():
            return
        try:
            if len(data) <= RECORD:
                self._encrypt(data)
                self._socket.write(self._outgoing.read())
                return
            view = memoryview(data)
            for start in range(0, len(view), RECORD):
                self._encrypt(view[start : start + RECORD])
                self._socket.write(self._outgoing.read())
        except ssl.SSLError as error:
            self._break(error)

    # The end.

    def close(self) -> None:
        """Send the closing message, and wait until the other side has read it: what it still sends is discarded."""
        if self.is_closing():
            return
        self._open = False
        with suppress(ssl.SSLError):  # the other side has not closed yet
            self._tls.unwrap()
        self._flush()
        if self._paused:
            self._socket.resume_reading()
        self._timer = self._loop.call_later(END_MAX, self._too_slow)
        self._socket.write_eof()

    def abort(self) -> None:
        """Close at once, without sending what waits."""
        self._open = False
        self._socket.abort()

    def is_closing(self) -> bool:
        return not self._open or self._socket.is_closing()

    def can_write_eof(self) -> bool:
        """Return False: TLS has no half-closed connections."""
        return False

    # Passed to the socket's transport.

    def pause_reading(self) -> None:
        if self._open:
            self._paused = True
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._open:
            self._paused = False
            self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)


async def connect(context: ssl.SSLContext, server_name: str, protocol: asyncio.Protocol, host: str, port: int) -> None:
    """Connect ``protocol`` to a server that proves to be ``server_name``. Raises ``OSError``, ``ValueError``."""
    loop = asyncio.get_running_loop()
    tls = TlsTransport(context, protocol, loop, server_name=server_name)
    await loop.create_connection(lambda: tls, host, port)
    await tls.shaken()


async def accepted(context: ssl.SSLContext, protocol: asyncio.Protocol, near: socket.socket, within: float) -> None:
    """Connect ``protocol`` to a client that was accepted; so many seconds for its handshake. Raises ``OSError``."""
    loop = asyncio.get_running_loop()
    tls = TlsTransport(context, protocol, loop, within=within)
    await loop.connect_accepted_socket(lambda: tls, near)
    await tls.shaken()

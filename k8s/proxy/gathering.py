"""Short writes are sent together, once the loop has dealt with all that has come.

Each write wakes the process that reads it, which then takes this one's core amid its work: sent one by one, messages
cost up to a third more (docs/decisions/sidecar-speed.md). Long ones are worth a wake-up each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

LONG: Final = 16 * 1024
"""Bytes from which on a piece is sent at once, with what waits before it."""


class Outbox:
    """The transports of one event loop on which something waits to be sent."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Begin with nothing that waits to be sent."""
        self._waiting: deque[Gathering] = deque()

    def add(self, one: Gathering) -> None:
        """Send what waits on a transport before the loop looks for news."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(one)

    def flush(self) -> None:
        """Send all that waits."""
        waiting = self._waiting
        try:
            while waiting:
                waiting.popleft().flush()
        finally:
            if waiting:  # one has failed
                asyncio.get_running_loop().call_soon(self.flush)


class Gathering:
    """A transport whose short writes wait for a moment: they stay in order, and come before any end."""

    __slots__ = (
        "_outbox",
        "_pieces",
        "_transport",
        "can_write_eof",
        "get_extra_info",
        "is_closing",
        "pause_reading",
        "resume_reading",
        "set_write_buffer_limits",
    )

    def __init__(self, transport: asyncio.Transport, outbox: Outbox) -> None:
        """Write to ``transport``; all but writes and ends is its own."""
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
        """Send now what waits, unless the connection has ended: then nobody reads it."""
        pieces = self._pieces
        if pieces:
            self._pieces = []
            if not self.is_closing():
                self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def close(self) -> None:
        """End once all is sent."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """End at once; what waits is not sent."""
        self._pieces = []
        self._transport.abort()

    def write_eof(self) -> None:
        """End this half once all is sent."""
        self.flush()
        self._transport.write_eof()

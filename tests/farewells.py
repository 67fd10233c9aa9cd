"""The event loop of asynchronous tests: it leaves no TLS connection that only waits for the server's farewell."""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from typing import Any


class Loop(asyncio.SelectorEventLoop):
    """Whoever is cancelled while it reads an answer closes its connection, and over TLS that takes a round trip.

    Nobody waits for it, and what is left of it would be found as garbage in a test that comes later. A connection that
    nobody has closed is left as it is: to be found.
    """

    def close(self) -> None:
        if not self.is_closed():
            transports: Any = self._transports  # type: ignore[attr-defined]
            for transport in list(transports.values()):
                tls: Any = transport.get_protocol()
                if isinstance(tls, SSLProtocol) and tls._get_app_transport().is_closing():  # type: ignore[attr-defined]
                    transport.abort()
            self.run_until_complete(asyncio.sleep(0))
        super().close()

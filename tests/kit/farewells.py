"""The event loop of tests, and of sandboxes beside them: it leaves no connection behind that nobody can close."""

from __future__ import annotations

import asyncio
import sys
from asyncio.sslproto import SSLProtocol
from socket import socket
from typing import Any


class Loop(asyncio.SelectorEventLoop):
    """What is left of a connection would be found as garbage in a test that comes later. There are two such cases.

    Whoever is cancelled while it reads an answer closes its connection, and over TLS that takes a round trip, for which
    nobody waits. And if a server is closed right after it has accepted a connection, asyncio forgets that connection
    half-made. One that somebody could have closed is left as it is: to be found.
    """

    async def _accept_connection2(
        self, protocol_factory: Any, conn: socket, extra: Any, sslcontext: Any = None, server: Any = None, *rest: Any
    ) -> None:
        if server is not None and not server.sockets:
            conn.close()
            return
        accept: Any = super()._accept_connection2  # type: ignore[misc]
        await accept(protocol_factory, conn, extra, sslcontext, server, *rest)

    def close(self) -> None:
        if not self.is_closed():
            transports: Any = self._transports  # type: ignore[attr-defined]
            for transport in list(transports.values()):
                tls: Any = transport.get_protocol()
                if isinstance(tls, SSLProtocol) and tls._get_app_transport().is_closing():  # type: ignore[attr-defined]
                    transport.abort()
            self.run_until_complete(asyncio.sleep(0))
        super().close()


def use_everywhere() -> None:
    """Give threads of ``asyncio.run`` that loop, too. Later Pythons have no policies, nor half-made connections."""
    if sys.version_info < (3, 14):
        asyncio.set_event_loop_policy(_Policy())


if sys.version_info < (3, 14):

    class _Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return Loop()

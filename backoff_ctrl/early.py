"""Listens for probes while the program still loads: the first probe waits for its answer instead of being refused.

A kubelet reports each refused probe as a warning on the pod. To load takes half a second of CPU, and several on a busy
node; until then connections wait in the socket's queue. Loads little itself.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

PAGE: Final = "serve"
"""The command whose probes ask at the same address as everybody."""
STALLED: Final = 10.0
"""Seconds for which a client of the page may leave an answer unread before its connection is closed."""
_SHARED: Final = "--reuse-port"
_QUEUE: Final = 32
_PAGE_QUEUE: Final = 128
_held: dict[tuple[str, int], socket.socket] = {}


def listen_early(command: str, arguments: Sequence[str]) -> None:
    """Listen where probes will ask: at ``--probe-listen=HOST:PORT``, or at the ``--listen`` of the page.

    The command itself reports an address that it can't have. A port that another process may share is left alone: a
    connection to this one would wait while that one serves.
    """
    option = "--listen" if command == PAGE else "--probe-listen"
    given = [each.partition("=")[2] for each in arguments if each.startswith(f"{option}=")]
    given += [value for name, value in pairwise(arguments) if name == option]
    if len(given) != 1 or _SHARED in arguments:
        return
    host, _, port = given[0].rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if host and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536:
        with suppress(OSError):  # the command opens it again, and reports the error
            if command == PAGE:
                _held[host, int(port)] = open_page(host, int(port))
            else:
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                _held[host, int(port)] = socket.create_server((host, int(port)), family=family, backlog=_QUEUE)


def listening_early(host: str, port: int) -> socket.socket | None:
    """Hand over the socket that listens at this address since the program began, if one does."""
    return _held.pop((host, port), None)


def open_page(host: str, port: int, stalled: float = STALLED) -> socket.socket:
    """Return a socket for the page that listens there. Raises ``OSError``.

    Its connections end by themselves if the client stops reading for ``stalled`` seconds (where the kernel can do
    that): a slow listener is dropped, and delays no other.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named: else asyncio sets no TCP_NODELAY
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(stalled * 1000))
    try:
        bound.bind((host, port))
        bound.listen(_PAGE_QUEUE)
    except OSError:
        bound.close()
        raise
    return bound

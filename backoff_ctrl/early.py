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

_OPTION: Final = "--probe-listen"
_SHARED: Final = "--reuse-port"
_QUEUE: Final = 32
_held: dict[tuple[str, int], socket.socket] = {}


def listen_early(arguments: Sequence[str]) -> None:
    """Listen at the address of ``--probe-listen=HOST:PORT``. The command itself reports an address that it can't have.

    A port that another process may share is left alone: a connection to this one would wait while that one serves.
    """
    given = [each.partition("=")[2] for each in arguments if each.startswith(f"{_OPTION}=")]
    given += [value for name, value in pairwise(arguments) if name == _OPTION]
    if len(given) != 1 or _SHARED in arguments:
        return
    host, _, port = given[0].rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if host and port.isascii() and port.isdecimal() and 0 < int(port) < 65_536:
        with suppress(OSError):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            _held[host, int(port)] = socket.create_server((host, int(port)), family=family, backlog=_QUEUE)


def listening_early(host: str, port: int) -> socket.socket | None:
    """Hand over the socket that listens at this address since the program began, if one does."""
    return _held.pop((host, port), None)

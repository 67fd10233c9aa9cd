"""The address of a gate's status: how it is written, and what names this machine only."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

PORT: Final = 9095


def read_address(listen: str) -> tuple[str, int]:
    """Read a loopback address. Raises ``ValueError`` with a sentence."""
    host, port = split_address(listen)
    if not is_loopback(host):
        raise ValueError(
            f"the status of a gate is served on this machine alone, such as at 127.0.0.1:{PORT}, not at {listen!r}: "
            "reach it through kubectl port-forward, or run `backoff-ctrl serve`"
        )
    return host, port


def split_address(listen: str) -> tuple[str, int]:
    """Read ``host:port``, ``[host]:port``, or a port alone. Raises ``ValueError`` with a sentence."""
    host, colon, port = listen.strip().rpartition(":")
    if not colon:
        host, port = ("127.0.0.1", port) if port.isdecimal() else (port, str(PORT))
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) < 65_536) or not host:
        raise ValueError(f"the address of the status must look like 127.0.0.1:{PORT}, not {listen!r}")
    return ("127.0.0.1" if host.lower() == "localhost" else host), int(port)


def name_of(host: str) -> str:
    """Return the name or address in a Host header, without its port."""
    name = host.strip()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") <= 1:
        name = name.partition(":")[0]
    return name.lower().rstrip(".")


def host_of(origin: str) -> str:
    """Return the host in an Origin header or another URL, with its port, or an empty text."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Return whether a Host header, with or without a port, names this machine only."""
    name = name_of(host)
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

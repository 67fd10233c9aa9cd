"""Which hosts a plugin may reach: those that the settings list; no link-local address, where clouds keep secrets."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address

import aiohttp
from aiohttp.abc import ResolveResult


def is_allowed(allowed: Sequence[str], host: str, port: int | None) -> bool:
    """Return whether a host may be reached. An entry is a pattern, ``*.example.com``, perhaps with a colon and a port.

    Without entries any host may be, but a link-local address; that has to be listed as it is.
    """
    host = host.lower()
    if is_link_local(host):
        return any(each.lower() in (host, f"{host}:{port}") for each in allowed)
    return not allowed or any(_matches(each.lower(), host, port) for each in allowed)


def is_link_local(host: str) -> bool:
    """Return whether a host is written as a link-local address, such as 169.254.169.254."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_link_local


class Resolver(aiohttp.ThreadedResolver):
    """Finds no link-local address under any name: a user who names a host may have it point anywhere."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = [each for each in await super().resolve(host, port, family) if not is_link_local(each["host"])]
        if not found:
            raise OSError(f"{host} has only a link-local address, which is not reached")
        return found


def _matches(pattern: str, host: str, port: int | None) -> bool:
    if pattern.startswith("["):  # an IPv6 address, as URLs write it
        name, _, number = pattern[1:].partition("]")
        return host.strip("[]") == name and number in ("", f":{port}")
    name, _, number = pattern.rpartition(":")
    if name and ":" not in name and number.isdecimal():
        return fnmatchcase(host, name) and port == int(number)
    return fnmatchcase(host, pattern)

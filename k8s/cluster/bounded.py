"""The beginning of an answer of which only a sentence is wanted: its end may be far, or never come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import aiohttp

BYTES_MAX: Final = 64 << 10


async def beginning(response: aiohttp.ClientResponse) -> bytes:
    """Read an answer, 64 KiB of it at most; the connection of a longer one is closed."""
    read = bytearray()
    try:
        async for chunk in response.content.iter_any():
            read += chunk
            if len(read) > BYTES_MAX:
                break
    finally:
        if not response.content.at_eof():
            response.close()
    if not read:
        return (await response.read())[:BYTES_MAX]  # the client has read it before, and keeps it
    return bytes(read[:BYTES_MAX])

"""Read only the beginning of an answer: enough for an error message, however long the answer is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import aiohttp

BYTES_MAX: Final = 64 << 10


async def beginning(response: aiohttp.ClientResponse, limit: int = BYTES_MAX) -> bytes:
    """Return at most the first ``limit`` bytes of an answer. If it is longer, close its connection."""
    read = bytearray()
    try:
        async for chunk in response.content.iter_any():
            read += chunk
            if len(read) > limit:
                break
    finally:
        if not response.content.at_eof():
            response.close()
    return bytes(read[:limit])

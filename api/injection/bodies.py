"""Bodies of reviews, read within bounds: any client that reaches the port may send one, and none may exhaust it."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

BODY_MAX: Final = 8 << 20
"""Bytes of a review: a pod of 1.5 MiB, the old one beside it, and what JSON adds."""
ALL_MAX: Final = 4 * BODY_MAX
"""Bytes of all bodies that are being read."""
PATIENCE: Final = 5.0
"""Seconds in which a body has to arrive."""


class Bodies:
    """The bodies that are being read. If there are too many, the slowest is given up for a new one.

    An API server sends its whole request at once, so a slow one comes from another client.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        """``patience``: seconds in which a body has to arrive."""
        self._patience = patience
        self._sizes: dict[asyncio.Timeout, int] = {}

    async def read(self, request: web.Request) -> bytes:
        """Return a request's body. Raises an HTTP answer for one that is too large, or too slow."""
        size = BODY_MAX if request.content_length is None else request.content_length
        if size > BODY_MAX:
            raise web.HTTPRequestEntityTooLarge(BODY_MAX, size)
        try:
            async with asyncio.timeout(self._patience) as limit:
                self._sizes[limit] = size
                self._make_room()
                try:
                    return await request.read()
                finally:
                    self._sizes.pop(limit, None)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body took too long\n") from None

    def _make_room(self) -> None:
        while sum(self._sizes.values()) > ALL_MAX:
            longest = next(iter(self._sizes))
            del self._sizes[longest]
            if not longest.expired():
                longest.reschedule(asyncio.get_running_loop().time())

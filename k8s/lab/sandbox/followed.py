"""Following objects from outside, as a controller does: a list, then a watch from there, without end.

The fake kubelet and the simulated Job controller use it. It is plain REST, so that it tests the server and no library.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import aiohttp

JSON: TypeAlias = dict[str, Any]

RETRY_S = 0.2
"""The pause after a request that failed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Server:
    """Where the API server is and how to reach it. ``tls`` is passed to aiohttp; None checks no certificates.

    ``detour`` holds further arguments of aiohttp for each request, such as a proxy.
    """

    url: str
    headers: Mapping[str, str] | None = None
    tls: ssl.SSLContext | None = None
    detour: Mapping[str, Any] = field(default_factory=dict)

    def session(self, in_flight: int) -> aiohttp.ClientSession:
        """Return a session for watches without end beside so many requests at a time."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=in_flight + 4, ssl=self.tls or False),
            timeout=aiohttp.ClientTimeout(total=None, connect=10, sock_read=None),
            headers=dict(self.headers or {}),
        )


class Followed:
    """The objects at one path of a server. ``seen`` is called for each event: ADDED, MODIFIED or DELETED.

    Objects of a list count as ADDED. An object that was deleted between two watches counts as DELETED at the next list.
    """

    def __init__(
        self, server: Server, session: aiohttp.ClientSession, path: str, seen: Callable[[str, JSON], object]
    ) -> None:
        self._server = server
        self._session = session
        self._url = f"{server.url}{path}"
        self._seen = seen
        self._stored: dict[str, JSON] = {}  # by uid
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """List, then watch from there; after a failure begin again. Runs until it is cancelled."""
        while True:
            try:
                version = await self._list()
                while version:
                    version = await self._follow(version)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                _log.debug("the watch of %s failed; it starts again: %s", self._url, error)
            await asyncio.sleep(RETRY_S)

    async def _list(self) -> str:
        async with self._session.get(self._url, **self._server.detour) as answer:
            answer.raise_for_status()
            found = await answer.json()
        items = {body["metadata"]["uid"]: body for body in found["items"]}
        for uid in self._stored.keys() - items.keys():
            self._tell("DELETED", self._stored[uid])
        for body in items.values():
            self._tell("ADDED", body)
        self.listed.set()
        return str(found["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> str:
        """Watch until the stream ends; returns the version to resume from, empty when a new list is needed."""
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
        async with self._session.get(self._url, params=query, **self._server.detour) as answer:
            if answer.status != 200:
                return ""
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event: JSON = json.loads(line)
                    if event["type"] == "ERROR":
                        return ""
                    version = event["object"]["metadata"].get("resourceVersion") or version
                    if event["type"] != "BOOKMARK":
                        self._tell(event["type"], event["object"])
        return version

    def _tell(self, change: str, body: JSON) -> None:
        if change == "DELETED":
            self._stored.pop(body["metadata"]["uid"], None)
        else:
            self._stored[body["metadata"]["uid"]] = body
        self._seen(change, body)


def say_failure(task: asyncio.Task[None]) -> None:
    """Log what ended a task early; otherwise objects would stay as they are without an explanation."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a client of the sandbox failed", exc_info=error)

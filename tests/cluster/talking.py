"""Api: plain HTTP to a server as one of its users, with no client library in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from tests.cluster.control_plane.servers import Server
from tests.kit.patience import PATIENCE, pause_after

JSON = dict[str, Any]
JSON_PATCH: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

_POLL: Final = 0.02


@dataclass(frozen=True)
class Reply:
    """A complete answer."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> JSON:
        """The object in the body. Raises ``ValueError`` if the body is not JSON."""
        found: JSON = json.loads(self.text)
        return found


class Api:
    """One user's connection to a server. Use it as an async context manager."""

    def __init__(self, server: Server, user: str = "tester") -> None:
        self.server = server
        self.user = user
        self._tls = server.ssl()
        self._made: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session; connections are made on demand."""
        self._made = aiohttp.ClientSession(
            self.server.url,
            headers={"Authorization": f"Bearer {self.server.token(self.user)}", "User-Agent": "backoff-ctrl-tests"},
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=45),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections, at once."""
        await self._session.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        assert self._made is not None, "use `async with Api(server) as api`"
        return self._made

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str | None = None,
        accept: str | None = None,
    ) -> Reply:
        """Send one request and read the whole answer, whatever its code; bytes and strings are sent as they are."""
        headers = {"Accept": accept or "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
        data = body if body is None or isinstance(body, bytes | str) else json.dumps(body)
        async with (
            asyncio.timeout(PATIENCE),  # longer than the 34 s after which a server gives up by itself
            self._session.request(method, path, data=data, params=params, headers=headers) as answer,
        ):
            return Reply(answer.status, answer.headers, await answer.text())

    async def get(self, path: str, *, params: Mapping[str, str] | None = None, accept: str | None = None) -> Reply:
        return await self.call("GET", path, params=params, accept=accept)

    async def post(self, path: str, body: Any, *, params: Mapping[str, str] | None = None) -> Reply:
        return await self.call("POST", path, body, params=params)

    async def put(self, path: str, body: Any, *, params: Mapping[str, str] | None = None) -> Reply:
        return await self.call("PUT", path, body, params=params)

    async def patch(self, path: str, body: Any, content_type: str, *, params: Mapping[str, str] | None = None) -> Reply:
        """Patch an object; the type is ``JSON_PATCH``, ``MERGE``, ``STRATEGIC`` or ``APPLY``."""
        return await self.call("PATCH", path, body, params=params, content_type=content_type)

    async def delete(self, path: str, body: Any = None, *, params: Mapping[str, str] | None = None) -> Reply:
        return await self.call("DELETE", path, body, params=params)

    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str | None = None
    ) -> AsyncIterator[AsyncIterator[JSON]]:
        """Watch: yields the events, each of which must arrive within ``PATIENCE``, until the server ends the stream."""
        headers = {"Accept": accept or "application/json"}
        async with self._session.get(path, params={"watch": "1", **(params or {})}, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            yield _events(answer)

    async def until(self, path: str, holds: Callable[[JSON], Any], within: float = PATIENCE) -> JSON:
        """Read an object repeatedly until ``holds``, and return it; it need not exist at first."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while True:
            begun = loop.time()
            seen = await self.get(path)
            if seen.status == 200 and holds(seen.json):
                return seen.json
            assert loop.time() < deadline, f"{path} after {within:g} s: {seen.status} {seen.text}"
            await asyncio.sleep(pause_after(loop.time() - begun, _POLL))


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[JSON]:
    """Yield one event per line, whatever the length of the line."""
    rest = b""
    while True:
        try:
            async with asyncio.timeout(PATIENCE):
                chunk = await answer.content.readany()
        except TimeoutError:
            raise AssertionError(f"no event within {PATIENCE:g} s on {answer.url}") from None
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)

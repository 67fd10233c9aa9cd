"""ResourceQuotas over HTTP, as plain objects, through an aio ``ApiClient``."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import aiohttp

from .watching import WatchBrokenError, WatchExpiredError, WatchForbiddenError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kubernetes.aio.client import ApiClient

WATCH_SECONDS = 290  # the server ends a watch after 5 to 10 minutes anyway; in good order is better
READ_SECONDS = 60
# RuntimeError: once the main thread has returned, asyncio's helper threads are gone, which aiohttp uses to connect.
_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, ValueError, RuntimeError)


class ClientSource:
    """Lists and watches with the client's own credentials and connections."""

    def __init__(self, client: ApiClient, *, watch_seconds: int = WATCH_SECONDS) -> None:
        """Use a client that stays open for as long as this is used."""
        self._client = client
        self._watch_seconds = watch_seconds

    async def list_quotas(self, namespace: str | None) -> Mapping[str, Any]:
        """Return all quotas there are, read from the store (not from a cache: it may be old)."""
        try:
            async with await self._get(namespace, [], aiohttp.ClientTimeout(total=READ_SECONDS)) as response:
                found = json.loads(await response.read())
        except _BROKEN as error:
            raise WatchBrokenError(f"{type(error).__name__}: {error}") from error
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise WatchBrokenError("the list is no list")
        return found

    async def watch_quotas(self, namespace: str | None, version: str) -> AsyncIterator[Mapping[str, Any]]:
        """Yield events; the server ends the stream after a while, sooner for some than for others."""
        seconds = int(self._watch_seconds * random.uniform(0.8, 1.0))
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", seconds),
        ]
        silence = aiohttp.ClientTimeout(total=None, sock_connect=READ_SECONDS, sock_read=seconds + READ_SECONDS)
        try:
            async with await self._get(namespace, query, silence) as response:
                async for line in _lines(response.content):
                    yield json.loads(line)
        except _BROKEN as error:
            raise WatchBrokenError(f"{type(error).__name__}: {error}") from error

    async def _get(
        self, namespace: str | None, query: list[tuple[str, Any]], patience: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        place = "" if namespace is None else f"/namespaces/{namespace}"
        request = await self._client.param_serialize(
            "GET",
            f"/api/v1{place}/resourcequotas",
            query_params=query,
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        response = await self._client.call_api(*request, _request_timeout=patience)
        if response.status == 200:
            stream: aiohttp.ClientResponse = response.response
            return stream
        text = (await response.read()).decode("utf-8", "replace")[:300]
        if response.status == 403:
            raise WatchForbiddenError(text)
        raise (WatchExpiredError if response.status == 410 else WatchBrokenError)(f"{response.status}: {text}")


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split the stream: an event is a line, of any length."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line

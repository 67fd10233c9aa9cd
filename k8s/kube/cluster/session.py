"""Our own requests on asyncio, with the address, TLS settings, proxy and credentials of any official client.

A project may have no client for asyncio, or one of any generation: what only lists, watches and writes JSON needs no
client.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.request import getproxies

import aiohttp

from backoff_ctrl.k8s.kube.answers.answer import Answer, NotSent, OutcomeUnknown

from .finding import credentials, detour_of, tls_of
from .rights import REVIEW

T = TypeVar("T")

LINE_BUFFER: Final = 2**21
"""Bytes read ahead. Watch events may be longer than aiohttp's default buffer."""
BYTES_MAX: Final = 64 << 10
"""Bytes of an answer that are read for an error message."""
REVIEW_SECONDS: Final = 10.0
LARGE: Final = 2**20
"""A body of at least so many bytes is sent piece by piece: in one go it would hold up the event loop."""


class ClusterSession:
    """Requests to one API server. An async context manager.

    ``configuration`` is one of ``kubernetes``, ``kubernetes.aio`` or ``kubernetes_asyncio``. Its current token is sent
    with each request.
    """

    def __init__(self, configuration: Any, *, hooks_block: bool = False) -> None:
        """Prepare; no file is read and no connection opened yet.

        ``hooks_block``: files are read, and hooks that fetch credentials are called, in the loop's executor, since the
        loop serves others who must not wait for that.
        """
        self._configuration = configuration
        self._hooks_block = hooks_block
        self._told: tuple[datetime, float] | None = None

    async def __aenter__(self) -> Self:
        """Open the session; connections are made when needed, as many as there are requests at a time."""
        connector = aiohttp.TCPConnector(limit=0, ssl=await self._call(tls_of, self._configuration))
        # Where the environment names no proxy, aiohttp need not look for one, and into ~/.netrc, at each request.
        proxied = bool(getproxies())
        self._session = aiohttp.ClientSession(connector=connector, trust_env=proxied, read_bufsize=LINE_BUFFER)
        self._detour = detour_of(self._configuration)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session and its connections, at once; answers that are still being read break off."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        body: object = None,
        timeout: float | aiohttp.ClientTimeout,  # noqa: ASYNC109 - passed on: it also limits the pauses of a stream
    ) -> aiohttp.ClientResponse:
        """Send a request with the current credentials, ``body`` as JSON; return the response, its body unread.

        ``timeout``: seconds for all of it, or aiohttp's limits for its parts.

        Raises aiohttp's errors, and ``TimeoutError``.
        """
        limits = timeout if isinstance(timeout, aiohttp.ClientTimeout) else aiohttp.ClientTimeout(total=timeout)
        settings = await self._settings()
        sent = {"User-Agent": "backoff-ctrl", "Accept": "application/json", **credentials(settings), **(headers or {})}
        return await self._session.request(
            method,
            f"{self._configuration.host}{path}",
            params=[(name, str(value)) for name, value in query],
            data=None if body is None else _as_json(body),
            headers=sent if body is None else {"Content-Type": "application/json", **sent},
            timeout=limits,
            **self._detour,
        )

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Iterable[tuple[str, Any]] = (),
        timeout: float,  # noqa: ASYNC109 - passed on
    ) -> Answer:
        """Send a request; return the answer, of any status. Raises ``NotSent`` and ``OutcomeUnknown``."""
        try:
            response = await self.request(method, path, query=query, headers=headers, body=body, timeout=timeout)
            async with response:
                self._note_time(response.headers.get("Date", ""))
                return Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error

    def now(self) -> datetime:
        """Return the time by the API server's clock, as its last answer gave it; by ours before the first answer.

        What the server writes on objects is to be compared with this time alone: our clock may differ, or be set.
        """
        if self._told is None:
            return datetime.now(UTC)
        told, at = self._told
        return told + timedelta(seconds=time.monotonic() - at)

    def _note_time(self, date: str) -> None:
        with suppress(ValueError):  # a Date that can't be read: the last one counts on
            told = parsedate_to_datetime(date)
            self._told = told if told.tzinfo is not None else told.replace(tzinfo=UTC), time.monotonic()

    async def review(self, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Ask about a right of this account, for ``OwnRights``."""
        answer = await self.ask("POST", REVIEW, body, timeout=REVIEW_SECONDS)
        return answer.status, answer.body

    async def _settings(self) -> Any:
        ask = self._configuration.auth_settings
        if inspect.iscoroutinefunction(ask):  # kubernetes.aio, and kubernetes_asyncio since 33
            return await ask()
        settings = await self._call(ask)
        return await settings if inspect.isawaitable(settings) else settings

    async def _call(self, blocking: Callable[..., T], *given: Any) -> T:
        if not self._hooks_block:
            return blocking(*given)
        return await asyncio.get_running_loop().run_in_executor(None, blocking, *given)


def _as_json(body: object) -> bytes | io.BytesIO:
    text = json.dumps(body).encode()
    return text if len(text) < LARGE else io.BytesIO(text)


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

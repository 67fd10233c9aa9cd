"""Plain HTTP calls from a thread, with the server and the credentials of any official client's configuration."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import PoolManager, ProxyManager, Timeout

from .settings import credentials, detour_of, tls_of

TEXT_MAX: Final = 300
"""Bytes of an answer that are read: enough for an error message, however long the answer is."""
_HEADERS: Final = {"Accept": "application/json", "User-Agent": "backoff-ctrl"}


class PlainHttp:
    """Calls one API server. Not thread-safe. It needs no client, of any version."""

    def __init__(self, configuration: Any) -> None:
        """Take the configuration of a client for threads or for asyncio.

        Raises ``OSError`` or ``ValueError`` if the files of the configuration cannot be used.
        """
        self._configuration = configuration
        detour = detour_of(configuration)
        url = urlsplit(configuration.host)
        from_environment = None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)
        proxy = detour.get("proxy", from_environment)
        options: dict[str, Any] = {}
        if url.scheme == "https":
            options = {"ssl_context": tls_of(configuration), "server_hostname": detour.get("server_hostname")}
        self._pool = (
            ProxyManager(proxy, proxy_headers=detour.get("proxy_headers"), **options)
            if proxy
            else PoolManager(**options)
        )

    def call(self, method: str, path: str, kind: str, body: Any, patience: float) -> tuple[int, dict[str, str], str]:
        """Return status, headers (names in lower case) and the beginning of the answer.

        ``kind`` is the content type; no step takes longer than ``patience`` seconds. Raises what urllib3 raises, and
        what the configuration's refresh hook raises.
        """
        response: Any = self._pool.request(
            method,
            f"{self._configuration.host}{path}",
            body=json.dumps(body).encode(),
            headers={**_HEADERS, "Content-Type": kind, **self._credentials()},
            timeout=Timeout(total=patience),
            preload_content=False,
            retries=False,
        )
        try:
            text = response.read(TEXT_MAX).decode("utf-8", "replace")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return response.status, headers, text
        finally:
            response.close() if response.length_remaining else response.release_conn()

    def _credentials(self) -> dict[str, str]:
        settings = self._configuration.auth_settings()  # runs the refresh hook
        if inspect.isawaitable(settings):  # of an asyncio client
            settings = asyncio.run(_result(settings))
        return credentials(settings)


async def _result(awaitable: Any) -> Any:
    return await awaitable

"""One create's way to the server through the session of a client for asyncio, of any package and generation."""

from __future__ import annotations

import http.client
import inspect
import json
from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol

import aiohttp
from multidict import CIMultiDict

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.creates.calls import Target

from .transport import ClientTransport


class AioSender(Protocol):
    """What an adapter offers its transport."""

    configuration: Any

    def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Awaitable[Any]:
        """Call the server as ``ApiClient`` does, whatever the status; return aiohttp's response."""


class AioTransport(ClientTransport[Coroutine[Any, Any, Answer]]):
    """Calls the server on the running event loop."""

    __slots__ = ("_last", "_sender")

    def __init__(self, sender: AioSender, target: Target, url: str, headers: dict[str, Any] | None, limit: Any) -> None:
        """Send through ``sender`` what its caller wants to create."""
        super().__init__(sender.configuration.host, target.namespace, url, headers, limit)
        self._sender = sender
        self._last: tuple[Answer, aiohttp.ClientResponse] | None = None

    async def refresh(self) -> None:
        """Fetch new credentials: the server has refused the old ones."""
        await self._settings()  # runs the configuration's refresh hook
        self.token_was_refreshed()

    async def call(self, method: str, url: str, body: Any, limit: Any) -> Answer:
        """Call the server with credentials of this moment. Raises ``NotSent`` and ``OutcomeUnknown``."""
        try:
            settings = await self._settings() if self.token_is_old() else None
            response = await self._sender.send_ungated(method, url, self.headers_with(settings), body, limit)
            answer = Answer(response.status, response.headers, await response.read())
        except aiohttp.ClientConnectorCertificateError:
            raise
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(str(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error
        if method == "POST":
            self._last = answer, response
        return answer

    async def _settings(self) -> Any:
        settings = self._sender.configuration.auth_settings()
        return await settings if inspect.isawaitable(settings) else settings  # kubernetes_asyncio before 33: a dict

    def response_of(self, answer: Answer) -> Any:
        """Return the response that the answer was read from (aiohttp keeps its bytes), else one made of the answer."""
        if self._last is not None and self._last[0] is answer:
            return self._last[1]
        return MadeResponse(answer, self._url)


class MadeResponse:
    """What callers use of an ``aiohttp.ClientResponse``, for an answer that did not come as one."""

    def __init__(self, answer: Answer, url: str) -> None:
        """Look like a response whose bytes have been read."""
        self.status = answer.status
        self.reason = http.client.responses.get(answer.status, "")
        self.headers = CIMultiDict(answer.headers)
        self.url = url
        self.ok = answer.ok
        self._body = answer.body

    async def read(self) -> bytes:
        """Return the body."""
        return self._body

    async def text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return self._body.decode(encoding, errors)

    async def json(self, **_: Any) -> Any:
        """Return the body, parsed."""
        return json.loads(self._body)

    def release(self) -> None:
        """Do nothing: no connection is held."""

    def close(self) -> None:
        """Do nothing: no connection is open."""

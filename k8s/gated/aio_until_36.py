"""The adapter for clients until 36, asyncio (``kubernetes_asyncio``, ``kubernetes.aio``); see ``until_36``."""

from __future__ import annotations

import copy
import inspect
from types import ModuleType
from typing import Any, ClassVar
from urllib.parse import urlencode

import aiohttp

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.create import Create

from .aio_transport import AioTransport
from .errors import async_wait_timeout, callers_error, with_bytes
from .gating import Gating

_Client: Any = object  # mixed in before the ``ApiClient`` of a package, of whose types nothing is known here


def adapted(client: ModuleType) -> type:
    """Return the ``ApiClient`` of this package with the adapter mixed in."""
    failed = client.ApiException

    class Adapted(AioUntil36, client.ApiClient):  # type: ignore[misc, name-defined]
        """The client of one package, gated."""

        _failed = failed
        _wait_timeout = async_wait_timeout(failed)

    return Adapted


class AioUntil36(_Client):  # type: ignore[misc]
    """Hands the creates of an ``ApiClient`` for asyncio to ``_gating``, and lets everything else pass."""

    _gating: Gating[AsyncGate]
    _failed: ClassVar[Any]
    _wait_timeout: ClassVar[Any]

    # -- interception ---------

    async def request(
        self,
        method: str,
        url: str,
        query_params: Any = None,
        headers: dict[str, Any] | None = None,
        post_params: Any = None,
        body: Any = None,
        _preload_content: bool = True,
        _request_timeout: Any = None,
    ) -> Any:
        """Do as ``ApiClient.request`` does, but let a create wait for its turn first."""
        full = f"{url}?{urlencode(query_params)}" if query_params else url
        prepared = self._gating.prepared(self, AioTransport, (method, full, headers, body, _request_timeout))
        if prepared is None:
            rest = (post_params, body, _preload_content, _request_timeout)
            return await self._pass(method, url, query_params, headers, *rest)
        create, transport = prepared
        await self._gating.gate.run(create, transport)
        return await self._response(create, transport, full, _preload_content)

    # -- answers as the client's responses ---------

    async def _response(self, create: Create, transport: AioTransport, url: str, preload: bool) -> Any:
        """Return the client's response for the answer, or raise its error."""
        if create.answer is None:
            raise with_bytes(callers_error(create, self._wait_timeout))
        rest_client = copy.copy(self.rest_client)
        rest_client.pool_manager = _Replayed(self._gating.respond(transport.response_of, create.answer))
        try:
            return await rest_client.POST(url, _preload_content=preload)
        except self._failed as error:
            self._gating.annotate(error, create)
            raise

    # -- what passes ungated ---------

    async def send_ungated(
        self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any
    ) -> aiohttp.ClientResponse:
        """Call the server as ``ApiClient`` does. (Without ``_preload_content`` it makes no error of a status.)"""
        response: aiohttp.ClientResponse = await super().request(
            method, url, headers=headers, body=body, _preload_content=False, _request_timeout=limit
        )
        return response

    async def _pass(self, method: str, url: str, *rest: Any) -> Any:
        sent = self._gating.gate.ledger.now()
        body, preloads = rest[3:5]
        try:
            response = await super().request(method, url, *rest)
        except self._failed as error:
            headers, refusal = error.headers or {}, error.body or b""
            self._gating.learn(method, url, body, sent=sent, status=error.status, headers=headers, refusal=refusal)
            raise
        unread = not preloads and self._gating.teaches(url, response.status)
        refusal = await response.read() if unread else b""
        headers = response.headers if unread else {}
        self._gating.learn(method, url, body, sent=sent, status=response.status, headers=headers, refusal=refusal)
        return response

    # -- credentials ---------

    def update_params_for_auth(self, headers: Any, *args: Any, **kwargs: Any) -> Any:
        """Do as ``ApiClient`` does (a coroutine since 33), but mark a header that came from the configuration."""
        updated = super().update_params_for_auth(headers, *args, **kwargs)
        if inspect.isawaitable(updated):
            return self._marked_after(updated, headers, kwargs)
        self._gating.mark(headers, kwargs)
        return None

    async def _marked_after(self, updated: Any, headers: Any, arguments: dict[str, Any]) -> None:
        await updated
        self._gating.mark(headers, arguments)


class _Replayed:
    """A session in which one response arrives that was received before."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def request(self, **_: Any) -> Any:
        return self._response

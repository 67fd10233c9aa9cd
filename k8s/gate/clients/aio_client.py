"""``AsyncGatedApiClient``: the same as ``GatedApiClient`` for ``kubernetes.aio`` and ``kubernetes_asyncio``.

Which package is meant is known once a client is made, so each generation's adapter is mixed in before the ``ApiClient``
of that package then. Where creates are intercepted, and why: see ``threads``.
"""

from __future__ import annotations

import copy
import http.client
import inspect
import json
import time
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Self
from urllib.parse import urlencode

from multidict import CIMultiDict

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.kube.answers.answer import Answer, NotSent, OutcomeUnknown

from .errors import AsyncWaitTimeout, annotate, async_wait_timeout, callers_error, with_bytes
from .gating import GatedClient, Gating, waiting
from .generations import asyncio_package, is_since_37
from .transport import ClientTransport, headers_to_send

__all__ = ["AsyncGatedApiClient", "AsyncWaitTimeout", "waiting"]

_Client: Any = object  # an ``ApiClient``, of a package that is not imported here


class AioTransport(ClientTransport):
    """Calls the server on the running event loop."""

    __slots__ = ("_last",)

    _last: tuple[Answer, Any]  # with the response that it was read from

    async def refresh(self) -> None:
        await self._settings()  # runs the configuration's refresh hook
        self.token_was_refreshed()

    async def call(self, method: str, url: str, body: Any, limit: Any) -> Answer:
        try:
            settings = await self._settings() if time.monotonic() > self._fresh_until else None
            headers = headers_to_send(self._headers, settings)
            response = await self._sender.send_ungated(method, url, headers, body, limit)
            answer = Answer(response.status, response.headers, await response.read())
        except _errors_of_calls() as error:
            import aiohttp  # noqa: PLC0415 - who calls this has loaded it

            if isinstance(error, aiohttp.ClientConnectorCertificateError):
                raise
            if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
                raise NotSent(str(error)) from error
            raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error
        if method == "POST":
            self._last = answer, response
        return answer

    async def _settings(self) -> Any:
        settings = self._sender.configuration.auth_settings()
        return await settings if inspect.isawaitable(settings) else settings  # kubernetes_asyncio before 33: a dict

    def response_of(self, answer: Answer) -> Any:
        """Return the response that the answer was read from (aiohttp keeps its bytes), else one made of the answer."""
        last, response = getattr(self, "_last", (None, None))
        return response if last is answer else MadeResponse(answer, self._url)


def _errors_of_calls() -> tuple[type[Exception], ...]:
    import aiohttp  # noqa: PLC0415 - slow to load, and needed only for a call

    return aiohttp.ClientError, TimeoutError, OSError


class MadeResponse:
    """What callers use of an ``aiohttp.ClientResponse``, for an answer that did not come as one."""

    def __init__(self, answer: Answer, url: str) -> None:
        self.status = answer.status
        self.reason = http.client.responses.get(answer.status, "")
        self.headers = CIMultiDict(answer.headers)
        self.url = url
        self.ok = answer.ok
        self._body = answer.body

    async def read(self) -> bytes:
        return self._body

    async def text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._body.decode(encoding, errors)

    async def json(self, **_: Any) -> Any:
        return json.loads(self._body)

    def release(self) -> None:
        """Hold no connection."""

    close = release


# -- the adapters ---------


class _AioAdapter(_Client):  # type: ignore[misc]
    """Hands the creates of an ``ApiClient`` to ``_gating``, and lets everything else pass.

    Here is the part that is the same for all generations. An heir also has ``send_ungated``, by which the gate sends.
    """

    _gating: Gating[AsyncGate]
    _package: ClassVar[ModuleType]
    """The ``client`` module of the package."""

    def _error(self, create: Create) -> BaseException:
        return callers_error(create, async_wait_timeout(self._package.ApiException))


class AioSince37(_AioAdapter):
    """Creates are intercepted in ``call_api``."""

    async def call_api(
        self,
        method: str,
        url: str,
        header_params: dict[str, Any] | None = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
        _preload_content: bool = True,
    ) -> Any:
        prepared = self._gating.prepared(self, method, url, header_params, body, _request_timeout)
        if prepared is None:
            return await self._pass(method, url, header_params, body, post_params, _request_timeout)
        create, transport = prepared
        del prepared  # each object more is one for each create that waits
        await self._gating.gate.run(create, transport)
        if create.answer is None:
            raise self._error(create)
        response = self._package.rest.RESTResponse(self._gating.respond(transport.response_of, create.answer))
        response.create = create
        return response

    async def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Any:
        response = await super().call_api(method, url, headers, body, None, limit)
        return response.response

    async def _pass(self, method: str, url: str, headers: Any, body: Any, *rest: Any) -> Any:
        sent = self._gating.now()
        response = await super().call_api(method, url, headers, body, *rest)
        refusal = await response.read() if self._gating.teaches(url, response.status) else b""
        self._gating.learn(method, url, body, sent, response.status, response.headers, refusal)
        return response

    def response_deserialize(self, response_data: Any, response_types_map: Any = None) -> Any:
        try:
            return super().response_deserialize(response_data, response_types_map)
        except self._package.ApiException as error:
            self._gating.attempt(annotate, error, getattr(response_data, "create", None))
            raise


class AioUntil36(_AioAdapter):
    """Creates are intercepted in ``request``."""

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
        full = f"{url}?{urlencode(query_params)}" if query_params else url
        prepared = self._gating.prepared(self, method, full, headers, body, _request_timeout)
        if prepared is None:
            rest = (post_params, body, _preload_content, _request_timeout)
            return await self._pass(method, url, query_params, headers, *rest)
        create, transport = prepared
        await self._gating.gate.run(create, transport)
        if create.answer is None:
            raise with_bytes(self._error(create))
        rest_client = copy.copy(self.rest_client)
        rest_client.pool_manager = self._gating.respond(_Replayed, transport, create.answer)
        try:
            return await rest_client.POST(full, _preload_content=_preload_content)
        except self._package.ApiException as error:
            self._gating.attempt(annotate, error, create)
            raise

    async def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Any:
        # Without ``_preload_content`` it makes no error of a status.
        return await super().request(
            method, url, headers=headers, body=body, _preload_content=False, _request_timeout=limit
        )

    async def _pass(self, method: str, url: str, *rest: Any) -> Any:
        sent, (body, preloads) = self._gating.now(), rest[3:5]
        try:
            response = await super().request(method, url, *rest)
        except self._package.ApiException as error:
            self._gating.learn(method, url, body, sent, error.status, error.headers, error.body or b"")
            raise
        unread = not preloads and self._gating.teaches(url, response.status)
        refusal = await response.read() if unread else b""
        self._gating.learn(method, url, body, sent, response.status, response.headers if unread else None, refusal)
        return response


class _Replayed:
    """A session in which one response arrives that was received before."""

    def __init__(self, transport: AioTransport, answer: Answer) -> None:
        self._response = transport.response_of(answer)

    async def request(self, **_: Any) -> Any:
        return self._response


# -- the client ---------


class AsyncGatedApiClient(GatedClient[AsyncGate], _Client):  # type: ignore[misc]
    """An ``ApiClient`` for asyncio that gates namespaced creates; everything else passes straight through.

    Its arguments are those of ``GatedApiClient``, and both kinds of client share one ledger. It is a client of the
    package that the configuration is of, ``kubernetes.aio`` or ``kubernetes_asyncio``; without a configuration, of the
    one that the program uses.
    """

    kind = AsyncGate
    transport = AioTransport

    def __new__(cls, configuration: Any = None, *_: Any, **__: Any) -> Self:
        """Make a client of the package that is meant."""
        made: Self = super().__new__(_of_package(cls, asyncio_package(configuration)))  # type: ignore[arg-type]  # types are hashable
        return made

    async def close(self) -> None:
        """Cancel what waits and log what that was, wait for the answers to what was sent, then close the client."""
        self._gating.gate.cancel_own("the client was closed")
        await self._gating.gate.drain()
        self._gating.share.release()
        await super().close()


@cache
def _of_package(cls: Any, package: str) -> Any:
    """Return ``cls`` (or a caller's subclass of it) as an ``ApiClient`` of this package, under its own name."""
    client = import_module(f"{package}.client")
    if issubclass(cls, client.ApiClient):
        return cls
    adapter = AioSince37 if is_since_37(package) else AioUntil36
    names = {"__module__": cls.__module__, "__doc__": cls.__doc__, "_package": client}
    return type(cls.__name__, (cls, adapter, client.ApiClient), names)

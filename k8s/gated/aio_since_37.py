"""The adapter for clients since 37, asyncio (``kubernetes.aio``); see ``since_37``."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import aiohttp

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.create import Create

from .aio_transport import AioTransport
from .errors import async_wait_timeout, callers_error
from .gating import Gating

if TYPE_CHECKING:  # mixed in before the ``ApiClient`` of a package, of which no more than its types is known here
    from kubernetes.aio.client import ApiClient
else:
    ApiClient = object


def adapted(client: ModuleType) -> type:
    """Return the ``ApiClient`` of this package with the adapter mixed in."""
    failed = client.ApiException

    class Adapted(AioSince37, client.ApiClient):  # type: ignore[misc, name-defined]
        """The client of one package, gated."""

        _failed = failed
        _rest_response = client.rest.RESTResponse
        _wait_timeout = async_wait_timeout(failed)

    return Adapted


class AioSince37(ApiClient):
    """Hands the creates of an ``ApiClient`` for asyncio to ``_gating``, and lets everything else pass."""

    _gating: Gating[AsyncGate]
    _failed: ClassVar[type[Exception]]
    _rest_response: ClassVar[Any]
    _wait_timeout: ClassVar[Any]

    # -- interception ---------

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
        """Do as ``ApiClient.call_api`` does, but let a create wait for its turn first."""
        call = method, url, header_params, body, _request_timeout
        prepared = self._gating.prepared(self, AioTransport, call)
        if prepared is None:
            return await self._pass(method, url, header_params, body, post_params, _request_timeout)
        create, transport = prepared
        await self._gating.gate.run(create, transport)
        return self._response(create, transport)

    # -- what passes ungated ---------

    async def send_ungated(
        self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any
    ) -> aiohttp.ClientResponse:
        """Call the server as ``ApiClient`` does."""
        response = await super().call_api(method, url, headers, body, None, limit)
        return response.response  # type: ignore[no-any-return]

    async def _pass(self, method: str, url: str, headers: Any, body: Any, *rest: Any) -> Any:
        sent = self._gating.gate.ledger.now()
        response = await super().call_api(method, url, headers, body, *rest)
        refusal = await response.read() if self._gating.teaches(url, response.status) else b""
        self._gating.learn(
            method, url, body, sent=sent, status=response.status, headers=response.headers, refusal=refusal
        )
        return response

    # -- answers as the client's responses ---------

    def _response(self, create: Create, transport: AioTransport) -> Any:
        if create.answer is None:
            raise callers_error(create, self._wait_timeout)
        response = self._rest_response(self._gating.respond(transport.response_of, create.answer))
        response.create = create
        return response

    def response_deserialize(self, response_data: Any, response_types_map: Any = None) -> Any:
        """Do as ``ApiClient`` does; the error of a gated create says what the gate knows of it."""
        try:
            return super().response_deserialize(response_data, response_types_map)
        except self._failed as error:
            self._gating.annotate(error, getattr(response_data, "create", None))
            raise

    # -- credentials ---------

    async def update_params_for_auth(self, headers: Any, *args: Any, **kwargs: Any) -> None:
        """Do as ``ApiClient`` does, but mark a header that came from the configuration."""
        await super().update_params_for_auth(headers, *args, **kwargs)
        self._gating.mark(headers, kwargs)

"""The adapter for kubernetes 37 and later, asyncio (``kubernetes.aio``); see ``since_37``."""

from __future__ import annotations

import http.client
import json
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException
from kubernetes.aio.client.rest import RESTResponse
from multidict import CIMultiDict

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown

from .aio_session import SparingRestClient
from .errors import LastAnswerShown, annotate, callers_error
from .tokens import ConfiguredToken
from .transport import ClientTransport

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

    from backoff_ctrl.k8s.creates.calls import Target
    from backoff_ctrl.k8s.gate.aio import AsyncGate
    from backoff_ctrl.k8s.gate.driver import Driver

    from .gating import Gating


class AsyncWaitTimeout(LastAnswerShown, ApiException, TimeoutError):  # noqa: N818 - the engine's word
    """The time limit has passed: an aio ``ApiException`` with the last answer (status 0: none), a ``TimeoutError``."""


class AioSince37(ApiClient):
    """An aio ``ApiClient`` that hands its creates to ``_gating``, and lets everything else pass."""

    _gating: Gating[AsyncGate]

    def __init__(self, configuration: Configuration | None = None, *args: Any, **kwargs: Any) -> None:
        """Take what ``ApiClient`` takes."""
        super().__init__(configuration, *args, **kwargs)
        self.rest_client = SparingRestClient(self.rest_client)

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
    ) -> RESTResponse:
        """Do as ``ApiClient.call_api`` does, but let a create wait for its turn first."""
        target = self._gating.gated(method, url, body)
        if target is None:
            return await self._pass(method, url, header_params, body, post_params, _request_timeout)
        transport = _Transport(self, target, url, header_params, _request_timeout)
        driver = self._gating.gate.prepare(self._gating.creation(target, header_params, body), transport)
        await driver.run()
        return self._response(driver, transport)

    # -- what passes ungated ---------

    async def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> RESTResponse:
        """Call the server as ``ApiClient`` does."""
        return await super().call_api(method, url, headers, body, None, limit)

    async def _pass(self, method: str, url: str, headers: Any, body: Any, *rest: Any) -> RESTResponse:
        sent = self._gating.gate.ledger.timers.now()
        response = await super().call_api(method, url, headers, body, *rest)
        refusal = await response.read() if self._gating.teaches(url, response.status) else b""
        self._gating.learn(
            method, url, body, sent=sent, status=response.status, headers=response.headers, refusal=refusal
        )
        return response

    # -- answers as the client's responses ---------

    def _response(self, driver: Driver, transport: _Transport) -> RESTResponse:
        if driver.answer is None:
            raise callers_error(driver, AsyncWaitTimeout)
        response = transport.response_of(driver.answer)
        response.driver = driver  # type: ignore[attr-defined]
        return response

    def response_deserialize(self, response_data: Any, response_types_map: Any = None) -> Any:
        """Do as ``ApiClient`` does; the error of a gated create says what the gate knows of it."""
        try:
            return super().response_deserialize(response_data, response_types_map)
        except ApiException as error:
            annotate(error, getattr(response_data, "driver", None))
            raise

    # -- credentials ---------

    async def update_params_for_auth(self, headers: Any, *args: Any, **kwargs: Any) -> None:
        """Do as ``ApiClient`` does, but mark a header that came from the configuration."""
        await super().update_params_for_auth(headers, *args, **kwargs)
        if kwargs.get("request_auth") is None and "authorization" in headers:
            headers["authorization"] = ConfiguredToken(headers["authorization"])


class _Transport(ClientTransport[Coroutine[Any, Any, Answer]]):
    """One create's way to the server, through the client's own session."""

    def __init__(
        self, client: AioSince37, target: Target, url: str, headers: dict[str, Any] | None, limit: Any
    ) -> None:
        super().__init__(client.configuration.host, target.namespace, url, headers, limit)
        self._client = client
        self._last: tuple[Answer, RESTResponse] | None = None

    async def refresh(self) -> None:
        await self._client.configuration.auth_settings()  # runs the configuration's refresh hook
        self.token_was_refreshed()

    async def call(self, method: str, url: str, body: Any, limit: Any) -> Answer:
        try:
            settings = await self._client.configuration.auth_settings() if self.token_is_old() else None
            response = await self._client.send_ungated(method, url, self.headers_with(settings), body, limit)
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

    def response_of(self, answer: Answer) -> RESTResponse:
        """Return the response that the answer was read from (aiohttp keeps its bytes), else one made of the answer."""
        if self._last is not None and self._last[0] is answer:
            return self._last[1]
        return RESTResponse(_MadeResponse(answer, self._url))


class _MadeResponse:
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
        """Do nothing: no connection is held."""

    def close(self) -> None:
        """Do nothing: no connection is open."""

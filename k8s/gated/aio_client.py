"""``AsyncGatedApiClient``: the same as ``GatedApiClient`` for ``kubernetes.aio``, with the same arguments."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException
from kubernetes.aio.client.rest import RESTResponse
from multidict import CIMultiDict

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown, WaitedTooLong
from backoff_ctrl.k8s.creates.calls import Target, creation, is_gated, quotas_url, read_target, teaching
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.closing import cancel_all
from backoff_ctrl.k8s.gate.first_list import READ_PATIENCE
from backoff_ctrl.k8s.sharing.process import Share

from .aio_session import SparingRestClient
from .error_notes import Account, unwrapped
from .tokens import FRESH, ConfiguredToken
from .waiting import current_options, waiting

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

    from backoff_ctrl.k8s.gate.driver import Errand
    from backoff_ctrl.k8s.gate.threads import Gate

__all__ = ["AsyncGatedApiClient", "AsyncWaitTimeout", "waiting"]


class AsyncWaitTimeout(ApiException, TimeoutError):  # noqa: N818 - the engine's word
    """The waiting time is over: an aio ``ApiException`` with the last answer seen (status 0: none)."""

    def __init__(self, cause: WaitedTooLong) -> None:
        """Show the last answer as the client would."""
        answer = cause.answer
        super().__init__(status=0 if answer is None else answer.status, reason=str(cause))
        if answer is not None:
            self.headers = answer.headers
            self.body = answer.body.decode("utf-8", "replace")


class AsyncGatedApiClient(ApiClient):
    """An aio ``ApiClient`` that gates namespaced creates; everything else passes straight through."""

    def __init__(
        self,
        configuration: Configuration | None = None,
        *args: Any,
        gate: Gate | AsyncGate | None = None,
        events: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Take what ``ApiClient`` takes, the gate, and whether to write events (None: BACKOFF_CTRL_EVENTS=1)."""
        super().__init__(configuration, *args, **kwargs)
        self.rest_client = SparingRestClient(self.rest_client)
        self._share = Share(self.configuration, gate, events)
        self.gate = AsyncGate(desk=self._share.desk)
        self._under_way: set[Errand] = set()

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
        """Do as ``ApiClient.call_api`` does; a create waits for its turn first."""
        target = read_target(self.configuration.host, url)
        if target is None or not is_gated(method, target, body):
            return await self._pass(target, method, url, header_params, body, post_params, _request_timeout)
        transport = _Transport(self, target.namespace, url, header_params, _request_timeout)
        what = creation(self.configuration.host, target, header_params or {}, body, current_options())
        begun: list[Errand] = []
        answer, failure = None, None
        try:
            answer = await self.gate.create(what, transport, begun=lambda errand: self._began(errand, begun))
        except Exception as error:  # noqa: BLE001 - raised below, as the client's own kind
            failure = error
        finally:
            self._under_way.difference_update(begun)
        if answer is None:
            assert failure is not None
            raise AsyncWaitTimeout(failure) if isinstance(failure, WaitedTooLong) else unwrapped(failure)
        response = transport.response_of(answer)
        response.account = Account.of(begun[0])  # type: ignore[attr-defined]
        return response

    def response_deserialize(self, response_data: Any, response_types_map: Any = None) -> Any:
        """Do as ``ApiClient`` does; an error for a gated create says what the gate knows of it."""
        try:
            return super().response_deserialize(response_data, response_types_map)
        except ApiException as error:
            account = getattr(response_data, "account", None)
            if account is not None:
                account.annotate(error)
            raise

    async def update_params_for_auth(self, headers: Any, *args: Any, **kwargs: Any) -> None:
        """Do as ``ApiClient`` does, and mark a header that came from the configuration."""
        await super().update_params_for_auth(headers, *args, **kwargs)
        if kwargs.get("request_auth") is None and "authorization" in headers:
            headers["authorization"] = ConfiguredToken(headers["authorization"])

    async def close(self) -> None:
        """Cancel what waits, say what that was, let what was sent be answered, then do as ``ApiClient`` does."""
        cancel_all(list(self._under_way), "the client was closed")
        await self.gate.settled()
        self._share.release()
        await super().close()  # type: ignore[no-untyped-call]

    async def send_now(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> RESTResponse:
        """Call the server, ungated."""
        return await super().call_api(method, url, headers, body, None, limit)

    def _began(self, errand: Errand, begun: list[Errand]) -> None:
        begun.append(errand)
        self._under_way.add(errand)

    async def _pass(
        self, target: Target | None, method: str, url: str, headers: Any, body: Any, *rest: Any
    ) -> RESTResponse:
        sent = self.gate.desk.timers.now()
        response = await super().call_api(method, url, headers, body, *rest)
        if target is None:
            return response
        if response.status == 403:
            taught = teaching(target, response.status, response.headers, await response.read(), body)
            if taught is not None:
                self.gate.desk.learn(target.namespace, *taught, sent)
        elif method.upper() == "DELETE" and response.status == 200:
            self.gate.desk.hint_release(target.namespace)
        return response


class _Transport:
    """One create's way to the server, through the client's own session."""

    def __init__(
        self, client: AsyncGatedApiClient, namespace: str, url: str, headers: dict[str, Any] | None, timeout: Any
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._url = url
        self._headers = headers or {}
        self._fresh_until = time.monotonic() + FRESH  # the client has just asked for them
        self._timeout = timeout or SERVER_LIMIT  # a create is over on the server by then
        self._last: tuple[Answer, RESTResponse] | None = None

    async def send(self, body: dict[str, Any]) -> Answer:
        return await self._call("POST", self._url, body)

    async def look_up(self, name: str) -> Answer:
        return await self._call("GET", f"{self._url.partition('?')[0]}/{name}", None)

    async def read_quotas(self) -> Answer:
        url = quotas_url(self._client.configuration.host, self._namespace)
        return await self._call("GET", url, None, READ_PATIENCE)

    async def refresh(self) -> None:
        await self._client.configuration.auth_settings()  # runs the configuration's refresh hook
        self._fresh_until = float("-inf")

    async def _credentials(self) -> dict[str, Any]:
        """Return the headers with credentials of this moment."""
        headers = dict(self._headers)
        if isinstance(headers.get("authorization"), ConfiguredToken) and time.monotonic() > self._fresh_until:
            token = (await self._client.configuration.auth_settings()).get("BearerToken")
            if token is not None:
                headers["authorization"] = token["value"]
        return headers

    def response_of(self, answer: Answer) -> RESTResponse:
        """Return the response that the answer was read from (aiohttp keeps its bytes), else one made of it."""
        if self._last is not None and self._last[0] is answer:
            return self._last[1]
        return RESTResponse(MadeResponse(answer, self._url))

    async def _call(self, method: str, url: str, body: Any, patience: float | None = None) -> Answer:
        try:
            timeout = patience or self._timeout
            response = await self._client.send_now(method, url, await self._credentials(), body, timeout)
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


class MadeResponse:
    """What callers use of an ``aiohttp.ClientResponse``, for an answer that did not come as one."""

    def __init__(self, answer: Answer, url: str) -> None:
        """Look like a response that was read."""
        self.status = answer.status
        self.reason = http.client.responses.get(answer.status, "")
        self.headers = CIMultiDict(answer.headers)
        self.url = url
        self.ok = answer.ok
        self._body = answer.body

    async def read(self) -> bytes:
        """Return the bytes."""
        return self._body

    async def text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the bytes as text."""
        return self._body.decode(encoding, errors)

    async def json(self, **_: Any) -> Any:
        """Return the bytes as JSON."""
        return json.loads(self._body)

    def release(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""

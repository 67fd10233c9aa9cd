"""The adapter for kubernetes 37 and later, threads: ``param_serialize > call_api > rest_client.request``.

All that depends on the generation of the client is here: how a create is intercepted, how its answer becomes the
client's response, and how credentials are refreshed. Generated methods, raw calls and the DynamicClient all end in
``call_api``, those with ``async_req`` in ``_call_with_legacy_options``. Options per request go around the generated
methods, which validate their arguments (see ``waiting``).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import urllib3
from kubernetes.client import ApiClient, ApiException

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT
from backoff_ctrl.k8s.gate.first_list import READ_PATIENCE

from .errors import WaitTimeout, annotate, callers_error
from .pending import PendingCreate
from .responses import UnreadResponse
from .tokens import ConfiguredToken
from .transport import ClientTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes.client import Configuration
    from kubernetes.client.rest import RESTResponse

    from backoff_ctrl.k8s.creates.calls import Target
    from backoff_ctrl.k8s.gate.driver import Driver
    from backoff_ctrl.k8s.gate.threads import Gate

    from .gating import Gating

_NEVER_MADE = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)
_BUILD: Final[Callable[..., Any] | None] = getattr(ApiClient, "_ApiClient__deserialize", None)
"""How ``ApiClient`` makes a model of parsed JSON; None: this version does it otherwise."""


class Since37(ApiClient):
    """An ``ApiClient`` that hands its creates to ``_gating``, and lets everything else pass."""

    _gating: Gating[Gate]

    def __init__(self, configuration: Configuration | None = None, *args: Any, **kwargs: Any) -> None:
        """Take what ``ApiClient`` takes."""
        super().__init__(configuration, *args, **kwargs)
        self._local = threading.local()  # of the call that this thread is making

    # -- interception ---------

    def call_api(
        self,
        method: str,
        url: str,
        header_params: dict[str, Any] | None = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> RESTResponse:
        """Do as ``ApiClient.call_api`` does, but let a create wait for its turn first."""
        ended: Driver | None = getattr(self._local, "ended", None)
        if ended is not None:  # a create with async_req, whose answer is only to be deserialized
            self._local.ended = None
            return self._response(ended)
        target = self._gating.gated(method, url, body)
        if target is None:
            return self._pass(method, url, header_params, body, post_params, _request_timeout)
        transport = _Transport(self, target, url, header_params, _request_timeout)
        driver = self._gating.gate.prepare(self._gating.creation(target, header_params, body), transport)
        driver.run()
        return self._response(driver)

    def _call_with_legacy_options(
        self,
        request: Any,
        response_types_map: Any,
        async_req: bool | None,
        preload_content: bool,
        request_timeout: Any,
        return_http_data_only: bool,
    ) -> Any:
        rest = (preload_content, request_timeout, return_http_data_only)
        if async_req:
            method, url, _, body, _ = request
            target = self._gating.gated(method, url, body)
            if target is None:
                return super()._call_with_legacy_options(request, response_types_map, async_req, *rest)
            return self._create_later(target, request, response_types_map, rest)
        try:
            return super()._call_with_legacy_options(request, response_types_map, None, *rest)
        except ApiException as error:
            annotate(error, getattr(self._local, "driver", None))
            raise
        finally:
            self._local.driver = None

    def _create_later(
        self, target: Target, request: Any, response_types_map: Any, rest: tuple[Any, ...]
    ) -> PendingCreate:
        """Start a create whose steps run on the client's own pool, which it leaves free while it waits."""
        _, url, headers, body, _ = request
        pool = self.pool  # made here, with its atexit hook, which closes this client
        transport = _Transport(self, target, url, headers, rest[1])
        what = self._gating.creation(target, headers, body)

        def conclude() -> Any:
            self._local.ended = driver
            return self._call_with_legacy_options(request, response_types_map, None, *rest)

        def post(step: Callable[[], None]) -> None:
            try:
                pool.apply_async(step)
            except ValueError:  # the pool is closed: only the end of a cancelled create is left to do
                step()

        pending = PendingCreate(conclude)
        driver = self._gating.gate.prepare_on(post, what, transport, pending.finish)
        post(driver.begin)
        return pending

    # -- what passes ungated ---------

    def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> RESTResponse:
        """Call the server as ``ApiClient`` does."""
        return super().call_api(method, url, headers, body, None, limit)

    def _pass(self, method: str, url: str, headers: Any, body: Any, *rest: Any) -> RESTResponse:
        sent = self._gating.gate.ledger.timers.now()
        response = super().call_api(method, url, headers, body, *rest)
        refusal = response.read() if self._gating.teaches(url, response.status) else b""
        self._gating.learn(
            method, url, body, sent=sent, status=response.status, headers=response.headers, refusal=refusal
        )
        return response

    # -- answers as the client's responses ---------

    def _response(self, driver: Driver) -> RESTResponse:
        if driver.answer is None:
            raise callers_error(driver, WaitTimeout)
        self._local.driver = driver
        return UnreadResponse(driver.answer, driver)

    def response_deserialize(self, response_data: Any, response_types_map: Any = None) -> Any:
        """Do as ``ApiClient`` does; the error of a gated create says what the gate knows of it."""
        ours = isinstance(response_data, UnreadResponse) and type(self).deserialize is Since37.deserialize
        self._local.read = response_data.take() if ours else None
        try:
            return super().response_deserialize(response_data, response_types_map)
        except ApiException as error:
            annotate(error, getattr(response_data, "driver", None))
            raise
        finally:
            self._local.read = None

    def deserialize(self, response_text: str, response_type: str, content_type: str | None) -> Any:
        """Do as ``ApiClient`` does; JSON that the gate has parsed is not parsed again: a quarter of the time."""
        read = getattr(self._local, "read", None)
        if read is None or _BUILD is None:
            return super().deserialize(response_text, response_type, content_type)
        return _BUILD(self, read, response_type)

    # -- credentials ---------

    def update_params_for_auth(
        self,
        headers: Any,
        queries: Any,
        auth_settings: Any,
        resource_path: Any,
        method: Any,
        body: Any,
        request_auth: Any = None,
    ) -> None:
        """Do as ``ApiClient`` does, but mark the configuration's header, and ask for that at most once a second."""
        token = self._gating.token
        configured = request_auth is None and auth_settings == ["BearerToken"]
        known = token.of(self.configuration) if configured else None
        if known is not None:
            headers["authorization"] = known
            return
        super().update_params_for_auth(headers, queries, auth_settings, resource_path, method, body, request_auth)
        if configured and "authorization" in headers:
            headers["authorization"] = header = ConfiguredToken(headers["authorization"])
            token.note(self.configuration, header)


class _Transport(ClientTransport[Answer]):
    """One create's way to the server, through the client's own connections."""

    server_limit = (SERVER_LIMIT, SERVER_LIMIT)  # to connect, to read
    list_limit = (READ_PATIENCE, READ_PATIENCE)

    def __init__(self, client: Since37, target: Target, url: str, headers: dict[str, Any] | None, limit: Any) -> None:
        super().__init__(client.configuration.host, target.namespace, url, headers, limit)
        self._client = client

    def refresh(self) -> None:
        self._client.configuration.auth_settings()  # runs the configuration's refresh hook
        self.token_was_refreshed()

    def call(self, method: str, url: str, body: Any, limit: Any) -> Answer:
        try:
            settings = self._client.configuration.auth_settings() if self.token_is_old() else None
            response = self._client.send_ungated(method, url, self.headers_with(settings), body, limit)
            return Answer(response.status, response.headers, response.read())
        except urllib3.exceptions.MaxRetryError as error:
            if isinstance(error.reason, _NEVER_MADE):
                raise NotSent(str(error)) from error
            raise
        except _NEVER_MADE as error:
            raise NotSent(str(error)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise OutcomeUnknown(str(error)) from error

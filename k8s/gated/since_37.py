"""The adapter for kubernetes since 37, threads: ``param_serialize > call_api > rest_client.request``.

All that depends on the generation of the client is here: how a create is intercepted, how its answer becomes the
client's response, and how credentials are refreshed. Generated methods, raw calls and the DynamicClient all end in
``call_api``, those with ``async_req`` in ``_call_with_legacy_options``. Options per request go around the generated
methods, which validate their arguments (see ``waiting``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.client.rest import RESTResponse

from backoff_ctrl.k8s.answers.answer import Answer
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.locked_engine import Failure
from backoff_ctrl.k8s.gate.threads import Gate

from .errors import callers_error
from .gating import Gating
from .pending import PendingCreate
from .thread_transport import ThreadTransport, UnreadResponse, WaitTimeout
from .transport import ConfiguredToken

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
        ended: Create | None = getattr(self._local, "ended", None)
        if ended is not None:  # a create with async_req, whose answer is only to be deserialized
            self._local.ended = None
            return self._response(ended)
        call = method, url, header_params, body, _request_timeout
        prepared = self._gating.prepared(self, ThreadTransport, call)
        if prepared is None:
            return self._pass(method, url, header_params, body, post_params, _request_timeout)
        self._local.create = create = prepared[0]
        self._gating.gate.run(*prepared)
        return self._response(create)

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
            pending = self._gating.attempt(self._create_later, request, response_types_map, rest)
            if isinstance(pending, PendingCreate):
                return pending
            return super()._call_with_legacy_options(request, response_types_map, async_req, *rest)
        try:
            return super()._call_with_legacy_options(
                request, response_types_map, None, preload_content, request_timeout, return_http_data_only
            )  # written out: ``*rest`` takes 0.2 kB for each create that waits
        except ApiException as error:
            self._gating.annotate(error, getattr(self._local, "create", None))
            raise
        finally:
            self._local.create = None

    def _create_later(self, request: Any, response_types_map: Any, rest: tuple[Any, ...]) -> PendingCreate | None:
        """Start a create on the pool; None: the call is not gated."""
        method, url, headers, body, _ = request
        prepared = self._gating.prepared(self, ThreadTransport, (method, url, headers, body, rest[1]))
        if prepared is None:
            return None
        # The pool is made here, with its atexit hook, which closes this client.
        pending = PendingCreate(prepared[0], self.pool, partial(self._conclude, request, response_types_map, rest))
        pending.begin(self._gating.gate, prepared[1])
        return pending

    def _conclude(self, request: Any, response_types_map: Any, rest: tuple[Any, ...], ended: Create) -> Any:
        self._local.ended = ended
        return self._call_with_legacy_options(request, response_types_map, None, *rest)

    # -- what passes ungated ---------

    def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Answer:
        """Call the server as ``ApiClient`` does."""
        response = super().call_api(method, url, headers, body, None, limit)
        return Answer(response.status, response.headers, response.read())

    def _pass(self, method: str, url: str, headers: Any, body: Any, *rest: Any) -> RESTResponse:
        sent = self._gating.gate.ledger.now()
        response = super().call_api(method, url, headers, body, *rest)
        refusal = response.read() if self._gating.teaches(url, response.status) else b""
        self._gating.learn(
            method, url, body, sent=sent, status=response.status, headers=response.headers, refusal=refusal
        )
        return response

    # -- answers as the client's responses ---------

    def _response(self, create: Create) -> RESTResponse:
        if create.answer is None:
            raise callers_error(create, WaitTimeout)
        return self._gating.respond(UnreadResponse, create.answer, create)

    def response_deserialize(self, response_data: Any, response_types_map: Any = None) -> Any:
        """Do as ``ApiClient`` does; the error of a gated create says what the gate knows of it."""
        ours = isinstance(response_data, UnreadResponse) and type(self).deserialize is Since37.deserialize
        read = self._gating.attempt(response_data.take) if ours else None
        self._local.read = None if isinstance(read, Failure) else read
        try:
            return super().response_deserialize(response_data, response_types_map)
        except ApiException as error:
            self._gating.annotate(error, getattr(response_data, "create", None))
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
        known = self._gating.attempt(token.of, self.configuration) if configured else None
        if isinstance(known, ConfiguredToken):
            headers["authorization"] = known
            return
        super().update_params_for_auth(headers, queries, auth_settings, resource_path, method, body, request_auth)
        if configured and "authorization" in headers:
            headers["authorization"] = header = ConfiguredToken(headers["authorization"])
            self._gating.attempt(token.note, self.configuration, header)

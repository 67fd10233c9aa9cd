"""The adapter for kubernetes until 36, threads: ``call_api > __call_api > request > rest_client.request``.

Creates are intercepted in ``request``: above it body and headers are not complete yet, and below it the query is mixed
in and statuses have become errors. The rest client makes the caller's response, or error, from the gate's answer: it
is given that answer to read again. ``async_req`` is seen in ``call_api`` only, which serializes on the pool; there a
create is serialized at once, and its steps run on the pool.
"""

from __future__ import annotations

import copy
import inspect
import threading
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient, ApiException

from backoff_ctrl.k8s.answers.answer import Answer
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.threads import Gate

from .errors import callers_error, with_bytes
from .gating import Gating
from .pending import PendingCreate
from .thread_transport import ThreadTransport, WaitTimeout, rewrapped

_Client: Any = ApiClient  # its types are those of the newest generation, which has other methods
_CALL: Final = inspect.signature(ApiClient.call_api)
_ASYNC: Final = list(_CALL.parameters).index("async_req") - 1 if "async_req" in _CALL.parameters else 0
_DECODES: Final = "response_types_map" in _CALL.parameters
"""Whether ``call_api`` decodes the bodies of errors: since 36; before that the rest client did."""


class Until36(_Client):  # type: ignore[misc]
    """An ``ApiClient`` that hands its creates to ``_gating``, and lets everything else pass."""

    _gating: Gating[Gate]
    configuration: Any

    def __init__(self, configuration: Any = None, *args: Any, **kwargs: Any) -> None:
        """Take what ``ApiClient`` takes."""
        super().__init__(configuration, *args, **kwargs)
        self._local = threading.local()  # of the call that this thread is making

    # -- interception ---------

    def request(
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
        ended: Create | None = getattr(self._local, "ended", None)
        if ended is not None:  # a create with async_req, whose answer is only to be deserialized
            self._local.ended = None
            return self._response(ended, url, _preload_content)
        full = f"{url}?{urlencode(query_params)}" if query_params else url
        if getattr(self._local, "captures", False):
            raise _CapturedError(method, full, headers, body, _request_timeout)
        prepared = self._gating.prepared(self, ThreadTransport, (method, full, headers, body, _request_timeout))
        if prepared is None:
            rest = (post_params, body, _preload_content, _request_timeout)
            return self._pass(method, url, query_params, headers, *rest)
        self._gating.gate.run(*prepared)
        return self._response(prepared[0], full, _preload_content)

    def call_api(self, *args: Any, **kwargs: Any) -> Any:
        """Do as ``ApiClient.call_api`` does, but a create with ``async_req`` holds no thread while it waits."""
        if not (kwargs["async_req"] if "async_req" in kwargs else any(args[_ASYNC : _ASYNC + 1])):
            return super().call_api(*args, **kwargs)
        call = _CALL.bind(self, *args, **kwargs)
        if str(call.arguments["method"]).upper() != "POST":
            return super().call_api(*args, **kwargs)
        call.arguments["async_req"] = None
        try:
            self._local.captures = True
            value = super().call_api(*call.args[1:], **call.kwargs)
        except _CapturedError as captured:
            found = captured.args
        except (ApiException, ValueError, TypeError) as error:  # raised by get(), as if the pool had raised it
            return self.pool.apply_async(_raise, (error,))
        else:  # a subclass has sent it by ways of its own
            return self.pool.apply_async(lambda: value)
        finally:
            self._local.captures = False
        pending = self._gating.attempt(self._create_later, call, found)
        return pending if isinstance(pending, PendingCreate) else super().call_api(*args, **kwargs)

    def _create_later(self, call: inspect.BoundArguments, found: Any) -> PendingCreate | None:
        """Start a create on the pool; None: the call is not gated."""
        prepared = self._gating.prepared(self, ThreadTransport, found)
        if prepared is None:
            return None
        call.arguments["auth_settings"] = []  # after the answer nobody needs credentials
        # The pool is made here, with its atexit hook, which closes this client.
        pending = PendingCreate(prepared[0], self.pool, partial(self._conclude, call))
        pending.begin(self._gating.gate, prepared[1])
        return pending

    def _conclude(self, call: inspect.BoundArguments, ended: Create) -> Any:
        self._local.ended = ended
        return super().call_api(*call.args[1:], **call.kwargs)

    # -- what passes ungated ---------

    def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Answer:
        """Call the server as ``ApiClient`` does."""
        try:
            response = super().request(
                method, url, headers=headers, body=body, _preload_content=False, _request_timeout=limit
            )
        except ApiException as error:
            if not error.status:  # no answer: TLS failed
                raise
            return Answer(error.status, error.headers or {}, _bytes(error.body))
        return Answer(response.status, response.headers, response.data)

    def _pass(self, method: str, url: str, *rest: Any) -> Any:
        sent = self._gating.gate.ledger.now()
        body = rest[3]
        try:
            response = super().request(method, url, *rest)
        except ApiException as error:
            headers, refusal = error.headers or {}, _bytes(error.body)
            self._gating.learn(method, url, body, sent=sent, status=error.status, headers=headers, refusal=refusal)
            raise
        self._gating.learn(method, url, body, sent=sent, status=response.status, headers={}, refusal=b"")
        return response

    # -- answers as the client's responses ---------

    def _response(self, create: Create, url: str, preload: bool) -> Any:
        """Return the client's response for the answer, or raise its error."""
        if create.answer is None:
            error = callers_error(create, WaitTimeout)
            raise with_bytes(error) if _DECODES else error
        rest_client = copy.copy(self.rest_client)
        rest_client.pool_manager = self._gating.respond(_Replayed, create.answer)
        try:
            return rest_client.POST(url, _preload_content=preload)
        except ApiException as error:
            self._gating.annotate(error, create)
            raise

    # -- credentials ---------

    def update_params_for_auth(self, headers: Any, *args: Any, **kwargs: Any) -> None:
        """Do as ``ApiClient`` does, but mark a header that came from the configuration."""
        super().update_params_for_auth(headers, *args, **kwargs)
        self._gating.mark(headers, kwargs)


class _CapturedError(Exception):
    """Ends the serialization of a call that is not to be sent yet. Its arguments are what would have been sent."""


class _Replayed:
    """Connections on which one answer arrives that was received before."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def request(self, *_: Any, **__: Any) -> urllib3.HTTPResponse:
        return rewrapped(self._answer)


def _raise(error: BaseException) -> None:
    raise error


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""

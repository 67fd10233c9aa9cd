"""The client for threads, gated, on each generation of it; ``client`` mixes in the one that is installed.

- Since 37: ``param_serialize > call_api > rest_client.request``. Generated methods, raw calls and the DynamicClient all
  end in ``call_api``, where creates are intercepted. With ``async_req`` that runs on the client's pool, which has one
  thread: such creates are intercepted before, in ``_call_with_legacy_options``.
- Until 36: ``call_api > __call_api > request > rest_client.request``. Creates are intercepted in ``request``: above it
  body and headers are not complete yet, and below it the query is mixed in and statuses have become errors. The rest
  client makes the caller's response, or error, from the gate's answer: it is given that answer to read again.
  ``async_req`` is seen in ``call_api`` only, which serializes on the pool; there a create is serialized at once.
"""

from __future__ import annotations

import copy
import http.client
import inspect
import io
import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient, ApiException
from kubernetes.client.rest import RESTResponse

from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.life import Transport
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.gate.together import READ_PATIENCE
from backoff_ctrl.k8s.kube.answers.answer import SERVER_LIMIT, Answer, NotSent, OutcomeUnknown

from .errors import LastAnswerShown, annotate, callers_error, with_bytes
from .gating import Gating
from .transport import ClientTransport, headers_to_send

_NEVER_MADE = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)
_NO_ANSWERS = (urllib3.exceptions.SSLError, urllib3.exceptions.ResponseError)
"""A certificate that is not trusted, too many redirects: trying again would not help."""
_OF_THE_WIRE = frozenset({"content-encoding", "transfer-encoding", "content-length"})
_BUILD: Final[Callable[..., Any] | None] = getattr(ApiClient, "_ApiClient__deserialize", None)
"""How ``ApiClient`` makes a model of parsed JSON; None: this version does it otherwise."""
_CALL: Final = inspect.signature(ApiClient.call_api)
_ASYNC: Final = list(_CALL.parameters).index("async_req") - 1 if "async_req" in _CALL.parameters else 0
_DECODES: Final = "response_types_map" in _CALL.parameters
"""Whether ``call_api`` decodes the bodies of errors: since 36; before that the rest client did."""


class ThreadTransport(ClientTransport):
    """Calls the server in the thread that asks for it."""

    __slots__ = ()

    server_limit = (SERVER_LIMIT, SERVER_LIMIT)  # to connect, to read
    list_limit = (READ_PATIENCE, READ_PATIENCE)

    def refresh(self) -> None:
        self._sender.configuration.auth_settings()  # runs the configuration's refresh hook
        self.token_was_refreshed()

    def call(self, method: str, url: str, body: Any, limit: Any) -> Answer:
        try:
            settings = self._sender.configuration.auth_settings() if time.monotonic() > self._fresh_until else None
            headers = headers_to_send(self._headers, settings)
            answer: Answer = self._sender.send_ungated(method, url, headers, body, limit)
        except urllib3.exceptions.MaxRetryError as error:
            if isinstance(error.reason, _NEVER_MADE):
                raise NotSent(str(error)) from error
            if isinstance(error.reason, _NO_ANSWERS):
                raise
            raise OutcomeUnknown(str(error)) from error  # a look-up that the client has repeated in vain
        except _NEVER_MADE as error:
            raise NotSent(str(error)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise OutcomeUnknown(str(error)) from error
        return answer


class WaitTimeout(LastAnswerShown, ApiException, TimeoutError):  # noqa: N818 - the engine's word
    """The time limit has passed: an ``ApiException`` with the last answer (status 0: no answer), a ``TimeoutError``."""


def rewrapped(answer: Answer) -> urllib3.HTTPResponse:
    """Return an unread response with the answer's bytes, so that ``read()`` works although the gate has read them."""
    headers = [(name, value) for name, value in answer.headers.items() if name.lower() not in _OF_THE_WIRE]
    headers.append(("Content-Length", str(len(answer.body))))
    return urllib3.HTTPResponse(
        body=io.BytesIO(answer.body),
        headers=urllib3.HTTPHeaderDict(headers),
        status=answer.status,
        reason=http.client.responses.get(answer.status, ""),
        version=11,
        preload_content=False,
    )


class PendingCreate:
    """A create with ``async_req``, as ``multiprocessing.pool.AsyncResult``. It holds no thread while it waits.

    Its steps run on the client's own pool; only callers of ``get`` and ``wait`` block. The client's object is made when
    a caller gets it: by ``conclude(create, *call)``, which raises the create's error.
    """

    __slots__ = ("_call", "_conclude", "_ended", "_pool", "_running", "_value", "create")

    def __init__(self, create: Create, pool: ThreadPool, conclude: Callable[..., Any], call: tuple[Any, ...]) -> None:
        self.create = create
        self._pool = pool
        self._conclude = conclude
        self._call = call
        self._ended = False
        self._running = threading.Lock()  # held until the create has ended: an Event takes ten times the memory
        self._running.acquire()
        self._value: tuple[Any, ...] = ()

    def begin(self, gate: Gate, transport: Transport) -> None:
        gate.run_on(self._post, self.create, transport, self._end)

    def _post(self, step: Callable[[], object]) -> None:
        try:
            self._pool.apply_async(step)
        except ValueError:  # the pool is closed: only the end of a cancelled create is left to do
            step()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._running.release()

    def ready(self) -> bool:
        return self._ended

    def successful(self) -> bool:
        if not self._ended:
            raise ValueError(f"{self!r} not ready")
        return self.create.answer is not None and self.create.answer.ok

    def wait(self, timeout: float | None = None) -> None:
        if not self._ended and self._running.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            self._running.release()  # to the next who waits

    def get(self, timeout: float | None = None) -> Any:
        self.wait(timeout)
        if not self._ended:
            raise multiprocessing.TimeoutError
        if not self._value:
            self._value = (self._conclude(self.create, *self._call),)
        return self._value[0]


class ThreadAdapter(ApiClient):
    """Hands the creates of an ``ApiClient`` to ``_gating``, and lets everything else pass.

    Here is the part that is the same for all generations. An heir also has ``send_ungated``, by which the gate sends.
    """

    _gating: Gating[Gate]

    def _later(
        self, call: tuple[Any, ...], conclude: Callable[..., Any], outer: tuple[Any, ...]
    ) -> PendingCreate | None:
        """Start a create on the pool; None: the call is not gated.

        ``conclude``, which is given the ``outer`` call, too, makes the object once it has ended.
        """
        prepared = self._gating.prepared(self, *call)
        if prepared is None:
            return None
        # The pool is made here, with its atexit hook, which closes this client.
        pending = PendingCreate(prepared[0], self.pool, conclude, outer)
        pending.begin(self._gating.gate, prepared[1])
        return pending


class Since37(ThreadAdapter):
    """Creates are intercepted in ``call_api``, those with ``async_req`` in ``_call_with_legacy_options``."""

    def call_api(
        self,
        method: str,
        url: str,
        header_params: dict[str, Any] | None = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> RESTResponse:
        if isinstance(method, _Ended):
            return self._response(method.create)
        prepared = self._gating.prepared(self, method, url, header_params, body, _request_timeout)
        if prepared is None:
            return self._pass(method, url, header_params, body, post_params, _request_timeout)
        create, transport = prepared
        del prepared  # each object more is one for each create that waits; so is what a thread keeps of its own
        self._gating.gate.run(create, transport)
        self._gating.local.create = create
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
        if async_req:
            call = (request, response_types_map, preload_content, request_timeout, return_http_data_only)
            pending = self._gating.attempt(self._later, (*request[:4], request_timeout), self._conclude, call)
            if isinstance(pending, PendingCreate):
                return pending
            return super()._call_with_legacy_options(request, response_types_map, async_req, *call[2:])
        try:
            return super()._call_with_legacy_options(
                request, response_types_map, None, preload_content, request_timeout, return_http_data_only
            )
        except ApiException as error:
            self._gating.attempt(annotate, error, vars(self._gating.local).get("create"))
            raise
        finally:
            self._gating.local.create = None

    def _conclude(self, create: Create, request: Any, response_types_map: Any, *rest: Any) -> Any:
        ended = _Ended(request[0])
        ended.create = create
        return self._call_with_legacy_options((ended, *request[1:]), response_types_map, None, *rest)

    def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Answer:
        response = super().call_api(method, url, headers, body, None, limit)
        return Answer(response.status, response.headers, response.read())

    def _pass(self, method: str, url: str, headers: Any, body: Any, *rest: Any) -> RESTResponse:
        sent = self._gating.now()
        response = super().call_api(method, url, headers, body, *rest)
        refusal = response.read() if self._gating.teaches(url, response.status) else b""
        self._gating.learn(method, url, body, sent, response.status, response.headers, refusal)
        return response

    def _response(self, create: Create) -> RESTResponse:
        if create.answer is None:
            raise callers_error(create, WaitTimeout)
        return self._gating.respond(UnreadResponse, create.answer, create)

    def response_deserialize(self, response_data: Any, response_types_map: Any = None) -> Any:
        ours = isinstance(response_data, UnreadResponse)
        self._gating.local.parsed = response_data.parsed if ours else None
        try:
            return super().response_deserialize(response_data, response_types_map)
        except ApiException as error:
            self._gating.attempt(annotate, error, response_data.create if ours else None)
            raise
        finally:
            self._gating.local.parsed = None

    def deserialize(self, response_text: str, response_type: str, content_type: str | None) -> Any:
        """What the gate has parsed is not parsed again: that would take a quarter of the time."""
        parsed = vars(self._gating.local).get("parsed")
        if parsed is None or _BUILD is None or type(self).deserialize is not Since37.deserialize:
            return super().deserialize(response_text, response_type, content_type)
        return _BUILD(self, parsed, response_type)


class _Ended(str):
    """The method of a call with ``async_req`` whose ``create`` has ended: its answer is only to be deserialized."""

    __slots__ = ("create",)
    create: Create


class UnreadResponse(RESTResponse):
    """An answer as the client's own response. The HTTP response below it is made only for callers that ask for it.

    (Most callers want the object alone, and the HTTP response is a tenth of the gate's cost.) ``parsed`` is the JSON
    object in it, if the gate has parsed it as the client would: it is the caller's now. ``create`` is what it answers.
    """

    headers: Any = None  # a property of the client's own

    def __init__(self, answer: Answer, create: Create | None = None) -> None:
        given = answer.headers
        self.create = create
        self.headers = given if isinstance(given, urllib3.HTTPHeaderDict) else rewrapped(answer).headers
        self.status = answer.status
        self.reason = http.client.responses.get(answer.status, "")
        self.data = answer.body  # type: ignore[assignment]  # the client's own begins with None
        as_usual = answer.read and self.headers.get("content-type") == "application/json"
        self.parsed: dict[str, Any] | None = answer.read.pop() if as_usual else None
        self._answer = answer
        self._response: urllib3.HTTPResponse | None = None

    @property
    def response(self) -> urllib3.HTTPResponse:
        if self._response is None:
            self._response = rewrapped(self._answer)
        return self._response


_Adapter: Any = ThreadAdapter  # its types are those of the newest generation, which has other methods


class Until36(_Adapter):  # type: ignore[misc]
    """Creates are intercepted in ``request``, those with ``async_req`` in ``call_api``."""

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
        ended = vars(self._gating.local).pop("ended", None)
        if ended is not None:  # a create with async_req, whose answer is only to be deserialized
            return self._response(ended, url, _preload_content)
        full = f"{url}?{urlencode(query_params)}" if query_params else url
        call = (method, full, headers, body, _request_timeout)
        if vars(self._gating.local).get("captures"):
            raise _CapturedError(*call)
        prepared = self._gating.prepared(self, *call)
        if prepared is None:
            return self._pass(method, url, query_params, headers, post_params, body, _preload_content, _request_timeout)
        create, transport = prepared
        del prepared, call
        self._gating.gate.run(create, transport)
        return self._response(create, full, _preload_content)

    def call_api(self, *args: Any, **kwargs: Any) -> Any:
        if not (kwargs["async_req"] if "async_req" in kwargs else any(args[_ASYNC : _ASYNC + 1])):
            return super().call_api(*args, **kwargs)
        call = _CALL.bind(self, *args, **kwargs)
        if str(call.arguments["method"]).upper() != "POST":
            return super().call_api(*args, **kwargs)
        call.arguments["async_req"] = None
        try:
            self._gating.local.captures = True
            value = super().call_api(*call.args[1:], **call.kwargs)
        except _CapturedError as captured:
            found = captured.args
        except (ApiException, ValueError, TypeError) as error:  # raised by get(), as if the pool had raised it
            return self.pool.apply_async(_raise, (error,))
        else:  # a subclass has sent it by ways of its own
            return self.pool.apply_async(lambda: value)
        finally:
            self._gating.local.captures = False
        pending = self._gating.attempt(self._later, found, self._conclude, (call,))
        return pending if isinstance(pending, PendingCreate) else super().call_api(*args, **kwargs)

    def _conclude(self, create: Create, call: inspect.BoundArguments) -> Any:
        self._gating.local.ended = create
        call.arguments["auth_settings"] = []  # no credentials are needed after the answer
        return super().call_api(*call.args[1:], **call.kwargs)

    def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Answer:
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
        sent, body = self._gating.now(), rest[3]
        try:
            response = super().request(method, url, *rest)
        except ApiException as error:
            self._gating.learn(method, url, body, sent, error.status, error.headers, _bytes(error.body))
            raise
        self._gating.learn(method, url, body, sent, response.status)
        return response

    def _response(self, create: Create, url: str, preload: bool) -> Any:
        if create.answer is None:
            error = callers_error(create, WaitTimeout)
            raise with_bytes(error) if _DECODES else error
        rest_client = copy.copy(self.rest_client)
        rest_client.pool_manager = self._gating.respond(_Replayed, create.answer)
        try:
            return rest_client.POST(url, _preload_content=preload)
        except ApiException as error:
            self._gating.attempt(annotate, error, create)
            raise


class _CapturedError(Exception):
    """Ends the serialization of a call that is not to be sent yet. Its arguments are what would have been sent."""


class _Replayed:
    """Connections on which one answer arrives that was received before."""

    def __init__(self, answer: Answer) -> None:
        self._response = rewrapped(answer)

    def request(self, *_: Any, **__: Any) -> urllib3.HTTPResponse:
        return self._response


def _raise(error: BaseException) -> None:
    raise error


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""

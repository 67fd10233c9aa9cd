"""``GatedApiClient``: the official client whose creates wait their turn instead of failing with 403.

    core = client.CoreV1Api(GatedApiClient())

Generated methods, raw calls and the DynamicClient all end in ``call_api``, and those with ``async_req`` in
``_call_with_legacy_options`` (kubernetes 37): these two are overridden. ``AsyncGatedApiClient`` is in
``gated_async``.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import urllib3
from kubernetes.client import ApiClient, ApiException

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown, WaitedTooLong
from backoff_ctrl.k8s.creates.calls import Target, creation, is_gated, quotas_url, read_target, teaching
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT
from backoff_ctrl.k8s.gate.closing import cancel_all
from backoff_ctrl.k8s.gate.first_list import READ_PATIENCE
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.sharing.process import Share

from .error_notes import Account, unwrapped
from .pending import PendingCreate
from .responses import UnreadResponse
from .tokens import FRESH, ConfiguredToken, LastToken
from .waiting import current_options, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes.client import Configuration
    from kubernetes.client.rest import RESTResponse

    from backoff_ctrl.k8s.gate.aio import AsyncGate
    from backoff_ctrl.k8s.gate.driver import Errand
    from backoff_ctrl.k8s.watching.status import WatchBook

__all__ = ["GatedApiClient", "WaitTimeout", "waiting"]

_NEVER_MADE = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)


_BUILD: Final[Callable[..., Any] | None] = getattr(ApiClient, "_ApiClient__deserialize", None)
"""How ``ApiClient`` makes a model of JSON that has been read; None: this version does it otherwise."""


class WaitTimeout(ApiException, TimeoutError):  # noqa: N818 - the engine's word
    """The waiting time is over: an ``ApiException`` with the last answer seen (status 0: none), a ``TimeoutError``."""

    def __init__(self, cause: WaitedTooLong) -> None:
        """Show the last answer as the client would."""
        answer = cause.answer
        super().__init__(status=0 if answer is None else answer.status, reason=str(cause))
        if answer is not None:
            self.headers = answer.headers
            self.body = answer.body.decode("utf-8", "replace")


class GatedApiClient(ApiClient):
    """An ``ApiClient`` that gates namespaced creates; everything else passes straight through.

    Without ``gate`` it shares one gate with every other client of this process and API server, sync or async.
    A create under a full quota waits; ``waiting(...)`` bounds the wait and sets priority and idempotency key.
    Closing the client cancels what waits (``GateClosed``) and says in the log what that was.
    """

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
        self._share = Share(self.configuration, gate, events)
        self.gate = Gate(desk=self._share.desk)
        self._under_way: set[Errand] = set()
        self._local = threading.local()
        self._token = LastToken()

    @property
    def sight(self) -> WatchBook | None:
        """How well each namespace's quotas are seen; None: nobody watches them."""
        return self._share.sight

    # -- the two overrides ---------

    def call_api(
        self,
        method: str,
        url: str,
        header_params: dict[str, Any] | None = None,
        body: Any = None,
        post_params: Any = None,
        _request_timeout: Any = None,
    ) -> RESTResponse:
        """Do as ``ApiClient.call_api`` does; a create waits for its turn first."""
        ready = getattr(self._local, "ready", None)
        if ready is not None:  # an asynchronous create, answered already: only to be deserialized
            self._local.ready = None
            return self._handed_out(*ready)
        target = read_target(self.configuration.host, url)
        if target is None or not is_gated(method, target, body):
            return self._pass(target, method, url, header_params, body, post_params, _request_timeout)
        transport = _Transport(self, target.namespace, url, header_params, _request_timeout)
        what = creation(self.configuration.host, target, header_params or {}, body, current_options())
        begun: list[Errand] = []
        answer, failure = None, None
        try:
            answer = self.gate.create(what, transport, begun=lambda errand: self._began(errand, begun))
        except Exception as error:  # noqa: BLE001 - raised below, as the client's own kind
            failure = error
        finally:
            self._under_way.difference_update(begun)
        if failure is not None and not begun:
            raise failure
        return self._handed_out(answer, failure, Account.of(begun[0]))

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
            target = read_target(self.configuration.host, url)
            if target is None or not is_gated(method, target, body):
                return super()._call_with_legacy_options(request, response_types_map, async_req, *rest)
            return self._create_later(target, request, response_types_map, rest)
        self._local.account = None
        try:
            return super()._call_with_legacy_options(request, response_types_map, None, *rest)
        except ApiException as error:
            if self._local.account is not None:
                self._local.account.annotate(error)
            raise

    def response_deserialize(self, response_data: Any, response_types_map: Any = None) -> Any:
        """Do as ``ApiClient`` does; an error for a gated create says what the gate knows of it."""
        ours = isinstance(response_data, UnreadResponse) and type(self).deserialize is GatedApiClient.deserialize
        self._local.read = response_data.take() if ours else None
        try:
            return super().response_deserialize(response_data, response_types_map)
        except ApiException as error:
            account = getattr(response_data, "account", None)
            if account is not None:
                account.annotate(error)
            raise
        finally:
            self._local.read = None

    def deserialize(self, response_text: str, response_type: str, content_type: str | None) -> Any:
        """Do as ``ApiClient`` does; what the gate has read already is not read again: a quarter of what it costs."""
        read = getattr(self._local, "read", None)
        if read is None or _BUILD is None:
            return super().deserialize(response_text, response_type, content_type)
        return _BUILD(self, read, response_type)

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
        """Do as ``ApiClient`` does, and mark a header that came from the configuration; ask for that once a second."""
        configured = request_auth is None and auth_settings == ["BearerToken"]
        known = self._token.of(self.configuration) if configured else None
        if known is not None:
            headers["authorization"] = known
            return
        super().update_params_for_auth(headers, queries, auth_settings, resource_path, method, body, request_auth)
        if configured and "authorization" in headers:
            headers["authorization"] = header = ConfiguredToken(headers["authorization"])
            self._token.note(self.configuration, header)

    def close(self) -> None:
        """Cancel what waits, say what that was, then do as ``ApiClient`` does."""
        cancel_all(list(self._under_way), "the client was closed")
        self._share.release()
        super().close()  # type: ignore[no-untyped-call]

    # -- creates that hold no thread ---------

    def _create_later(
        self, target: Target, request: Any, response_types_map: Any, rest: tuple[Any, ...]
    ) -> PendingCreate:
        """Start a create whose steps run on the client's own pool; while it waits it is not there."""
        _, url, headers, body, _ = request
        pool = self.pool  # made here, with its atexit hook, which closes this client
        transport = _Transport(self, target.namespace, url, headers, rest[1])
        what = creation(self.configuration.host, target, headers or {}, body, current_options())

        def conclude(answer: Answer | None, error: BaseException | None) -> Any:
            self._under_way.discard(errand)
            self._local.ready = (answer, error, Account.of(errand))
            return self._call_with_legacy_options(request, response_types_map, None, *rest)

        def post(step: Callable[[], None]) -> None:
            try:
                pool.apply_async(step)
            except ValueError:  # closed: only the end of a cancelled create is left to do
                step()

        pending = PendingCreate(conclude)
        errand = self.gate.prepare(what, transport, post, pending.done)
        self._under_way.add(errand)
        post(errand.begin)
        return pending

    # -- small things ---------

    def _began(self, errand: Errand, ends: list[Errand]) -> None:
        ends.append(errand)
        self._under_way.add(errand)

    def _handed_out(self, answer: Answer | None, error: BaseException | None, account: Account) -> RESTResponse:
        if answer is None:
            assert error is not None
            raise WaitTimeout(error) if isinstance(error, WaitedTooLong) else unwrapped(error)
        self._local.account = account
        response = UnreadResponse(answer)
        response.account = account  # type: ignore[attr-defined]
        return response

    def _pass(self, target: Target | None, method: str, url: str, headers: Any, body: Any, *rest: Any) -> RESTResponse:
        sent = self.gate.desk.timers.now()
        response = super().call_api(method, url, headers, body, *rest)
        if response.status == 401:
            self._token.forget()
        if target is None:
            return response
        if response.status == 403:
            taught = teaching(target, response.status, response.headers, response.read(), body)
            if taught is not None:
                self.gate.desk.learn(target.namespace, *taught, sent)
        elif method.upper() == "DELETE" and response.status == 200:
            self.gate.desk.hint_release(target.namespace)
        return response

    def send_now(self, method: str, url: str, headers: dict[str, Any], body: Any, timeout: Any) -> RESTResponse:
        """Call the server, ungated."""
        return super().call_api(method, url, headers, body, None, timeout)


class _Transport:
    """One create's way to the server, through the client's own connections."""

    def __init__(
        self, client: GatedApiClient, namespace: str, url: str, headers: dict[str, Any] | None, timeout: Any
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._url = url
        self._headers = headers or {}
        self._fresh_until = time.monotonic() + FRESH  # the client has asked for them, or did so a moment ago
        self._timeout = timeout or (SERVER_LIMIT, SERVER_LIMIT)  # a create is over on the server by then

    def send(self, body: dict[str, Any]) -> Answer:
        return self._call("POST", self._url, body)

    def look_up(self, name: str) -> Answer:
        return self._call("GET", f"{self._url.partition('?')[0]}/{name}", None)

    def read_quotas(self) -> Answer:
        patience = (READ_PATIENCE, READ_PATIENCE)
        return self._call("GET", quotas_url(self._client.configuration.host, self._namespace), None, patience)

    def refresh(self) -> None:
        self._client.configuration.auth_settings()  # runs the configuration's refresh hook
        self._fresh_until = float("-inf")

    def _credentials(self) -> dict[str, Any]:
        """Return the headers with credentials of this moment."""
        headers = dict(self._headers)
        if isinstance(headers.get("authorization"), ConfiguredToken) and time.monotonic() > self._fresh_until:
            token = self._client.configuration.auth_settings().get("BearerToken")
            if token is not None:
                headers["authorization"] = token["value"]
        return headers

    def _call(self, method: str, url: str, body: Any, patience: Any = None) -> Answer:
        try:
            timeout = patience or self._timeout
            response = self._client.send_now(method, url, self._credentials(), body, timeout)
            return Answer(response.status, response.headers, response.read())
        except urllib3.exceptions.MaxRetryError as error:
            if isinstance(error.reason, _NEVER_MADE):
                raise NotSent(str(error)) from error
            raise
        except _NEVER_MADE as error:
            raise NotSent(str(error)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise OutcomeUnknown(str(error)) from error

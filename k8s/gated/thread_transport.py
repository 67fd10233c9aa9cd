"""One create's way to the server through the client for threads, of any generation, and what its caller gets."""

from __future__ import annotations

import http.client
import io
from typing import Any, Protocol

import urllib3
from kubernetes.client import ApiException
from kubernetes.client.rest import RESTResponse

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.creates.calls import Target
from backoff_ctrl.k8s.creates.treatments import SERVER_LIMIT
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.together import READ_PATIENCE

from .errors import LastAnswerShown
from .transport import ClientTransport

_NEVER_MADE = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)
_NO_ANSWERS = (urllib3.exceptions.SSLError, urllib3.exceptions.ResponseError)
"""A certificate that is not trusted, too many redirects: trying again would not help."""


class Sender(Protocol):
    """What an adapter offers its transport."""

    configuration: Any

    def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Answer:
        """Call the server as ``ApiClient`` does, whatever the status of the answer."""


class ThreadTransport(ClientTransport[Answer]):
    """Calls the server in the thread that asks for it."""

    __slots__ = ("_sender",)

    server_limit = (SERVER_LIMIT, SERVER_LIMIT)  # to connect, to read
    list_limit = (READ_PATIENCE, READ_PATIENCE)

    def __init__(self, sender: Sender, target: Target, url: str, headers: dict[str, Any] | None, limit: Any) -> None:
        """Send through ``sender`` what its caller wants to create."""
        super().__init__(sender.configuration.host, target.namespace, url, headers, limit)
        self._sender = sender

    def refresh(self) -> None:
        """Fetch new credentials: the server has refused the old ones."""
        self._sender.configuration.auth_settings()  # runs the configuration's refresh hook
        self.token_was_refreshed()

    def call(self, method: str, url: str, body: Any, limit: Any) -> Answer:
        """Call the server with credentials of this moment. Raises ``NotSent`` and ``OutcomeUnknown``."""
        try:
            settings = self._sender.configuration.auth_settings() if self.token_is_old() else None
            return self._sender.send_ungated(method, url, self.headers_with(settings), body, limit)
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


# -- what the caller gets ---------

_OF_THE_WIRE = frozenset({"content-encoding", "transfer-encoding", "content-length"})


class WaitTimeout(LastAnswerShown, ApiException, TimeoutError):  # noqa: N818 - the engine's word
    """The time limit has passed: an ``ApiException`` with the last answer (status 0: none), and a ``TimeoutError``."""


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


class UnreadResponse(RESTResponse):
    """An answer as the client's own response. The HTTP response below it is made only for callers that ask for it.

    (Most callers want the object alone, and the HTTP response is a tenth of the gate's cost.)
    """

    def __init__(self, answer: Answer, create: Create | None = None) -> None:
        """Look like a response that was just received. ``create`` is what it answers."""
        self.create = create
        self._answer = answer
        self._response: urllib3.HTTPResponse | None = None
        self.status = answer.status
        self.reason = http.client.responses.get(answer.status, "")
        self.data = answer.body  # type: ignore[assignment]  # the client's own begins with None

    def take(self) -> dict[str, Any] | None:
        """Return the JSON object in it, once, if the gate has parsed it as the client would; else None."""
        read = self._answer.read
        return read.pop() if read and self.headers.get("content-type") == "application/json" else None

    @property
    def response(self) -> urllib3.HTTPResponse:
        """The HTTP response, unread."""
        if self._response is None:
            self._response = rewrapped(self._answer)
        return self._response

    @property
    def headers(self) -> urllib3.HTTPHeaderDict:
        """The headers as they were received."""
        given = self._answer.headers
        return given if isinstance(given, urllib3.HTTPHeaderDict) else self.response.headers

    def getheaders(self) -> urllib3.HTTPHeaderDict:
        """Return ``headers`` (the older name)."""
        return self.headers

    def getheader(self, name: str, default: str | None = None) -> str | None:
        """Return one header (the older way)."""
        return self.headers.get(name, default)

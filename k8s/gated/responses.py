"""What callers of the client for threads get: answers as unread responses, a time-out as its own exception."""

from __future__ import annotations

import http.client
import io
from typing import TYPE_CHECKING, Any

import urllib3
from kubernetes.client import ApiException
from kubernetes.client.rest import RESTResponse

from .errors import LastAnswerShown

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.gate.driver import Driver

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

    def __init__(self, answer: Answer, driver: Driver | None = None) -> None:
        """Look like a response that was just received. ``driver`` is the create that it answers."""
        self.driver = driver
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

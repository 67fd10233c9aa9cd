"""Answers as the HTTP responses that the clients expect, with their bytes still to be read."""

from __future__ import annotations

import http.client
import io
from typing import TYPE_CHECKING, Any

import urllib3
from kubernetes.client.rest import RESTResponse

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Answer

_OF_THE_WIRE = frozenset({"content-encoding", "transfer-encoding", "content-length"})


def rewrapped(answer: Answer) -> urllib3.HTTPResponse:
    """Return a response that has not been read, also where we have read the server's: ``read()`` works once more."""
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
    """An answer as the client's own response. What is under it, for callers that read by themselves, is made on demand.

    (Most callers want the object alone: to make the HTTP response for each is a tenth of what the gate costs.)
    """

    def __init__(self, answer: Answer) -> None:
        """Look like a response that came just now."""
        self._answer = answer
        self._response: urllib3.HTTPResponse | None = None
        self.status = answer.status
        self.reason = http.client.responses.get(answer.status, "")
        self.data = answer.body  # type: ignore[assignment]  # the client's own begins with None

    def take(self) -> dict[str, Any] | None:
        """Hand out the JSON object in it, once, if the gate has read it as the client would."""
        read = self._answer.read
        return read.pop() if read and self.headers.get("content-type") == "application/json" else None

    @property
    def response(self) -> urllib3.HTTPResponse:
        """Return the HTTP response, unread."""
        if self._response is None:
            self._response = rewrapped(self._answer)
        return self._response

    @property
    def headers(self) -> urllib3.HTTPHeaderDict:
        """Return the headers as they came."""
        given = self._answer.headers
        return given if isinstance(given, urllib3.HTTPHeaderDict) else self.response.headers

    def getheaders(self) -> urllib3.HTTPHeaderDict:
        """Return ``headers``: the client's older name for them."""
        return self.headers

    def getheader(self, name: str, default: str | None = None) -> str | None:
        """Return one of them: the client's older way."""
        return self.headers.get(name, default)

"""Answers as the HTTP responses that the clients expect, with their bytes still to be read."""

from __future__ import annotations

import http.client
import io
from typing import TYPE_CHECKING

import urllib3

if TYPE_CHECKING:
    from .answers import Answer

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

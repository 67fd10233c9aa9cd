"""What the proxy says itself: refusals in the API server's own form, and answers as bytes."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from .fields import HOP_BY_HOP

if TYPE_CHECKING:
    from backoff_ctrl.k8s.proxy.messages import Response

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    408: "Timeout",
    429: "TooManyRequests",
    502: "InternalError",
    503: "ServiceUnavailable",
}


class RefusedError(Exception):
    """A request that is not passed on. ``status`` is what the caller gets, the message says why."""

    def __init__(self, status: int, sentence: str) -> None:
        """Keep the status for the answer."""
        super().__init__(sentence)
        self.status = status


def refusal(status: int, sentence: str, *, close: bool, retry_after: int | None = None) -> bytes:
    """Return a whole answer with a ``Status``, as the API server would refuse."""
    document: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": sentence,
    }
    document |= {"reason": _REASONS.get(status, HTTPStatus(status).phrase.replace(" ", "")), "code": status}
    if retry_after is not None:
        document["details"] = {"retryAfterSeconds": retry_after}
    body = json.dumps(document).encode()
    lines = [
        b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode()),
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
    ]
    if retry_after is not None:
        lines.append(b"Retry-After: %d" % retry_after)
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join([*lines, b"", body])


def whole(response: Response, *, close: bool, note: bytes = b"") -> bytes:
    """Return an answer as bytes, framed by its length. ``note`` is a whole header line."""
    lines = [b"HTTP/1.1 %d %b" % (response.status, response.reason)]
    for name, value in response.headers:
        low = name.lower()
        if low not in HOP_BY_HOP and low != b"content-length":
            lines.append(b"%b: %b" % (name, value))
    if response.status >= 200 and response.status not in {204, 304}:
        lines.append(b"Content-Length: %d" % len(response.body))
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join([*lines, note + b"\r\n" + response.body])

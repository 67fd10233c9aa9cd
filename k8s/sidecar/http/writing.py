"""What the proxy writes: heads that it passes on, refusals in the API server's own form, and whole answers."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from backoff_ctrl.k8s.kube.answers.answer import Answer, status_answer

from .answers import AnswerHead
from .messages import HOP_BY_HOP, Request, Response, tokens, values_of
from .requests import Asked

_PLAIN: Final = HOP_BY_HOP | {b"host", b"expect"}
LOST_CERTIFICATE: Final = (
    b'Warning: 299 backoff-ctrl "this request brought no token: a client certificate does not pass through the proxy, '
    b'so give the program a token"\r\n'
)


def note_for(status: int, body: bytes) -> bytes:
    """Return a header line for a caller that the server refused for lack of credentials; empty for any other."""
    if status == 401 or (status == 403 and b"system:anonymous" in body):
        return LOST_CERTIFICATE
    return b""


def request_head(asked: Asked, host: bytes, prefix: bytes, own: Sequence[bytes], *, answered: bool = False) -> bytes:
    """Return the head of a request for the API server.

    ``host`` and ``prefix`` belong to its address, ``own`` are lines with the proxy's own credentials. ``answered``: the
    caller got its ``100 Continue`` already.
    """
    head = asked.head
    lines = [b"%b %b%b HTTP/1.%d" % (head.method, prefix, head.target, not asked.old), b"Host: " + host]
    for name, value in head.headers:
        low = name.lower()
        if low in _PLAIN:
            if low == b"expect" and not answered:
                lines.append(name + b": " + value)
        elif low not in asked.dropped:
            lines.append(name + b": " + value)
    if asked.chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if asked.te:
        lines.append(b"TE: trailers")
    if asked.upgrade:
        lines += [b"Connection: Upgrade", b"Upgrade: " + asked.upgrade]
    elif asked.old:
        lines.append(b"Connection: close")
    elif asked.te:
        lines.append(b"Connection: TE")
    return b"\r\n".join([*lines, *own, b"", b""])


def whole_request(request: Request, host: bytes, prefix: bytes, own: Sequence[bytes]) -> bytes:
    """Return a request with its whole body, framed by its length."""
    head = request.head
    dropped = tokens(values_of(head.headers, b"connection"))
    lines = [b"%b %b%b HTTP/1.1" % (head.method, prefix, head.target), b"Host: " + host]
    for name, value in head.headers:
        low = name.lower()
        if low not in _PLAIN and low != b"content-length" and low not in dropped:
            lines.append(name + b": " + value)
    if request.body or head.method not in {b"GET", b"HEAD"}:
        lines.append(b"Content-Length: %d" % len(request.body))
    return b"\r\n".join([*lines, *own, b"", request.body])


def answer_head(answer: AnswerHead, raw: bytes, *, closing: bool, note: bytes = b"") -> bytes:
    """Return the head of an answer for the caller, ``raw`` itself where it need not change.

    ``note`` is a whole header line for the caller.
    """
    if not (answer.concerns_connection or answer.old or closing or note):
        return raw
    lines = [b"HTTP/1.1 %d %b" % (answer.status, answer.reason)]
    for name, value in answer.headers:
        low = name.lower()
        if (low not in HOP_BY_HOP or low == b"transfer-encoding") and low not in answer.dropped:
            lines.append(name + b": " + value)
    if answer.status == 101:
        lines += [b"Connection: Upgrade", *(b"Upgrade: " + value for value in answer.upgrades)]
    elif closing:
        lines.append(b"Connection: close")
    return b"\r\n".join([*lines, note + b"\r\n"])


CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    408: "Timeout",
    429: "TooManyRequests",
    502: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""As the API server names them."""
_PHRASES: Final = {each.value: each.phrase for each in HTTPStatus}


def own_response(answer: Answer) -> Response:
    """Return an answer of ours as a response."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    return Response(answer.status, _PHRASES.get(answer.status, "").encode(), headers, answer.body)


def refusal(status: int, sentence: str, *, close: bool, retry_after: int | None = None) -> bytes:
    """Return a whole answer with a ``Status``, as the API server would refuse."""
    reason = REASONS.get(status, _PHRASES[status].replace(" ", ""))
    details = {} if retry_after is None else {"retryAfterSeconds": retry_after}
    return whole(own_response(status_answer(status, reason, sentence, details)), close=close)


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

"""Heads as they go on: the same fields in the same order, without those that concern one connection only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .fields import HOP_BY_HOP, tokens, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backoff_ctrl.k8s.proxy.messages import Request

    from .answers import AnswerHead
    from .requests import Asked

_PLAIN: Final = HOP_BY_HOP | {b"host", b"expect"}
LOST_CERTIFICATE: Final = (
    b'Warning: 299 backoff-ctrl "this request brought no token: a client certificate does not pass through the proxy, '
    b'so give the program a token"\r\n'
)


def note_for(status: int, body: bytes) -> bytes:
    """Return a header line for a caller without credentials that the server refused; empty: it did not, therefore."""
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
    """Return a request whose body is there, framed by its length."""
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
    """Return the head of an answer for the caller, ``raw`` itself where nothing has to change.

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

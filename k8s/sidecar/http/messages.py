"""HTTP messages as the rooms of the proxy pass them to each other, and the meaning of header fields. Values only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

Headers = list[tuple[bytes, bytes]]
"""Headers in their order, names as they were written."""


LARGEST: Final = 3 * 2**20
"""Bytes of a body that is read; the API server itself accepts no larger object."""


@dataclass(slots=True)
class Head:
    """A request before its body: ``target`` is path and query, as they were written."""

    method: bytes
    target: bytes
    headers: Headers
    _found: dict[bytes, bytes] | None = field(default=None, init=False, repr=False, compare=False)

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of a header; ``name`` in lower case. Cached."""
        if self._found is None:
            self._found = {key.lower(): value for key, value in reversed(self.headers)}
        return self._found.get(name)


@dataclass(slots=True)
class Request:
    """A request with its whole body, decoded from chunks but otherwise as the creator sent it."""

    head: Head
    body: bytes


@dataclass(slots=True)
class Response:
    """An answer with its whole body. The sender frames it: ``headers`` have no length and no connection.

    ``if_unread`` is called if its caller's connection broke before it can have read the answer.
    """

    status: int
    reason: bytes
    headers: Headers
    body: bytes
    if_unread: Callable[[], object] | None = field(default=None, repr=False, compare=False)


Ask = Callable[[Request], Awaitable[Response]]
"""Sends a whole request, and returns the whole answer.

Raises ``NotSent`` if no connection could be made or no byte of the request left this process, and ``OutcomeUnknown``
if no whole answer came. Cancelled, it closes the connection.
"""


def first(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the first value of a header; ``name`` in lower case."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers of one hop, which are replaced on the next connection (RFC 9110, 7.6.1)."""
FOR_ALL: Final = frozenset(
    {b"host", b"content-length", b"content-type", b"content-encoding", b"authorization", b"cookie"}
)
"""Headers that ``Connection`` must not name, nor any ``impersonate-...``: they identify the request and its caller."""
NOT_IN_TRAILERS: Final = HOP_BY_HOP | {
    b"authorization",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"host",
    b"trailer",
}
"""Headers that must not be trailers: they would change how the message is framed, routed or authorized."""


def tokens(values: Iterable[bytes]) -> set[bytes]:
    return {each.strip().lower() for value in values for each in value.split(b",")} - {b""}


def values_of(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return all values of a header; ``name`` in lower case."""
    return [value for key, value in headers if key.lower() == name]


class RefusedError(Exception):
    """A request that is not passed on. The caller gets ``status``, and the message, which says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class PayloadError(ValueError):
    """A body does not match its content type. The message says what is wrong, and never repeats the content."""

"""HTTP messages as the rooms of the proxy hand them to each other, and what their header fields mean. Values only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

Headers = list[tuple[bytes, bytes]]
"""In the order in which they came, names as they were written."""


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
        """Return the first value of a header; ``name`` in lower case. What was asked once is not searched again."""
        if self._found is None:
            self._found = {key.lower(): value for key, value in reversed(self.headers)}
        return self._found.get(name)


@dataclass(slots=True)
class Request:
    """A request with the whole of its body, decoded from chunks but else as the creator sent it."""

    head: Head
    body: bytes


@dataclass(slots=True)
class Response:
    """An answer with the whole of its body. The sender frames it: ``headers`` name no length and no connection.

    ``if_unread`` is called if its caller's connection broke before it can have read the answer.
    """

    status: int
    reason: bytes
    headers: Headers
    body: bytes
    if_unread: Callable[[], object] | None = field(default=None, repr=False, compare=False)


Ask = Callable[[Request], Awaitable[Response]]
"""Sends a whole request, and returns the whole answer.

Raises ``NotSent`` if no connection could be made or nothing of the request left this process, and ``OutcomeUnknown`` if
no whole answer came. Cancelled, it closes the connection.
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
"""They are made anew for the next connection (RFC 9110, 7.6.1)."""
FOR_ALL: Final = frozenset(
    {b"host", b"content-length", b"content-type", b"content-encoding", b"authorization", b"cookie"}
)
"""What ``Connection`` must not name, nor what begins with ``impersonate-``: it says what is asked, and who asks."""
NOT_IN_TRAILERS: Final = HOP_BY_HOP | {
    b"authorization",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"host",
    b"trailer",
}
"""What must not come after a body: it would change how the message is framed, routed or allowed."""


def tokens(values: Iterable[bytes]) -> set[bytes]:
    return {each.strip().lower() for value in values for each in value.split(b",")} - {b""}


def values_of(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return all values of a header; ``name`` in lower case."""
    return [value for key, value in headers if key.lower() == name]


class RefusedError(Exception):
    """A request that is not passed on. ``status`` is what the caller gets, the message says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class PayloadError(ValueError):
    """A body is not what its content type says. The message says what is wrong, and never repeats what it contains."""

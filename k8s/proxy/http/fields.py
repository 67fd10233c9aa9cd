"""Header fields that concern one connection only, and those that frame a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """Return the members of a list header, in lower case."""
    return {each.strip().lower() for value in values for each in value.split(b",")} - {b""}


def values_of(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return all values of a header; ``name`` in lower case."""
    return [value for key, value in headers if key.lower() == name]

"""What a connection and its present request expect of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from backoff_ctrl.k8s.proxy.gathering import Gathering
    from backoff_ctrl.k8s.proxy.http.requests import Asked, RequestReader

    from .shared import Shared


class Current(Protocol):
    """What a caller's present request is in: it passes, or it is held."""

    @property
    def blocked(self) -> bool:
        """Whether it takes nothing more of the body for now."""

    @property
    def half_closable(self) -> bool:
        """Whether it goes on for a caller that sends nothing more."""

    @property
    def endless(self) -> bool:
        """Whether its answer ends only with its caller, or the server: a watch, or a log that is followed."""

    def body(self, piece: bytes) -> None:
        """Take a piece of the body."""

    def end(self, trailers: list[tuple[bytes, bytes]]) -> None:
        """Learn that the request is whole."""

    def flush(self) -> None:
        """Send what was taken."""

    def gone(self) -> None:
        """Give up: the caller is gone, or its request is broken."""

    def full(self) -> None:
        """Bring nothing more for now: the caller reads slowly."""

    def emptied(self) -> None:
        """Bring more again: the caller has read what was written."""


class Tunnel(Protocol):
    """A connection that speaks no HTTP any more."""

    @property
    def blocked(self) -> bool:
        """Whether it takes nothing more for now."""

    def from_caller(self, data: bytes) -> None:
        """Send what the caller says in the tunnel."""

    def caller_ended(self) -> bool:
        """Let the server know that the caller says nothing more; return whether the tunnel lives on."""


class Waiting(Protocol):
    """A caller, as its present request sees it."""

    transport: Gathering
    loop: asyncio.AbstractEventLoop
    shared: Shared
    reader: RequestReader
    sends_no_more: bool

    @property
    def incomplete(self) -> bool:
        """Whether the present request has not come to its end yet."""

    @property
    def closes(self) -> bool:
        """Whether the present request is the last of this connection."""

    def pass_on(self, asked: Asked, *, continued: bool = False) -> Current:
        """Let the present request pass to the API server."""

    def told(self, if_unread: Callable[[], object] | None) -> None:
        """Call ``if_unread`` if the connection breaks before the answer that was just written can have been read."""

    def skip(self) -> None:
        """Throw the rest of the present request away if all of it has come."""

    def tunnel(self, through: Tunnel) -> bytes:
        """Speak no HTTP any more; return what came already."""

    def finished(self, current: Current, *, close: bool) -> None:
        """Go on with the next request, or end the connection, once ``current`` has been answered."""

    def regulate(self) -> None:
        """Read on, or stop, after the request has become ready for more, or unready."""

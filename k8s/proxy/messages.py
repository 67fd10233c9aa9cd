"""HTTP messages as the proxy's rooms hand them to each other, and what each room expects of the others. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Headers = list[tuple[bytes, bytes]]
"""In the order in which they came, names as they were written."""


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


class Upstream(Protocol):
    """The way to the API server for whole requests."""

    async def ask(self, request: Request, limit: int = 3 * 2**20) -> Response:
        """Send a request and read the whole answer, at most ``limit`` bytes of it.

        Raises ``NotSent`` if no connection could be made or nothing of the request left this process, and
        ``OutcomeUnknown`` if no whole answer came. Cancelled, it closes the connection.
        """


class Creates(Protocol):
    """What the listener asks of the room that holds creates."""

    def reads(self, head: Head) -> bool:
        """Say whether the body of this request is to be read whole, and ``answer`` asked. Quick: asked each time."""

    async def answer(self, request: Request) -> Response:
        """Answer a request that ``reads`` chose: hold it while the quota is full, then create the object.

        Cancelled when the caller hangs up. Never raises for what the server says, or does not say.
        """

    def watches(self, head: Head, status: int) -> bool:
        """Say whether ``passed`` needs the body of this answer to a request that passes, if it is short."""

    def passed(self, head: Head, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Learn from an answer to a request that passed, if ``watches`` chose it: a refusal, or a deletion.

        ``body`` is without its framing, and empty where it was long.
        """

    async def close(self, limit: float = 10.0) -> None:
        """Hand back what is held, at the end: each ``answer`` under way returns soon, none is held anew.

        Returns once what was sent has been answered, after ``limit`` seconds at most.
        """


def first(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the first value of a header; ``name`` in lower case."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None

"""Creates that are not held: all of them pass. What a proxy does whose mode is off."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .messages import Head, Request, Response


class Ungated:
    """Chooses nothing, holds nothing and learns nothing."""

    def reads(self, head: Head) -> bool:
        """Let every request pass."""
        del head
        return False

    async def answer(self, request: Request) -> Response:
        """Raise ``RuntimeError``: no request was chosen."""
        raise RuntimeError(f"nothing is held, so {request.head.method.decode('latin-1')} should have passed")

    def watches(self, head: Head, status: int) -> bool:
        """Look at no answer."""
        del head, status
        return False

    def passed(self, head: Head, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Learn nothing."""

    async def close(self, limit: float = 10.0) -> None:
        """Return at once: there is nothing to hand back."""
        del limit

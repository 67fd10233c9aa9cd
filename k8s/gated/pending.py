"""The result of a create with ``async_req``: it offers what ``multiprocessing.pool.AsyncResult`` offers."""

from __future__ import annotations

import multiprocessing
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class PendingCreate:
    """A create that may not have ended yet. Only callers of ``get`` and ``wait`` block."""

    def __init__(self, conclude: Callable[[], Any]) -> None:
        """``conclude`` returns the created object once the create has ended, or raises."""
        self._conclude = conclude
        self._ended = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def finish(self) -> None:
        """Keep the result: the create has ended."""
        try:
            self._value = self._conclude()
        except BaseException as failure:  # noqa: BLE001 - raised by get(), in the thread that calls it
            self._error = failure
        self._ended.set()

    def ready(self) -> bool:
        """Say whether it has ended."""
        return self._ended.is_set()

    def successful(self) -> bool:
        """Say whether it ended without an error. Raises ``ValueError`` if it has not ended."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end, at most ``timeout`` seconds."""
        self._ended.wait(timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Return the created object, or raise its error.

        Raises ``multiprocessing.TimeoutError`` if the create has not ended within ``timeout`` seconds.
        """
        if not self._ended.wait(timeout):
            raise multiprocessing.TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

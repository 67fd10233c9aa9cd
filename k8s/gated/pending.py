"""The result of a create asked for with ``async_req``: what ``multiprocessing.pool.AsyncResult`` offers."""

from __future__ import annotations

import multiprocessing
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.answers.answer import Answer


class PendingCreate:
    """A create under way. No thread waits for it but the callers of ``get`` and ``wait``."""

    def __init__(self, conclude: Callable[[Answer | None, BaseException | None], Any]) -> None:
        """``conclude`` turns the end of the create into the value, or raises."""
        self._conclude = conclude
        self._ended = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self, answer: Answer | None, error: BaseException | None) -> None:
        """Take the end of the create."""
        try:
            self._value = self._conclude(answer, error)
        except BaseException as failure:  # noqa: BLE001 - get() raises it, in the thread that asks
            self._error = failure
        self._ended.set()

    def ready(self) -> bool:
        """Say whether it has ended."""
        return self._ended.is_set()

    def successful(self) -> bool:
        """Say whether it ended without an error; ``ValueError`` if it has not ended."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end, or for ``timeout`` seconds."""
        self._ended.wait(timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Return the created object, or raise; ``multiprocessing.TimeoutError`` if it has not ended by then."""
        if not self._ended.wait(timeout):
            raise multiprocessing.TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

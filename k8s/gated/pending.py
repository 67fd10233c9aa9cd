"""Creates with ``async_req``: their steps run on the client's own pool, which they leave free while they wait."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from typing import Any

from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.gate.transport import Transport


class PendingCreate:
    """A create that may not have ended yet, with the methods of ``multiprocessing.pool.AsyncResult``.

    Only callers of ``get`` and ``wait`` block. The client's object is made when somebody gets it.
    """

    __slots__ = ("_conclude", "_ended", "_pool", "_running", "_value", "create")

    def __init__(self, create: Create, pool: ThreadPool, conclude: Callable[[Create], Any]) -> None:
        """``conclude`` returns the object that the ended create made, or raises its error."""
        self.create = create
        self._pool = pool
        self._conclude = conclude
        self._ended = False
        self._running = threading.Lock()  # held until the create has ended: an Event takes ten times the memory
        self._running.acquire()
        self._value: tuple[Any, ...] = ()

    def begin(self, gate: Gate, transport: Transport) -> None:
        """Take the create to its end, on the pool."""
        gate.run_on(self._post, self.create, transport, self._end)

    def _post(self, step: Callable[[], object]) -> None:
        try:
            self._pool.apply_async(step)
        except ValueError:  # the pool is closed: only the end of a cancelled create is left to do
            step()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._running.release()

    def ready(self) -> bool:
        """Say whether it has ended."""
        return self._ended

    def successful(self) -> bool:
        """Say whether it ended without an error. Raises ``ValueError`` if it has not ended."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self.create.answer is not None and self.create.answer.ok

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end, at most ``timeout`` seconds."""
        if not self._ended and self._running.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            self._running.release()  # to the next who waits

    def get(self, timeout: float | None = None) -> Any:
        """Return the created object, or raise its error.

        Raises ``multiprocessing.TimeoutError`` if the create has not ended within ``timeout`` seconds.
        """
        self.wait(timeout)
        if not self._ended:
            raise multiprocessing.TimeoutError
        if not self._value:
            self._value = (self._conclude(self.create),)
        return self._value[0]

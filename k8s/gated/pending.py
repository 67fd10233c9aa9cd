"""Creates with ``async_req``: their steps run on the client's own pool, which they leave free while they wait."""

from __future__ import annotations

import multiprocessing
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.pool import ThreadPool

    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.gate.driver import Driver
    from backoff_ctrl.k8s.gate.threads import Gate
    from backoff_ctrl.k8s.gate.transport import Transport

    from .gating import Gating


def create_later(
    gating: Gating[Gate], what: Creation, transport: Transport, pool: ThreadPool, conclude: Callable[[Driver], Any]
) -> PendingCreate:
    """Start a create on the pool. ``conclude`` turns the create that has ended into what the caller gets."""
    pending = PendingCreate(pool, conclude, gating.failed_after)
    pending.driver = driver = gating.gate.prepare_on(pending.post, what, transport, pending.finish)
    driver.start()
    return pending


class PendingCreate:
    """A create that may not have ended yet, with the methods of ``multiprocessing.pool.AsyncResult``.

    Only callers of ``get`` and ``wait`` block.
    """

    __slots__ = ("_again", "_conclude", "_ended", "_error", "_pool", "_running", "_value", "driver")

    def __init__(
        self,
        pool: ThreadPool | None,
        conclude: Callable[[Any], Any],
        again: Callable[[Any, Exception], bool] = lambda *_: False,
    ) -> None:
        """Steps run on ``pool``. ``conclude`` returns the object that the ended create (``driver``) made, or raises.

        ``again`` says whether an error is one of ours (law 18), so that concluding is worth a second try.
        """
        self._again = again
        self.driver: Driver | None = None
        self._pool = pool
        self._conclude = conclude
        self._ended = False
        self._running = threading.Lock()  # held until the create has ended: an Event takes ten times the memory
        self._running.acquire()
        self._value: Any = None
        self._error: BaseException | None = None

    def post(self, step: Callable[[], object]) -> None:
        """Run a step of the create on the pool."""
        assert self._pool is not None, "a create without a pool has ended"
        try:
            self._pool.apply_async(step, error_callback=self._open)
        except ValueError:  # the pool is closed: only the end of a cancelled create is left to do
            step()

    def _open(self, error: BaseException) -> None:
        assert self.driver is not None, "steps come after the driver"
        self.driver.fail_open(error)

    def finish(self) -> None:
        """Keep the result: the create has ended. A second call does nothing."""
        if self._ended:
            return
        error = self._try()
        if isinstance(error, Exception) and self._again(self.driver, error):
            error = self._try()
        self._error = error
        self._ended = True
        self._running.release()

    def _try(self) -> BaseException | None:
        try:
            self._value = self._conclude(self.driver)
        except BaseException as failure:  # noqa: BLE001 - raised by get(), in the thread that calls it
            return failure
        return None

    def ready(self) -> bool:
        """Say whether it has ended."""
        return self._ended

    def successful(self) -> bool:
        """Say whether it ended without an error. Raises ``ValueError`` if it has not ended."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

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
        if self._error is not None:
            raise self._error
        return self._value

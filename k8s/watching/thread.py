"""Watches quotas for clients without an event loop: one daemon thread per ledger."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from .status import WatchBook

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.ledger import Ledger

    from .watch import QuotaWatch

log = logging.getLogger(__name__)

FOLLOWED_MAX: Final = 4096
"""Namespaces remembered as in use; the watch itself follows fewer."""
GOODBYE: Final = 0.1
"""Seconds for connections to close after the watch was stopped: TLS sends a closing message on each."""
TOUCH: Final = 30.0
"""Seconds in which further ``follow`` calls for a namespace do nothing: every create makes one."""


class WatchThread:
    """Watches the quotas of the namespaces passed to ``follow``, with a client's configuration. Thread-safe.

    ``everywhere``: watch all namespaces, and those passed to ``follow`` only if that is forbidden.
    """

    def __init__(self, ledger: Ledger, configuration: Any, *, everywhere: bool = False) -> None:
        """Prepare; the thread starts with the first namespace: loading the asyncio client alone takes 0.4 s."""
        self.book = WatchBook()
        self._ledger = ledger
        self._configuration = configuration
        self._everywhere = everywhere
        self._lock = threading.Lock()
        self._namespaces: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None], QuotaWatch] | None = None
        self._stopped = False

    def follow(self, namespace: str) -> None:
        """Watch this namespace too. Returns at once."""
        now = time.monotonic()
        if now - self._namespaces.get(namespace, -TOUCH) < TOUCH:  # most calls end here, without the lock
            return
        with self._lock:
            if self._stopped:
                return
            self._namespaces.pop(namespace, None)
            self._namespaces[namespace] = now
            if len(self._namespaces) > FOLLOWED_MAX:
                del self._namespaces[next(iter(self._namespaces))]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="backoff-ctrl-watch", daemon=True)
                self._thread.start()
            elif self._running is not None:
                loop, _, watch = self._running
                loop.call_soon_threadsafe(watch.add, namespace)

    def stop(self) -> None:
        """End the watch. Returns at once, since an event loop may call it; the thread ends soon after."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                loop, task, _ = self._running
                loop.call_soon_threadsafe(task.cancel)

    def _run(self) -> None:
        try:
            asyncio.run(self._until_stopped())
        except asyncio.CancelledError:
            log.debug("the watch of quotas was stopped")
        except Exception:
            # The gate works without a watch.
            log.exception("an internal error ended the watch of quotas; learning from refusals instead")

    def _calm(self) -> bool:
        return not self._ledger.counts.waiting

    async def _until_stopped(self) -> None:
        try:
            await self._watch()
        finally:
            await asyncio.sleep(GOODBYE)

    async def _watch(self) -> None:
        from kubernetes.aio.client import ApiClient  # noqa: PLC0415 - takes 56 MB, needed only here

        from backoff_ctrl.k8s.cluster.aio_configuration import aio_configuration  # noqa: PLC0415

        from .source import ClientSource  # noqa: PLC0415
        from .watch import QuotaWatch  # noqa: PLC0415

        task = asyncio.current_task()
        assert task is not None
        configuration = copy.copy(aio_configuration(self._configuration))
        configuration.connection_pool_maxsize = 0  # no limit: each watch holds a connection
        async with ApiClient(configuration) as client:
            source = ClientSource(client, calm=self._calm)
            watch = QuotaWatch(self._ledger, source, None if self._everywhere else (), book=self.book)
            with self._lock:
                if self._stopped:
                    return
                self._running = asyncio.get_running_loop(), task, watch
                for namespace in self._namespaces:
                    watch.add(namespace)
            try:
                await watch.run()
            finally:
                with self._lock:
                    self._running = None

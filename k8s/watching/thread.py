"""Watches quotas for clients without an event loop: one daemon thread per ledger."""

from __future__ import annotations

import asyncio
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
        """Prepare; the thread starts with the first namespace: loading aiohttp alone takes 0.2 s."""
        self.book = WatchBook()
        self._ledger = ledger
        self._configuration = configuration
        self._everywhere = everywhere
        self._lock = threading.Lock()
        self._namespaces: dict[str, float] = {}
        self._gangs: dict[str, None] = {}
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
            begins = self._thread is None
            if begins:
                self._start()
            self._namespaces.pop(namespace, None)
            self._namespaces[namespace] = now
            if len(self._namespaces) > FOLLOWED_MAX:
                del self._namespaces[next(iter(self._namespaces))]
            if not begins and self._running is not None:
                loop, _, watch = self._running
                loop.call_soon_threadsafe(watch.add, namespace)

    def follow_gang(self, namespace: str) -> None:
        """Watch the pods that others make for gangs of this namespace, too. Returns at once."""
        self.follow(namespace)
        with self._lock:
            if self._running is None:
                self._gangs[namespace] = None
            else:
                loop, _, watch = self._running
                loop.call_soon_threadsafe(watch.add_gang, namespace)

    def start(self) -> None:
        """Begin, without any namespace in particular: for a watch of all of them."""
        with self._lock:
            if self._thread is None and not self._stopped:
                self._start()

    def _start(self) -> None:
        """Start the thread. Remembered only once it runs: the next namespace tries again if it could not start."""
        thread = threading.Thread(target=self._run, name="backoff-ctrl-watch", daemon=True)
        thread.start()
        self._thread = thread

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
        from backoff_ctrl.k8s.cluster.session import ClusterSession  # noqa: PLC0415 - aiohttp: needed only here

        from .source import ClusterSource  # noqa: PLC0415
        from .watch import QuotaWatch  # noqa: PLC0415

        task = asyncio.current_task()
        assert task is not None
        async with ClusterSession(self._configuration) as session:
            source = ClusterSource(session, calm=self._calm)
            watch = QuotaWatch(self._ledger, source, None if self._everywhere else (), book=self.book)
            with self._lock:
                if self._stopped:
                    return
                self._running = asyncio.get_running_loop(), task, watch
                for namespace in self._namespaces:
                    watch.add(namespace)
                for namespace in self._gangs:
                    watch.add_gang(namespace)
            try:
                await watch.run()
            finally:
                with self._lock:
                    self._running = None

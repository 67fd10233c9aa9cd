"""Watching for clients that have no event loop: one daemon thread per ledger."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

    from .desk import Desk
    from .watching import QuotaWatch

log = logging.getLogger(__name__)

_COPIED = (
    "host", "ssl_ca_cert", "ca_cert_data", "cert_file", "key_file", "verify_ssl", "assert_hostname",
    "tls_server_name", "proxy", "proxy_headers", "api_key_prefix",
)  # fmt: skip


class WatchThread:
    """Observes the quotas of the namespaces it is told of, with a client's configuration. Thread-safe."""

    def __init__(self, desk: Desk, configuration: Any) -> None:
        """Start nothing before the first namespace: the aio client alone takes 0.4 s to load."""
        self._desk = desk
        self._configuration = configuration
        self._lock = threading.Lock()
        self._namespaces: set[str] = set()
        self._thread: threading.Thread | None = None
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None], QuotaWatch] | None = None
        self._stopped = False

    def follow(self, namespace: str) -> None:
        """Observe this namespace too. Returns at once."""
        with self._lock:
            if namespace in self._namespaces or self._stopped:
                return
            self._namespaces.add(namespace)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="backoff-ctrl-watch", daemon=True)
                self._thread.start()
            elif self._running is not None:
                loop, _, watch = self._running
                loop.call_soon_threadsafe(watch.add, namespace)

    def stop(self) -> None:
        """End the watch; its thread ends soon. Returns at once: an event loop may be the caller."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                loop, task, _ = self._running
                loop.call_soon_threadsafe(task.cancel)

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except asyncio.CancelledError:
            log.debug("the watch of quotas was stopped")
        except Exception:
            # Observing is a help, not a need: without it the gate learns.
            log.exception("the watch of quotas failed for good; the gate learns from refusals instead")

    async def _watch(self) -> None:
        from kubernetes.aio.client import ApiClient  # noqa: PLC0415 - 56 MB, wanted only here

        from .quota_source import ClientSource  # noqa: PLC0415
        from .watching import QuotaWatch  # noqa: PLC0415

        task = asyncio.current_task()
        assert task is not None
        async with ApiClient(aio_configuration(self._configuration)) as client:
            watch = QuotaWatch(self._desk, ClientSource(client), ())
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


def aio_configuration(given: Any) -> Configuration:
    """Copy what an aio client needs from a configuration of either client; credentials are asked of the original."""
    from kubernetes.aio.client import Configuration  # noqa: PLC0415

    if isinstance(given, Configuration):
        return given
    made = Configuration()
    for name in _COPIED:
        if hasattr(given, name):
            setattr(made, name, getattr(given, name))
    made.api_key = dict(given.api_key)

    def refresh(_: Configuration) -> None:
        if given.refresh_api_key_hook is not None:
            given.refresh_api_key_hook(given)
        made.api_key.update(given.api_key)

    made.refresh_api_key_hook = refresh  # type: ignore[assignment]  # the client's own says None
    return made

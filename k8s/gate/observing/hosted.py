"""``HostedWatch``: a ``QuotaWatch`` on the runtime, for all who make creates. It begins with the first namespace.

Of this room only ``status`` is loaded with it. All else loads aiohttp, which takes 0.2 s, once there is something to
watch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import LOADING, RUNTIME, Task
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.kube.watching.status import WatchRecord

log = logging.getLogger(__name__)

FOLLOWED_MAX: Final = 4096  # namespaces that are remembered as in use; the watch itself follows fewer
GOODBYE: Final = 0.1
"""Seconds for connections to close after the watch was stopped: TLS sends a closing message on each."""
TOUCH: Final = 30.0  # seconds in which further ``follow`` calls for a namespace have no effect: every create makes one


class HostedWatch(Subscriber):
    """Watches on the runtime the quotas of the namespaces passed to ``follow``, with a client's configuration.

    ``everywhere``: watch all namespaces, and those passed to ``follow`` only if that is forbidden. Subscribed to its
    ledger, it follows the namespaces where a quota holds creates up, and the pods that others make for gangs.
    Thread-safe.
    """

    def __init__(self, ledger: Ledger, configuration: Any, *, everywhere: bool = False) -> None:
        self._ledger = ledger
        self._configuration = configuration
        self._everywhere = everywhere
        self.forked()

    def forked(self) -> None:
        """Start over in a forked child, where its tasks don't run."""
        self.record = WatchRecord()
        self._followed: dict[str, float] = {}  # namespaces, and when they were passed to ``follow``
        self._task: Task | None = None
        self._stopped = False

    def blocked(self, namespace: str) -> None:
        self.follow(namespace)

    def gang_made(self, namespace: str) -> None:
        self.follow(namespace)
        self._post(self._look_for_gang, namespace)

    def follow(self, namespace: str) -> None:
        """Watch this namespace too. Returns at once."""
        if time.monotonic() - self._followed.get(namespace, -TOUCH) >= TOUCH:  # most calls end here
            self._post(self._follow, namespace)

    def start(self) -> None:
        """Begin, without any namespace in particular: for a watch of all of them."""
        self._post(self._begin)

    def stop(self) -> None:
        """End the watch. Returns at once, since an event loop may call it."""
        self._stopped = True
        if self._task is not None:
            self._task.stop()

    def _post(self, call: Callable[..., object], *given: Any) -> None:
        if not self._stopped:
            with LOADING:
                from . import quotas  # noqa: F401, PLC0415 - not in the runtime's own thread
            RUNTIME.post(call, *given)

    # -- on the runtime ---------

    def _begin(self) -> None:
        from .quotas import QuotaWatch  # noqa: PLC0415 - see ``_post``

        if self._task is None and not self._stopped:
            watch = QuotaWatch(self._ledger, None if self._everywhere else (), record=self.record)
            self._add, self._add_gang = watch.add, watch.add_gang
            try:
                self._task = RUNTIME.spawn(partial(self._run, partial(watch.run_with, self._configuration)))
            except RuntimeError:  # Python is shutting down: no create waits for news any more
                self._stopped = True

    def _follow(self, namespace: str) -> None:
        self._begin()
        self._followed.pop(namespace, None)
        self._followed[namespace] = time.monotonic()
        if len(self._followed) > FOLLOWED_MAX:
            del self._followed[next(iter(self._followed))]
        if self._task is not None:
            self._add(namespace)

    def _look_for_gang(self, namespace: str) -> None:
        self._begin()
        if self._task is not None:
            self._add_gang(namespace)

    async def _run(self, watch: Callable[[], Coroutine[Any, Any, None]], _: Task) -> None:
        if self._stopped:  # while it was starting: ``stop`` found no task
            return
        try:
            await watch()
        except Exception:  # the gate works without a watch
            log.exception("an internal error ended the watch of quotas; learning from refusals instead")
        finally:
            await asyncio.sleep(GOODBYE)

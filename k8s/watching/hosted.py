"""A watch of quotas on the runtime: it begins with the first namespace where a quota holds creates up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.runtime.host import RUNTIME, Task

from .status import WatchBook
from .watch import QuotaWatch

log = logging.getLogger(__name__)

FOLLOWED_MAX: Final = 4096
"""Namespaces remembered as in use; the watch itself follows fewer."""
GOODBYE: Final = 0.1
"""Seconds for connections to close after the watch was stopped: TLS sends a closing message on each."""
TOUCH: Final = 30.0
"""Seconds in which further ``follow`` calls for a namespace do nothing: every create makes one."""


class HostedWatch(Subscriber):
    """Watches the quotas of the namespaces passed to ``follow``, with a client's configuration. Thread-safe.

    ``everywhere``: watch all namespaces, and those passed to ``follow`` only if that is forbidden. Subscribed to its
    ledger, it follows the namespaces where a quota holds creates up, and the pods that others make for gangs.
    """

    def __init__(self, ledger: Ledger, configuration: Any, *, everywhere: bool = False) -> None:
        """Prepare; nothing runs before the first namespace: loading aiohttp alone takes 0.2 s."""
        self._ledger = ledger
        self._configuration = configuration
        self._everywhere = everywhere
        self.forked()

    def forked(self) -> None:
        """Begin anew in a forked child, where nothing of it runs."""
        self.book = WatchBook()
        self._followed: dict[str, float] = {}  # namespaces, and when they were passed to ``follow``
        self._gangs: dict[str, None] = {}
        self._task: Task | None = None
        self._watch: QuotaWatch | None = None
        self._stopped = False

    def blocked(self, namespace: str) -> None:
        """Follow the namespace: a quota holds creates up there."""
        self.follow(namespace)

    def gang_made(self, namespace: str) -> None:
        """Watch the pods that others make for gangs of this namespace, too."""
        self.follow(namespace)
        self._post(partial(self._follow_gang, namespace))

    def follow(self, namespace: str) -> None:
        """Watch this namespace too. Returns at once."""
        if time.monotonic() - self._followed.get(namespace, -TOUCH) >= TOUCH:  # most calls end here
            self._post(partial(self._follow, namespace))

    def start(self) -> None:
        """Begin, without any namespace in particular: for a watch of all of them."""
        self._post(self._begin)

    def stop(self) -> None:
        """End the watch. Returns at once, since an event loop may call it."""
        self._stopped = True
        if self._task is not None:
            self._task.stop()

    def _post(self, call: Callable[[], object]) -> None:
        if not self._stopped:
            from . import source  # noqa: F401, PLC0415 - loads aiohttp, and not in the runtime's own thread

            RUNTIME.post(call)

    # -- on the runtime ---------

    def _begin(self) -> None:
        if self._task is None and not self._stopped:
            self._task = RUNTIME.spawn(self._run)

    def _follow(self, namespace: str) -> None:
        self._begin()
        self._followed.pop(namespace, None)
        self._followed[namespace] = time.monotonic()
        if len(self._followed) > FOLLOWED_MAX:
            del self._followed[next(iter(self._followed))]
        if self._watch is not None:
            self._watch.add(namespace)

    def _follow_gang(self, namespace: str) -> None:
        self._gangs[namespace] = None
        if self._watch is not None:
            self._watch.add_gang(namespace)

    async def _run(self) -> None:
        from backoff_ctrl.k8s.cluster.session import ClusterSession  # noqa: PLC0415 - see ``_post``

        from .source import ClusterSource  # noqa: PLC0415

        try:
            async with ClusterSession(self._configuration, hooks_block=True) as session:
                source = ClusterSource(session, calm=self._calm)
                watch = QuotaWatch(self._ledger, source, None if self._everywhere else (), book=self.book)
                for namespace in self._followed:
                    watch.add(namespace)
                for namespace in self._gangs:
                    watch.add_gang(namespace)
                self._watch = watch
                await watch.run()
        except Exception:  # the gate works without a watch
            log.exception("an internal error ended the watch of quotas; learning from refusals instead")
        finally:
            self._watch = None
            await asyncio.sleep(GOODBYE)

    def _calm(self) -> bool:
        return not self._ledger.counts.waiting

"""Ends a job in the background: its delete is repeated until the service says that it is done, or that it is gone.

Its manager ends the tries once they are given up (``ending``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.tasks.plugins.core import Key
from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, RemoteError

from .ending import Ending
from .outcomes import GONE
from .pacing import Access, pauses
from .service import Service

log = logging.getLogger(__name__)

LOGGED_AFTER: Final = 3
"""Failed deletes after which the log says so, once."""


class Deletion:
    """The delete of one job, until it is ``done``."""

    def __init__(
        self,
        service: Service,
        key: Key,
        context: CallContext,
        meta: Any,
        reason: str,
        ending: Ending,
        wake: Callable[[Key], object],
    ) -> None:
        """Begin to delete. ``ending`` counts the tries that fail; ``wake`` is called with the key at each change."""
        self.done = False
        self.reason = "its job is being deleted"
        self._service = service
        self._key = key
        self._context = context
        self.meta = meta
        self._reason = reason
        self._ending = ending
        self._wake = wake
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        between = pauses()
        while not self.done:
            error = await self._once()
            if error is None or (isinstance(error, RemoteError) and error.status in GONE):
                self.done = True
                break
            self._ending.failed(error)
            self.reason = f"its job can't be deleted now: {error}; it is tried again"
            if between.failures + 1 == LOGGED_AFTER:
                said = printable(str(error))  # it may be the service's text
                log.warning("plugin %s: a job can't be deleted: %s; it is tried again", self._service.id, said)
            self._wake(self._key)
            await between.after_failure()
        self._wake(self._key)

    async def _once(self) -> Exception | None:
        service, error = self._service, None
        slot = await service.origin(self._context.task, self.meta).pacer.enter(Access.WRITE)
        limit = service.settings.call_timeout
        try:
            await service.call(
                "delete",
                lambda: service.asynchronous.delete(self._context, self.meta, self._reason),
                self._context,
                limit,
            )
        except Exception as wrong:  # noqa: BLE001 - it is tried again
            error = wrong
        finally:
            slot.end(error)
        return error

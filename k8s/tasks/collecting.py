"""Forgets tasks that have ended long ago, so that a store does not fill with tasks that are not needed any more.

How long a task is kept, ``tasks.gc.max-ttl`` says for all, and ``spec.ttl`` for one that need not be kept so long. One
that another task still needs stays until that one has begun or ended, for a task that is gone counts as not created
yet. An aborted task whose object may still appear stays as long as it is looked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from backoff_ctrl.k8s.tasks.plugins.config import GarbageCollection

from .model import seconds_of, unix
from .store import AbsentError, BrokenStoreError, ConflictError, LeaseLostError, Store, Stored, StoreError

log = logging.getLogger(__name__)

PAGE: Final = 500
"""Tasks that are read at a time."""
ASK_AGAIN: Final = 60.0
"""Seconds between two looks at the settings, which may change."""


def kept_until(task: Stored, settings: GarbageCollection, doubt: float) -> float:
    """Return the Unix time until which a task that has ended is kept.

    ``doubt``: the seconds for which an object that may still appear is looked for.
    """
    kept = settings.max_ttl.total_seconds()
    if (own := task.spec.get("ttl")) is not None:
        kept = min(kept, seconds_of(own))
    if (task.status.plugin_state or {}).get("doubt"):
        kept = max(kept, doubt)
    return unix(task.status.ended_at or "") + kept


class Collector:
    """Forgets ended tasks of a store, one by one."""

    def __init__(
        self,
        store: Store,
        settings: Callable[[], GarbageCollection],
        is_needed: Callable[[Stored], bool],
        clock: Callable[[], float],
        *,
        doubt: float,
    ) -> None:
        """``is_needed`` returns whether a task that has not begun needs this one; ``clock`` returns Unix time."""
        self._store = store
        self._settings = settings
        self._is_needed = is_needed
        self._clock = clock
        self._doubt = doubt
        self.counts: Counter[str] = Counter()
        """Tasks by outcome: deleted, already_gone (by another client) or failed."""

    async def run(self) -> None:
        """Look for them until cancelled. Raises ``BrokenStoreError`` and ``LeaseLostError``."""
        loop = asyncio.get_running_loop()
        last = float("-inf")
        while True:
            interval = self._settings().interval.total_seconds()
            if interval and loop.time() - last >= interval:
                last = loop.time()
                await self.sweep()
            await asyncio.sleep(min(interval or ASK_AGAIN, ASK_AGAIN))

    async def sweep(self) -> None:
        """Look at all tasks once, page by page."""
        after = 0
        try:
            while page := await self._store.list(after, PAGE):
                after = page[-1].number
                for task in page:
                    if self._is_due(task):
                        await self._forget(task)
        except (BrokenStoreError, LeaseLostError):
            raise
        except StoreError as error:
            log.warning("ended tasks can't be looked for now: %s", error)

    def _is_due(self, task: Stored) -> bool:
        if task.open or self._clock() < kept_until(task, self._settings(), self._doubt):
            return False
        return not self._is_needed(task)

    async def _forget(self, task: Stored) -> None:
        try:
            await self._store.delete(task.namespace, task.name)
        except (AbsentError, ConflictError):
            self.counts["already_gone"] += 1
        except (BrokenStoreError, LeaseLostError):
            raise
        except StoreError as error:
            self.counts["failed"] += 1
            log.warning("task %s/%s can't be forgotten now: %s", task.namespace, task.name, error)
        else:
            self.counts["deleted"] += 1

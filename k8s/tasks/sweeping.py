"""Ends what appears behind the abort of its task: a create that was sent, and answered only after all patience.

The API server ends each create after 34 s, but what stands before it need not; and a manager that was killed leaves
creates behind whose answers nobody has heard. An abort does not wait for that: it says in the state that there is a
doubt, and for a while from then on the object is looked for, also by the next manager of the store.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.plugins.phases import Phase

from .times import unix

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.plugins.protocol import TaskContext

    from .executing import Executor
    from .store import Stored

log = logging.getLogger(__name__)

SWEPT_FOR: Final = 900.0
"""Seconds after the end of an abort in which its object is looked for."""
LOOK_AGAIN: Final = 30.0
"""Seconds between two looks without news. Where its kind is watched a look asks the API server nothing."""
KEPT_MAX: Final = 1000


class Sweeper:
    """The tasks of one store whose objects may still appear. On one event loop."""

    def __init__(self) -> None:
        """Begin with none."""
        self._kept: dict[str, tuple[float, Stored]] = {}
        self._due: dict[str, None] = {}
        self._some = asyncio.Event()

    def keep(self, task: Stored, now: float) -> None:
        """Look for the object of a task that has ended, if there is a doubt; ``now`` is Unix time."""
        status = task.status
        if status.phase != Phase.ABORTED.title or not (status.plugin_state or {}).get("doubt"):
            return
        left = min(SWEPT_FOR, unix(status.ended_at or "") + SWEPT_FOR - now)  # a clock may have been set
        if left > 0 and len(self._kept) < KEPT_MAX:
            self._kept[task.uid] = asyncio.get_running_loop().time() + left, task
            self.wake(task.uid)

    def wake(self, uid: str) -> None:
        """There is news of an object of this task."""
        if uid in self._kept:
            self._due[uid] = None
            self._some.set()

    async def run(self, executor: Executor, context: Callable[[Stored], TaskContext]) -> None:
        """Look for them until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(LOOK_AGAIN):
                    await self._some.wait()
            except TimeoutError:
                self._due.update(dict.fromkeys(self._kept))
            self._some.clear()
            due, self._due = self._due, {}
            for uid in self._kept.keys() & due.keys():
                until, task = self._kept[uid]
                if loop.time() > until:
                    del self._kept[uid]
                    continue
                try:
                    await executor.sweep(context(task), task.status.plugin_state)
                except Exception as error:  # noqa: BLE001 - it is looked for again
                    log.warning("task %s/%s was aborted; looking for its object: %s", task.namespace, task.name, error)

"""Watches the pods that others make for the gangs of one namespace: no longer than there are such gangs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .gang_pods import LabelledPods, OwnedPods

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from .gang_pods import Ledger, Source
    from .status import WatchBook

CHECK: Final = 5.0
"""Seconds between two looks at whether there are gangs still, and pods that came without their label."""
MARGIN: Final = 60.0
"""Seconds without a gang after which the watch ends: the next gang of the namespace may come soon."""


class GangWatch:
    """The watch of one namespace. By the label at first; by owners too, once the ledger says that a gang needs it."""

    def __init__(
        self,
        ledger: Ledger,
        source: Source,
        book: WatchBook,
        namespace: str,
        follow: Callable[[LabelledPods], Coroutine[Any, Any, None]],
        *,
        margin: float = MARGIN,
    ) -> None:
        """``follow`` keeps an observer up to date; ``run`` calls it."""
        self._ledger = ledger
        self._source = source
        self._book = book
        self._namespace = namespace
        self._follow = follow
        self._margin = margin
        self._tasks: set[asyncio.Task[None]] = set()
        self._owned: OwnedPods | None = None
        self._news = asyncio.Event()

    def look(self) -> None:
        """There is a gang, or one has created something."""
        self._news.set()

    async def run(self) -> None:
        """Watch until no gang was left for a while."""
        clock = asyncio.get_running_loop().time
        needed = clock()
        self._start(self._follow(LabelledPods(self._ledger, self._namespace)))
        try:
            while clock() - needed < self._margin:
                if self._look():
                    needed = clock()
                with suppress(TimeoutError):  # without news too it looks now and then
                    async with asyncio.timeout(min(CHECK, self._margin)):
                        await self._news.wait()
                self._news.clear()
        finally:
            for task in list(self._tasks):
                task.cancel()

    def _look(self) -> bool:
        """Watch by owners too if need be; say whether there is a gang."""
        wanted = self._ledger.look_for(self._namespace)
        if self._owned is not None:
            self._owned.look_again()
        elif wanted is not None and wanted.by_owners:
            self._owned = OwnedPods(self._ledger, self._source, self._namespace, self._start)
            self._start(self._follow(self._owned))
        return wanted is not None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._book.failed(error, f"the pods of gangs in {self._namespace}")

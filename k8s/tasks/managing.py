"""A store's manager carries out all tasks of the store: ``Manager`` as long as it has the lease of a file.

``carry_out`` is that without the lease: others know in another way who manages, such as by an election.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final

from backoff_ctrl.k8s.tasks.plugins.config import GarbageCollection, K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.core import Key, Settles, Unfinished

from .executing import MakeExecutor, context_of
from .notifying import TaskNotifier, make_notifier
from .reconciler import Reconciler
from .sqlite import HeldError, Lease, SqliteStore
from .stepping import ENDED
from .store import PAGE, BrokenStoreError, LeaseLostError, Store, StoreError

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 10.0
"""Seconds that a manager which ends waits for answers of services; a second Ctrl-C ends it at once."""
ASK_AGAIN: Final = 1.0
"""Seconds between two checks whether the lease of another manager has lapsed."""


async def carry_out(
    store: Store,
    make_executor: MakeExecutor,
    config: Callable[[], K8sPluginConfig],
    *,
    certain: Callable[[], bool] = lambda: True,
    only: Collection[str] | None = None,
    gc: Callable[[], GarbageCollection] = GarbageCollection,
    begun: Callable[[Reconciler], object] = lambda _: None,
) -> None:
    """Carry out the tasks of a store until cancelled, as its only manager.

    ``certain`` returns whether no other process can be the manager yet, and is asked right before each create.
    ``only`` these uids are carried out, None: all. ``gc`` returns how long tasks are kept after their
    end. ``begun`` gets the reconciler. Raises ``BrokenStoreError`` and
    ``LeaseLostError``.
    """
    woken: list[Reconciler] = []

    def wake(key: Key) -> None:
        for reconciler in woken:
            reconciler.wake(key)

    identity = await store.identity()

    async def unfinished() -> AsyncIterator[Unfinished]:
        """Yield what earlier managers began and did not release."""
        after = 0
        while page := await store.list(after, PAGE, unfinished=True):
            after = page[-1].number
            for task in page:
                status = task.status
                if status.plugin_state is not None and not (status.phase in ENDED and status.cleaned):
                    yield Unfinished(context_of(task, identity, config()), status.plugin_state)

    async with make_executor(identity, wake, certain, unfinished) as executor, notifying() as notifier:
        reconciler = Reconciler(store, executor, config, only=only, gc=gc)
        reconciler.notifier = notifier
        woken.append(reconciler)
        begun(reconciler)
        work = asyncio.create_task(reconciler.run())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if isinstance(executor, Settles) and not work.done() and certain():
                await executor.settle(SETTLE_SECONDS)  # its answers are stored by the steps, which go on
            raise
        finally:
            work.cancel()
            await asyncio.wait({work})


@asynccontextmanager
async def notifying() -> AsyncIterator[TaskNotifier | None]:
    """Notify receivers until the end of the block, as this process is set to; at the end the queues are emptied."""
    notifier = await asyncio.to_thread(make_notifier)
    try:
        yield notifier
    finally:
        if notifier is not None:
            await asyncio.to_thread(notifier.close)


class Manager:
    """Takes the lease of a store as soon as it is free, and carries its tasks out as long as it has it."""

    def __init__(
        self,
        store: SqliteStore,
        make_executor: MakeExecutor,
        config: Callable[[], K8sPluginConfig],
        *,
        cluster: Callable[[], Awaitable[str]] | None = None,
        only: Collection[str] | None = None,
        gc: Callable[[], GarbageCollection] = GarbageCollection,
        lease: Lease | None = None,
    ) -> None:
        """``cluster`` returns the identity of the cluster: unfinished tasks of a store stay with their cluster."""
        self._store = store
        self._make_executor = make_executor
        self._config = config
        self._cluster = cluster
        self._only = only
        self._gc = gc
        self._lease = lease or store.lease()
        self.reconciler: Reconciler | None = None
        """Runs while this manager has the lease."""
        self.held_by = ""
        """The other holder of the lease; empty: this manager has it, or it is free."""

    async def acquire(self) -> bool:
        """Take the lease if it is free; return whether this manager has it."""
        try:
            await self._store.call(self._lease.acquire)
        except HeldError as error:
            if self.held_by != error.who:
                log.info("the store is managed by %s", error.who)
            self.held_by = error.who
            return False
        self.held_by = ""
        self._store.holder = self._lease.holder
        return True

    async def run(self) -> None:
        """Manage until cancelled. Raises ``BrokenStoreError`` for a store that can't be used at all."""
        said = ""
        while True:
            try:
                if await self.acquire():
                    await self._manage()
                    said = ""
            except LeaseLostError as error:
                log.warning("%s; this one watches until it can take over", error)
            except BrokenStoreError:
                raise
            except StoreError as error:
                if said != str(error):
                    said = str(error)
                    log.error("%s", error)  # noqa: TRY400 - a sentence for people
            await asyncio.sleep(ASK_AGAIN)

    async def _manage(self) -> None:
        try:
            await self._store.check()
            if self._cluster is not None:
                await self._store.claim(await self._cluster())
            await self._carry_out()
        finally:
            self.reconciler = None
            with suppress(StoreError):
                await asyncio.shield(self._store.call(self._lease.release))

    async def _carry_out(self) -> None:
        def begun(reconciler: Reconciler) -> None:
            self.reconciler = reconciler

        carrying = carry_out(
            self._store,
            self._make_executor,
            self._config,
            certain=lambda: self._lease.certain,
            only=self._only,
            gc=self._gc,
            begun=begun,
        )
        work = [asyncio.create_task(carrying), asyncio.create_task(self._renew())]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()  # raises what ended it
        finally:
            for each in work:  # the lease is renewed until the last answers are stored
                each.cancel()
                await asyncio.wait({each})

    async def _renew(self) -> None:
        """Renew the lease. If the store can't be written it may lapse: no other manager could take it then either."""
        while True:
            await asyncio.sleep(self._lease.pause)
            try:
                await self._store.call(self._lease.renew)
            except (BrokenStoreError, LeaseLostError):
                raise
            except StoreError as error:
                log.warning("the lease can't be renewed now: %s", error)

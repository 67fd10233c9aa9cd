"""A store's manager, for as long as it has the lease: whoever holds it carries out all tasks of the store."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from .reconciler import Reconciler
from .sqlite.lease import HeldError
from .store import BrokenStoreError, LeaseLostError, StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from backoff_ctrl.k8s.plugins.config import K8sPluginConfig

    from .executing import Executor, Key
    from .sqlite.lease import Lease
    from .sqlite.store import SqliteStore

log = logging.getLogger(__name__)

ASK_AGAIN: Final = 1.0
"""Seconds between two looks whether the lease of another manager has lapsed."""


class MakeExecutor(Protocol):
    """Makes what carries attempts out, for the time of one lease."""

    def __call__(
        self, store: str, wake: Callable[[Key], object], may_create: Callable[[], bool]
    ) -> AbstractAsyncContextManager[Executor]:
        """``store`` is the id of the store; ``wake`` is to be called when there is news of an attempt.

        ``may_create`` is asked right before each create is sent: another manager may have the store now.
        """


class Manager:
    """Takes the lease of a store as soon as it is free, and carries its tasks out while it has it."""

    def __init__(
        self,
        store: SqliteStore,
        make_executor: MakeExecutor,
        config: Callable[[], K8sPluginConfig],
        *,
        cluster: Callable[[], Awaitable[str]] | None = None,
        only: Collection[str] | None = None,
        lease: Lease | None = None,
    ) -> None:
        """``cluster`` returns which cluster it is: unfinished tasks of a store stay with the one they were begun in."""
        self._store = store
        self._make_executor = make_executor
        self._config = config
        self._cluster = cluster
        self._only = only
        self._lease = lease or store.lease()
        self.reconciler: Reconciler | None = None
        """At work while this manager has the lease."""
        self.held_by = ""
        """Who has the lease instead; empty: this manager, or nobody yet."""

    async def acquire(self) -> bool:
        """Take the lease if it is free; say whether this manager has it."""
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
            await self._store.call(self._store.tables.check)
            await self._claim()
            await self._carry_out()
        finally:
            self.reconciler = None
            with suppress(StoreError):
                await asyncio.shield(self._store.call(self._lease.release))

    async def _carry_out(self) -> None:
        woken: list[Reconciler] = []

        def wake(key: Key) -> None:
            for reconciler in woken:
                reconciler.wake(key)

        identity = await self._store.identity()
        async with self._make_executor(identity, wake, lambda: self._lease.certain) as executor:
            self.reconciler = Reconciler(self._store, executor, self._config, only=self._only)
            woken.append(self.reconciler)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._renew())
                    group.create_task(self.reconciler.run())
            except* StoreError as group:
                raise group.exceptions[0] from None

    async def _renew(self) -> None:
        """Keep the lease. Where the store can't be written it may lapse: nobody else could take it then either."""
        while True:
            await asyncio.sleep(self._lease.pause)
            try:
                await self._store.call(self._lease.renew)
            except (BrokenStoreError, LeaseLostError):
                raise
            except StoreError as error:
                log.warning("the lease can't be renewed now: %s", error)

    async def _claim(self) -> None:
        """Note which cluster the tasks are in. Raises ``BrokenStoreError`` if unfinished ones are in another."""
        if self._cluster is None:
            return
        tables, cluster = self._store.tables, await self._cluster()
        known = await self._store.call(lambda: tables.fact("cluster"))
        if known == cluster:
            return
        if known and any(task.status.plugin_state is not None for task in await self._store.list(unfinished=True)):
            raise BrokenStoreError(
                f"{tables.file} has unfinished tasks in another cluster ({known}, this is {cluster}): go on with "
                "that cluster, or name another file with --store"
            )
        await self._store.call(lambda: tables.keep_fact("cluster", cluster))

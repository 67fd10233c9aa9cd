"""The tasks of one store, carried out by ``serve`` while it runs, unless another process does so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.status.metrics import Sample
from backoff_ctrl.k8s.status.token import Token
from backoff_ctrl.k8s.tasks.cluster.store import open_store
from backoff_ctrl.k8s.tasks.executing import check, cluster_of
from backoff_ctrl.k8s.tasks.figures import samples
from backoff_ctrl.k8s.tasks.logs import TaskLog
from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.platform import Platform
from backoff_ctrl.k8s.tasks.plugins.registry import Entry
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import Stored, StoreError, Wish
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins

log = logging.getLogger(__name__)


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines until the end of the block."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ServedTasks:
    """A store, and its manager beside the application."""

    def __init__(
        self,
        file: Path | None,
        platform: Platform,
        configuration: Any,
        url: str,
        token: Token,
        namespaces: Sequence[str] = (),
    ) -> None:
        """``url`` is where they are served; anonymous callers need ``token`` to change anything.

        Without a ``file`` the tasks are those of the cluster, which its operator carries out: of these namespaces, or
        of all.
        """
        self._namespaces = namespaces
        self.url = url
        self.token = token
        self.trouble = ""
        """Why tasks are no longer carried out; empty: they are."""
        self._file = file
        self._platform = platform
        self._configuration = configuration
        self._manager: Manager | None = None

    def samples(self) -> Iterator[Sample]:
        """Yield metrics of the tasks; nothing while another process carries them out."""
        if self._manager is not None and self._manager.reconciler is not None:
            yield from samples(self._manager.reconciler)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the store and carry its tasks out, until the end of the block. Raises ``StoreError``."""
        async with open_store(self._file, self._configuration, self._namespaces) as self.store:
            work: list[Coroutine[Any, Any, None]] = [self._platform.follow()]
            if isinstance(self.store, SqliteStore):
                work.append(self._manage(self.store))
            with closing(self.token):
                async with beside(*work):
                    yield

    def check(self, wish: Wish) -> Entry:
        """Return the plugin of a task, after it has checked the task. Raises ``TaskSpecError``."""
        return check(wish, self._platform.registry, self._platform.config())

    def entry(self, task: Stored) -> Entry:
        """Return the plugin of a task that is stored. Raises ``PluginError``."""
        return self._platform.registry.resolve(task.spec["type"])

    @asynccontextmanager
    async def log(self, task: Stored, container: str) -> AsyncIterator[TaskLog]:
        """Open a task's log, read with the account of this server. Raises ``PluginError`` and ``LogError``."""
        entry = self.entry(task)
        async with ClusterSession(self._configuration) as session:
            yield TaskLog(session, entry, lambda: self.store.get(task.namespace, task.name), container)

    async def _manage(self, store: SqliteStore) -> None:
        manager = self._manager = Manager(
            store,
            through_plugins(self._platform.registry, self._configuration, self._platform.section),
            self._platform.config,
            cluster=cluster_of(self._configuration),
            gc=self._platform.gc,
        )
        try:
            await manager.run()
        except StoreError as error:
            self.trouble = str(error)
            log.error("tasks are no longer run: %s", error)  # noqa: TRY400 - a sentence for people
        except Exception as error:
            self.trouble = f"tasks are no longer run, after an internal error: {error!r}"
            log.exception("tasks are no longer run, after an internal error")

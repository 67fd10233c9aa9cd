"""The store for asyncio: a thread of its own does what blocks, and writes many statuses in one transaction."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, TypeVar

from backoff_ctrl.k8s.tasks.store import PAGE, Change

from .lease import Lease
from .tables import Tables, Write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from backoff_ctrl.k8s.tasks.model import TaskStatus
    from backoff_ctrl.k8s.tasks.store import Stored, Wish

    T = TypeVar("T")

POLL: Final = 0.2
"""Seconds between two looks whether another process has written."""


class SqliteStore:
    """A store in a file. An async context manager; implements ``Store``.

    It waits for nothing on the event loop: neither for the disk nor for other processes.
    """

    def __init__(self, file: Path, *, create: bool = True) -> None:
        """Prepare; the file is opened on entering."""
        self._file = file
        self._create_file = create
        self._thread = ThreadPoolExecutor(1, "backoff-ctrl-store")
        self._pending: list[tuple[Write, asyncio.Future[int]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._writes = 0
        self.holder: str | None = None
        """Who has to have the lease for statuses to be written; None: nobody in particular."""

    async def __aenter__(self) -> Self:
        """Open the file. Raises ``StoreError``."""
        try:
            self.tables = await self.call(lambda: Tables(self._file, create=self._create_file))
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is to be written, and close the file."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await self.call(self.tables.close)
        self._thread.shutdown()

    async def call(self, work: Callable[[], T]) -> T:
        """Do something with the tables in the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def lease(self) -> Lease:
        """Return the lease of this store, for this process to take."""
        return Lease(self.tables)

    async def identity(self) -> str:
        """Return the id of the store."""
        return await self.call(lambda: self.tables.fact("store"))

    async def create(self, wishes: Sequence[Wish]) -> list[tuple[Stored, bool]]:
        """Keep all of these tasks, or none."""
        found = await self.call(lambda: self.tables.create(wishes))
        self._tell()
        return found

    async def get(self, namespace: str, name: str) -> Stored:
        """Return a task."""
        return await self.call(lambda: self.tables.get(namespace, name))

    async def list(
        self, after: int = 0, limit: int = PAGE, *, namespace: str | None = None, unfinished: bool = False
    ) -> list[Stored]:
        """Return a page of tasks."""
        return await self.call(lambda: self.tables.list(after, limit, namespace=namespace, unfinished=unfinished))

    async def aborted(self, after: float) -> Sequence[Stored]:
        """Return the tasks that were aborted lately."""
        return await self.call(lambda: self.tables.aborted(after))

    async def set_status(self, uid: str, version: int, status: TaskStatus, *, open_: bool) -> int:
        """Write a status, together with those that others write at the same time."""
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending.append((Write(uid, version, status, open_), written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await written

    async def _write(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            writes = [write for write, _ in batch]
            results: Sequence[int | Exception]
            try:
                results = await self.call(lambda writes=writes: self.tables.set_statuses(writes, self.holder))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - each writer is told
                results = [error] * len(batch)
            for (_, written), result in zip(batch, results, strict=True):
                if written.done():  # its writer was cancelled
                    continue
                if isinstance(result, BaseException):
                    written.set_exception(result)
                else:
                    written.set_result(result)
        self._tell()

    async def request_abort(self, namespace: str, name: str) -> Stored:
        """Write the wish that a task ends."""
        found = await self.call(lambda: self.tables.request_abort(namespace, name))
        self._tell()
        return found

    async def delete(self, namespace: str, name: str) -> Stored:
        """Forget a task that has ended."""
        found = await self.call(lambda: self.tables.delete(namespace, name))
        self._tell()
        return found

    async def revision(self) -> int:
        """Return the number of the latest change."""
        return await self.call(self.tables.revision)

    async def watch(self, since: int | None = None, *, wishes: bool = False) -> AsyncIterator[Sequence[Change]]:
        """Yield changes as they come. Raises ``StoreError`` where the file can't be read any more."""
        seen = await self.revision() if since is None else since
        looked_at: tuple[int, int] | None = None
        while True:
            news, here = self._news, self._writes
            there = await self.call(self.tables.data_version)
            if looked_at != (here, there):
                looked_at = here, there
                while changes := await self.call(lambda: self.tables.changes(seen, wishes=wishes)):  # noqa: B023 - now
                    seen = changes[-1].revision
                    yield changes
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await news.wait()

    def _tell(self) -> None:
        """Wake those who watch here; other processes look by themselves."""
        self._writes += 1
        news, self._news = self._news, asyncio.Event()
        news.set()

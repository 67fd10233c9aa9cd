"""The store in a file, for asyncio, and the lease of its one manager.

The store's own thread does all blocking work, and writes many statuses in one transaction.

The lease has to be renewed, else it lapses. Its times are those of the machine's monotonic clock, which all processes
of a boot share, so setting the clock changes nothing. A lease of an earlier boot has lapsed. Beside the row there is a
lock on a file, which the kernel releases when its holder dies, so that nobody has to wait for the lease to lapse. A
holder that hangs keeps the lock, but loses the lease; from then on the store refuses its statuses.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from .model import TaskStatus
from .store import PAGE, BrokenStoreError, Change, LeaseLostError, Stored, Wish
from .tables import Tables, Write

try:
    import fcntl
except ImportError:  # Windows: only the lease
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
SECONDS: Final = 10.0
"""How long a lease holds without being renewed; it is renewed three times as often."""
WRITE_PAUSE: Final = 1.0
"""Seconds between two writes of one task's status, if little has changed."""
POLL: Final = 0.2
"""Seconds between two checks whether another process has written."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class HeldError(Exception):
    """Another manager has the store: ``who``, and the seconds until its lease lapses unless it is renewed."""

    def __init__(self, who: str, lapses_in: float) -> None:
        super().__init__(f"the store is managed by {who}")
        self.who = who
        self.lapses_in = lapses_in


class Lease:
    """The lease of one store, for one would-be manager."""

    def __init__(
        self, tables: Tables, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic, boot: str = ""
    ) -> None:
        """``clock`` is shared by all processes of a ``boot``."""
        self.holder = uuid.uuid4().hex
        self._tables = tables
        self._seconds = seconds
        self._clock = clock
        self._boot = boot or _boot_id()
        self._lock: int | None = None
        self._until = -math.inf

    @property
    def certain(self) -> bool:
        """Whether nobody else can have it yet, by the clock alone: this detects that the process was suspended."""
        return self._clock() < self._until

    def acquire(self) -> None:
        """Take the lease. Raises ``HeldError`` while another has it."""
        locked = self._lock_file()
        now = self._clock()
        try:
            with self._tables.writing() as run:
                row = run("SELECT holder, who, boot, until, locked, renewals FROM lease").fetchone()
                renewals = 0
                if row is not None:
                    holder, who, boot, until, had_lock, renewals = row
                    dead = locked and had_lock  # a living holder would still have the lock
                    # a lease that lasts too long comes from another clock
                    valid = boot == self._boot and now < until <= now + self._seconds
                    if valid and holder != self.holder and not dead:
                        raise HeldError(who, until - now)  # noqa: TRY301 - ends the transaction
                run(
                    "INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?, ?, ?, ?)",
                    (self.holder, _who(), self._boot, now + self._seconds, locked, renewals + 1),
                )
        except BaseException:
            self._unlock_file()
            raise
        self._until = now + self._seconds

    def renew(self) -> None:
        """Renew it. Raises ``LeaseLostError`` if another has it."""
        locked = self._lock_file()  # a hung holder may have had it, or a process that only checked
        with self._tables.writing() as run:
            until = self._clock() + self._seconds
            kept = run(
                "UPDATE lease SET until = ?, locked = ?, renewals = renewals + 1 WHERE holder = ?",
                (until, locked, self.holder),
            )
            if not kept.rowcount:
                self._until = -math.inf
                raise LeaseLostError(f"another manager has taken over {self._tables.file}")
        self._until = until

    def release(self) -> None:
        """Release it, so that the next manager need not wait. A second call does nothing."""
        self._until = -math.inf
        try:
            with self._tables.writing() as run:
                run("DELETE FROM lease WHERE holder = ?", (self.holder,))
        finally:
            self._unlock_file()

    @property
    def pause(self) -> float:
        """Seconds between two renewals."""
        return self._seconds / 3

    def _lock_file(self) -> bool:
        """Take the lock if it is free; return whether this process has it."""
        if fcntl is None:
            return False
        if self._lock is None:
            with suppress(OSError):
                self._lock = os.open(f"{self._tables.file}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if self._lock is None:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock_file(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _boot_id() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"{socket.gethostname()} {time.time() - time.monotonic():.0f}"


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
        """The holder that needs the lease for statuses to be written; None: no check."""

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
        """Write pending statuses, and close the file."""
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await self.call(self.tables.close)
        self._thread.shutdown()

    async def call(self, work: Callable[[], T]) -> T:
        """Call a function with the tables in the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def lease(self) -> Lease:
        return Lease(self.tables)

    async def check(self) -> None:
        """Read the whole file once. Raises ``BrokenStoreError`` if it is damaged."""
        await self.call(self.tables.check)

    async def claim(self, cluster: str) -> None:
        """Record the cluster of its tasks. Raises ``BrokenStoreError`` if unfinished ones are in another."""
        known = await self.call(lambda: self.tables.fact("cluster"))
        if known == cluster:
            return
        if known and any(task.status.plugin_state is not None for task in await self.list(unfinished=True)):
            raise BrokenStoreError(
                f"{self._file} has unfinished tasks in another cluster ({known}, this is {cluster}): continue with "
                "that cluster, or name another file with --store"
            )
        await self.call(lambda: self.tables.keep_fact("cluster", cluster))

    async def identity(self) -> str:
        return await self.call(lambda: self.tables.fact("store"))

    async def create(self, wishes: Sequence[Wish]) -> list[tuple[Stored, bool]]:
        return await self._wished(lambda: self.tables.create(wishes))

    async def get(self, namespace: str, name: str) -> Stored:
        return await self.call(lambda: self.tables.get(namespace, name))

    async def list(
        self, after: int = 0, limit: int = PAGE, *, namespace: str | None = None, unfinished: bool = False
    ) -> list[Stored]:
        return await self.call(lambda: self.tables.list(after, limit, namespace=namespace, unfinished=unfinished))

    async def aborted(self, after: float) -> Sequence[Stored]:
        return await self.call(lambda: self.tables.aborted(after))

    async def set_status(self, uid: str, version: int, status: TaskStatus, *, open_: bool) -> int:
        """Write a status, in one transaction with others that are written at the same time."""
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending.append((Write(uid, version, status, open_), written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await written

    def pause(self, status: TaskStatus, times: int) -> float:  # noqa: ARG002 - its disk is not shared
        return WRITE_PAUSE

    async def _write(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            writes = [write for write, _ in batch]
            results: Sequence[int | Exception]
            try:
                results = await self.call(lambda writes=writes: self.tables.set_statuses(writes, self.holder))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - each writer gets it
                results = [error] * len(batch)
            for (_, written), result in zip(batch, results, strict=True):
                if written.done():  # its writer was cancelled
                    continue
                if isinstance(result, BaseException):
                    written.set_exception(result)
                else:
                    written.set_result(result)
        self._tell()

    async def request_abort(self, namespace: str, name: str, by: str = "") -> Stored:
        return await self._wished(lambda: self.tables.request_abort(namespace, name, by))

    async def signal(self, namespace: str, name: str, value: Any, by: str = "") -> Stored:
        return await self._wished(lambda: self.tables.signal(namespace, name, value, by))

    async def replace(self, uid: str, wish: Wish) -> Stored:
        return await self._wished(lambda: self.tables.replace(uid, wish))

    async def delete(self, namespace: str, name: str) -> Stored:
        return await self._wished(lambda: self.tables.delete(namespace, name))

    async def _wished(self, work: Callable[[], T]) -> T:
        found = await self.call(work)
        self._tell()
        return found

    async def revision(self) -> int:
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
        """Wake the watchers of this process; other processes check by themselves."""
        self._writes += 1
        news, self._news = self._news, asyncio.Event()
        news.set()

"""Reads the jobs of one service in the background, the one that was read longest ago first.

Each job has a time when it is due. One dispatcher takes the job that is due first, waits until the service may be asked
(``pacing``), and has it read by one of ``workers``. A read that fails delays that job alone: it is due again after a
pause that grows, up to the resync interval. If the rate limit is too low for all jobs of an
interval, the job whose last read is oldest goes first: no job starves.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from backoff_ctrl.engine.backoff import delay
from backoff_ctrl.k8s.gate.runtime.places import Path, Places
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.core import Key
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo

from .pacing import OWN, Access, Pacer
from .settings import Caching

log = logging.getLogger(__name__)

AGAIN_BASE: Final = 1.0
"""Seconds before a failed read is repeated; doubled each time, up to the resync interval."""
BEGINS: Final = 1.0
"""Seconds before a job that has not begun is read again; doubled each time, up to the resync interval."""
STARTING: Final = frozenset({Phase.UNDEFINED, Phase.NOT_READY, Phase.QUEUED, Phase.INITIALIZING})
"""Phases of a job that may begin at any moment."""
NEVER: Final = float("-inf")


class NetworkFaultError(Exception):
    """The service can't be reached now. Such a read does not count as a failure of the job."""


@dataclass(slots=True)
class Job:
    """A job that is followed. ``info``: what its last good read means; ``failures``: failed reads since then."""

    read: Callable[[], Awaitable[PhaseInfo]]
    info: PhaseInfo | None = None
    failures: int = 0
    faults: int = 0
    error: str = ""
    read_at: float = NEVER
    waits: int = 0
    """Pauses since it is followed while it had not begun."""
    turn: int = 0
    reading: bool = False


@dataclass
class ReadCounts:
    """Reads from the start on."""

    good: int = 0
    failed: int = 0
    faults: int = 0
    seconds: float = 0.0
    lag: float = field(default=0.0)
    """How late the last job was read, in seconds after it was due."""


class Refresher:
    """The jobs of one service. On one event loop."""

    def __init__(
        self,
        pacer: Pacer,
        caching: Callable[[], Caching],
        wake: Callable[[Key], object],
        workers: Places,
        path: Path = OWN,
    ) -> None:
        """``caching`` returns the present settings; ``wake`` is called with a job whose state has news.

        ``workers`` bounds the reads at a time; ``path`` is that of the service there.
        """
        self._workers = workers
        self._path = path
        self._pacer = pacer
        self._caching = caching
        self._wake = wake
        self._jobs: dict[Key, Job] = {}
        self._due: list[tuple[float, int, Key]] = []
        self._turns = 0
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._reads: set[asyncio.Task[None]] = set()
        self.counts = ReadCounts()
        self._dispatcher = asyncio.create_task(self._dispatch())

    def __len__(self) -> int:
        return len(self._jobs)

    def follow(self, key: Key, read: Callable[[], Awaitable[PhaseInfo]], info: PhaseInfo | None = None) -> Job:
        """Follow a job from now on; ``read`` reads it once. ``info``: what the answer to its create says, if it does.

        ``read`` may raise ``NetworkFaultError``; any other exception is a failure.
        """
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = Job(read, info)
            wait = 0.0 if info is None else self._pause(job)
            self._schedule(key, job, self._loop.time() + wait)
        return job

    def latest(self, key: Key) -> Job | None:
        """Return a followed job; None: it is not followed."""
        return self._jobs.get(key)

    def forget(self, key: Key) -> bool:
        """Follow a job no longer, and say whether it was followed."""
        return self._jobs.pop(key, None) is not None

    def stalest(self) -> float:
        """Return the seconds since the job that was read longest ago was read; 0 without jobs."""
        times = [job.read_at for job in self._jobs.values() if job.read_at > NEVER]
        return self._loop.time() - min(times) if times else 0.0

    async def aclose(self) -> None:
        """End all reads."""
        self._dispatcher.cancel()
        for each in self._reads:
            each.cancel()
        await asyncio.gather(self._dispatcher, *self._reads, return_exceptions=True)

    # -- its own ---------

    def _schedule(self, key: Key, job: Job, at: float) -> None:
        self._turns += 1
        job.turn = self._turns
        heapq.heappush(self._due, (at, self._turns, key))
        if self._due[0][1] == self._turns:
            self._changed.set()

    async def _dispatch(self) -> None:
        while True:
            await self._until_due()
            slot, seat = await self._pacer.enter(Access.READ), object()  # first: a server that is shut takes no seat
            await self._workers.take(seat, *self._path)
            found = self._next()
            if found is None:
                slot.end(used=False)
                self._workers.free(seat)
                continue
            key, job = found
            task = asyncio.create_task(self._read(key, job, slot.end))
            self._reads.add(task)
            task.add_done_callback(partial(self._over, seat))

    def _over(self, seat: object, task: asyncio.Task[None]) -> None:
        self._reads.discard(task)
        self._workers.free(seat)

    async def _until_due(self) -> None:
        """Wait until a job is due."""
        while True:
            self._changed.clear()
            self._drop_forgotten()
            wait = self._due[0][0] - self._loop.time() if self._due else None
            if wait is not None and wait <= 0:
                return
            with suppress(TimeoutError):  # it is due now
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    def _next(self) -> tuple[Key, Job] | None:
        self._drop_forgotten()
        now = self._loop.time()
        if not self._due or self._due[0][0] > now:
            return None
        at, _, key = heapq.heappop(self._due)
        self.counts.lag = now - at
        return key, self._jobs[key]

    def _drop_forgotten(self) -> None:
        while self._due:
            job = self._jobs.get(self._due[0][2])
            if job is not None and job.turn == self._due[0][1]:
                return
            heapq.heappop(self._due)

    async def _read(self, key: Key, job: Job, ended: Callable[[BaseException | None], None]) -> None:
        begun, error = self._loop.time(), None
        try:
            info = await job.read()
        except NetworkFaultError as fault:
            error = fault.__cause__
            self.counts.faults += 1
            job.faults += 1
            job.error = str(fault)
        except Exception as wrong:  # noqa: BLE001 - of one job; the others go on
            error = wrong
            self.counts.failed += 1
            job.failures += 1
            job.error = str(wrong) or type(wrong).__name__
        else:
            news = info != job.info or job.failures or job.faults
            self.counts.good += 1
            job.info, job.failures, job.faults, job.error, job.read_at = info, 0, 0, "", self._loop.time()
            if news:
                self._wake(key)
        finally:
            ended(error)
        self.counts.seconds += self._loop.time() - begun
        if self._jobs.get(key) is job:
            self._schedule(key, job, self._loop.time() + self._pause(job))
            if job.failures or job.faults:
                self._wake(key)

    def _pause(self, job: Job) -> float:
        caching = self._caching()
        resync = caching.resync_interval.total_seconds()
        failed = job.failures + job.faults
        if failed:
            return delay(failed - 1, min(AGAIN_BASE, resync), resync)
        if job.info is None or job.info.phase not in STARTING:
            return resync
        job.waits += 1
        return delay(job.waits - 1, min(BEGINS, resync), resync)

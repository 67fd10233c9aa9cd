"""The one reconciler of a store: steps of many tasks side by side, of each task one at a time.

It alone writes status. It reads requests from the store; news from the cluster wakes a task by its key.

Its ``Sweeper`` ends objects that appear after the abort of their task: their create was sent, and answered too late.
The API server ends each create after 34 s, but a proxy in front of it need not; and a killed manager leaves creates
behind whose answers nobody has read. An abort does not wait for that: its state records the doubt, and for a while the
object is looked for, also by the next manager of the store.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.status.catalogue import STEP_BUCKETS
from backoff_ctrl.k8s.tasks.plugins.config import GarbageCollection, K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.core import CorePlugin, Key
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext

from .collecting import Collector
from .model import ASKED_LATER, TaskStatus, unix
from .notifying import TaskNotifier
from .queue import KeyedQueue
from .stepping import ENDED, OVER, Step, Stepper, has_begun, reason_in_one_line
from .store import (
    PAGE,
    AbsentError,
    BrokenStoreError,
    Change,
    ConflictError,
    LeaseLostError,
    RefusedError,
    Store,
    Stored,
    StoreError,
)

log = logging.getLogger(__name__)

SWEPT_FOR: Final = 900.0
"""Seconds for which the object is looked for after the end of an abort."""
LOOK_AGAIN: Final = 30.0
"""Seconds between two checks without news. If the kind is watched, a check makes no request."""
KEPT_MAX: Final = 1000
WORKERS: Final = 32
"""Steps under way at a time."""
ERROR_BASE: Final = 0.5
ERROR_CAP: Final = 60.0
ERRORS_MAX: Final = 8
"""Errors in a row, over a minute and a half, that end an attempt."""
STORE_PAUSE: Final = 1.0
"""Seconds until a failed write of a status is retried: the disk may be full."""


@dataclass(slots=True)
class Counts:
    """Counters of one reconciler; they begin at 0 with it."""

    steps: int = 0
    step_seconds: float = 0.0
    by_time: list[int] = field(default_factory=lambda: [0] * (len(STEP_BUCKETS) + 1))
    errors: int = 0
    """Steps that raised an error and were due again."""
    writes: int = 0
    held_back: int = 0
    """Statuses that were not written at once, since little had changed."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Attempts that failed, by kind and code."""
    retries: Counter[str] = field(default_factory=Counter)
    """Further attempts, by the kind of the failure before."""
    ended: Counter[str] = field(default_factory=Counter)
    """Tasks that ended, by phase."""

    def step(self, seconds: float) -> None:
        """Count a step that took so long, waiting for the API server included."""
        self.steps += 1
        self.step_seconds += seconds
        self.by_time[bisect_left(STEP_BUCKETS, seconds)] += 1


class Sweeper:
    """The tasks of one store whose objects may still appear. On one event loop."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Stored]] = {}
        self._due: dict[str, None] = {}
        self._some = asyncio.Event()

    def keep(self, task: Stored, now: float) -> None:
        """Look for the object of an ended task, if its state has a doubt; ``now`` is Unix time."""
        status = task.status
        if status.phase != Phase.ABORTED.title or not (status.plugin_state or {}).get("doubt"):
            return
        left = min(SWEPT_FOR, unix(status.ended_at or "") + SWEPT_FOR - now)  # a clock may have been set
        if left > 0 and len(self._kept) < KEPT_MAX:
            self._kept[task.uid] = asyncio.get_running_loop().time() + left, task
            self.wake(task.uid)

    def wake(self, uid: str) -> None:
        """Check this task soon: there is news of its object."""
        if uid in self._kept:
            self._due[uid] = None
            self._some.set()

    async def run(self, executor: CorePlugin, context: Callable[[Stored], TaskContext]) -> None:
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


class Reconciler:
    """Carries out the tasks of a store."""

    def __init__(
        self,
        store: Store,
        executor: CorePlugin,
        config: Callable[[], K8sPluginConfig],
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        only: Collection[str] | None = None,
        gc: Callable[[], GarbageCollection] = GarbageCollection,
    ) -> None:
        """``clock`` returns Unix time; ``only`` these uids are carried out, None: all.

        ``gc`` returns how long tasks are kept after their end.
        """
        self.notifier: TaskNotifier | None = None
        """Tells others of ends; None: nobody asks for it."""
        self._store = store
        self._executor = executor
        self._config = config
        self._clock = clock
        self._rng = rng or random.Random()
        self._only = only
        self._queue = KeyedQueue()
        self._tasks: dict[str, Stored] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._needed: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._errors: dict[str, int] = {}
        self._written: dict[str, tuple[float, int]] = {}  # when, and how often within this phase
        self._unwritten: set[str] = set()
        self._gone: set[str] = set()  # not in the store any more: what they have begun is ended, and nothing written
        self._sweeper = Sweeper()
        self._known = asyncio.Event()  # all unfinished tasks, and so who needs whom
        self.collector = Collector(store, gc, self._is_needed, clock, doubt=SWEPT_FOR)
        self.counts = Counts()
        self.trouble = ""
        """Why statuses can't be written now; empty: they can."""

    def wake(self, key: Key) -> None:
        """Queue the step of a task: there is news of its attempt. Must be called on the event loop."""
        uid, attempt = key
        task = self._tasks.get(uid)
        if task is not None and task.status.attempt == attempt:
            self._queue.add(uid)
        elif task is None:
            self._sweeper.wake(uid)

    def phases(self) -> Counter[str]:
        """Return the number of unfinished tasks in each phase."""
        return Counter(task.status.phase for task in list(self._tasks.values()))  # a copy: any thread may ask

    def tasks(self) -> list[Stored]:
        """Return the unfinished tasks, in their present state."""
        return list(self._tasks.values())

    async def run(self) -> None:
        """Carry out until cancelled. Raises ``BrokenStoreError`` and ``LeaseLostError``: then it must stop."""
        identity = await self._store.identity()
        self._stepper = Stepper(
            self._executor, identity, self._config, self._clock, self._rng, lambda: len(self._tasks)
        )
        sweeping = asyncio.create_task(self._sweeper.run(self._executor, self._stepper.context))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._collect())
                for _ in range(WORKERS):
                    group.create_task(self._work())
        except* StoreError as group:
            raise group.exceptions[0] from None
        finally:
            sweeping.cancel()
            self._queue.close()

    async def _follow(self) -> None:
        """Take in all unfinished tasks, then all requests from now on."""
        since = await self._store.revision()
        after = 0
        while page := await self._store.list(after, PAGE, unfinished=True):
            after = page[-1].number
            for task in page:
                self._take_in(task)
        self._known.set()
        if self._only is None:
            for task in await self._store.aborted(self._clock() - SWEPT_FOR):
                self._sweeper.keep(task, self._clock())
        while True:
            try:
                async for changes in self._store.watch(since, wishes=True):
                    for change in changes:
                        self._heed(change)
                        since = change.revision
            except (BrokenStoreError, LeaseLostError):
                raise
            except StoreError as error:
                log.warning("requests can't be read now: %s", error)
                await asyncio.sleep(STORE_PAUSE)

    async def _collect(self) -> None:
        """Forget tasks that have ended long ago, if this carries out all tasks."""
        if self._only is None:
            await self._known.wait()
            await self.collector.run()

    def _is_needed(self, task: Stored) -> bool:
        needing = self._needed.get((task.namespace, task.name), ())
        return any(not has_begun(self._tasks[uid].status) for uid in needing)

    def _heed(self, change: Change) -> None:
        task = change.task
        if task is None:
            self._lose(change.uid)
            return
        if not task.open:
            return
        known = self._tasks.get(task.uid)
        if known is None:
            self._take_in(task)
            return
        asked = {name: task.spec[name] for name in ASKED_LATER & task.spec.keys()}
        asked = {name: value for name, value in asked.items() if value != known.spec.get(name)}
        if (task.abort and not known.abort) or asked:
            # its status is ours: the store's may be older
            self._tasks[task.uid] = replace(known, abort=known.abort or task.abort, spec={**known.spec, **asked})
            self._queue.add(task.uid)

    def _lose(self, uid: str) -> None:
        """End what a task has begun that was deleted before its end."""
        if uid in self._tasks and uid not in self._gone:
            self._gone.add(uid)
            self._tasks[uid] = replace(self._tasks[uid], abort=True)
            self._queue.add(uid)

    def _take_in(self, task: Stored) -> None:
        if task.uid in self._tasks or (self._only is not None and task.uid not in self._only):
            return
        self._tasks[task.uid] = task
        self._names[task.namespace, task.name] = task.uid
        for need in task.needs:
            self._needed[task.namespace, need].add(task.uid)
        self._queue.add(task.uid)
        self._tell_dependants(task)

    def _tell_dependants(self, task: Stored) -> None:
        for uid in self._needed.get((task.namespace, task.name), ()):
            self._queue.add(uid)

    async def _work(self) -> None:
        while True:
            uid = await self._queue.take()
            try:
                await self._turn(uid)
            finally:
                self._queue.done(uid)

    async def _turn(self, uid: str) -> None:
        """Make one step of a task and write its result."""
        task = self._tasks.get(uid)
        if task is None:
            return
        try:
            await self._keep(task, await self._step(task))
        except (BrokenStoreError, LeaseLostError):
            raise
        except Exception as error:  # noqa: BLE001 - of one task; the others continue
            await self._failed(task, error)
        else:
            self._errors.pop(uid, None)

    async def _step(self, task: Stored) -> Step:
        begun = time.perf_counter()
        try:
            return await self._stepper.step(task, await self._found(task))
        finally:
            self.counts.step(time.perf_counter() - begun)

    async def _found(self, task: Stored) -> dict[str, TaskStatus | None]:
        """Return the status of each task that this one needs, if it has not begun yet."""
        if has_begun(task.status):
            return {}
        found: dict[str, TaskStatus | None] = {}
        for name in task.needs:
            uid = self._names.get((task.namespace, name))
            if uid is not None:
                found[name] = self._tasks[uid].status
                continue
            try:
                found[name] = (await self._store.get(task.namespace, name)).status
            except AbsentError:
                found[name] = None
        return found

    async def _failed(self, task: Stored, error: Exception) -> None:
        """Retry a failed step with growing delays. After too many failures in a row the attempt has failed."""
        times = self._errors.get(task.uid, 0) + 1
        self._errors[task.uid] = times
        if task.uid in self._unwritten:  # drop what could not be written
            self._unwritten.discard(task.uid)
            with suppress(AbsentError):
                self._tasks[task.uid] = task = await self._store.get(task.namespace, task.name)
        self.counts.errors += 1
        said = str(error) or repr(error)
        delay = self._rng.uniform(0.5, 1) * min(ERROR_CAP, ERROR_BASE * 2 ** min(times, 30))
        label = f"{task.namespace}/{task.name}"
        if times == 1 or times & (times - 1) == 0:
            log.warning("a step of task %s failed and is retried in %.1f s: %s", label, delay, printable(said))
        if isinstance(error, RefusedError) and task.status.phase not in ENDED:
            await self._turned_down(task, said)
            return
        if times == 1 or task.status.phase in ENDED:  # it may be temporary, and the result of an ended attempt stays
            self._queue.add(task.uid, delay)
            return
        if times >= ERRORS_MAX and not task.abort and not isinstance(error, StoreError):
            step = self._stepper.failed(task, f"tried {times} times: {said}")
        else:
            told = f"failed {times} times, and will be retried: {said}"
            step = Step(task.status.model_copy(update={"reason": reason_in_one_line(told)}), delay)
        await self._keep(task, step)

    async def _turned_down(self, task: Stored, said: str) -> None:
        """End an attempt whose status the store refuses for what is in it: repeated, it would be refused for ever."""
        try:
            await self._keep(task, self._stepper.failed(task, said))
        except RefusedError as error:
            log.error("the failure of task %s/%s can't be written: %s", task.namespace, task.name, error)  # noqa: TRY400
            self._queue.add(task.uid, ERROR_CAP)

    async def _keep(self, task: Stored, step: Step) -> None:
        """Write the status of a step, now or, if little has changed, with the next one."""
        uid, old = task.uid, task.status
        task = self._tasks[uid]  # the request to end it may have come meanwhile
        if step.status != old or not step.open or uid in self._unwritten:
            wait = self._held_back(uid, old, step)
            if wait > 0:
                self.counts.held_back += 1
                self._tasks[uid] = task.with_status(step.status, task.version)
                self._unwritten.add(uid)
                self._queue.add(uid, wait if step.again is None else min(wait, step.again))
                return
            if not await self._write(task, step):
                return
            self._count(old, step)
            if self.notifier is not None:
                self.notifier.changed(old, replace(self._tasks[uid], open=step.open))
        task = self._tasks[uid]
        if not step.open:
            self._let_go(task)
            self._sweeper.keep(task, self._clock())
        elif step.again is not None:
            self._queue.add(uid, step.again)
        if step.status.phase != old.phase:
            self._tell_dependants(task)

    def _held_back(self, uid: str, old: TaskStatus, step: Step) -> float:
        """Return the seconds until this may be written; 0: at once."""
        new = step.status
        same = (
            step.open
            and (new.phase, new.attempt, new.cleaned, new.next_attempt_at, new.object)
            == (old.phase, old.attempt, old.cleaned, old.next_attempt_at, old.object)
            and _stage(new) == _stage(old)
        )
        if not same or uid not in self._written:
            return 0.0
        last, times = self._written[uid]
        return last + self._store.pause(new, times) - time.monotonic()

    async def _write(self, task: Stored, step: Step) -> bool:
        """Write until the store takes it. False: the task is no longer ours to write, or was read again."""
        while task.uid not in self._gone:
            try:
                version = await self._store.set_status(task.uid, task.version, step.status, open_=step.open)
            except (BrokenStoreError, LeaseLostError, RefusedError):
                raise
            except ConflictError:
                await self._read_anew(task)
                return False
            except StoreError as error:
                if not self.trouble:
                    log.error("%s", error)  # noqa: TRY400 - a sentence for people
                self.trouble = str(error)
                await asyncio.sleep(STORE_PAUSE)
            else:
                self.trouble = ""
                self.counts.writes += 1
                times = self._written.get(task.uid, (0.0, 0))[1] + 1 if step.status.phase == task.status.phase else 0
                self._written[task.uid] = time.monotonic(), times
                self._unwritten.discard(task.uid)
                self._tasks[task.uid] = self._tasks[task.uid].with_status(step.status, version)
                return True
        self._tasks[task.uid] = self._tasks[task.uid].with_status(step.status, task.version)
        return True

    async def _read_anew(self, task: Stored) -> None:
        """Read the task again: another writer has changed its status, or it is gone."""
        try:
            found = await self._store.get(task.namespace, task.name)
        except AbsentError:
            self._lose(task.uid)
            return
        if found.uid != task.uid:
            self._lose(task.uid)
        elif not found.open:
            self._let_go(task)
        else:
            self._tasks[task.uid] = found
            self._queue.add(task.uid)

    def _let_go(self, task: Stored) -> None:
        self._tell_dependants(task)
        del self._tasks[task.uid]
        if self._names.get((task.namespace, task.name)) == task.uid:
            del self._names[task.namespace, task.name]
        for need in task.needs:
            self._needed[task.namespace, need].discard(task.uid)
            if not self._needed[task.namespace, need]:
                del self._needed[task.namespace, need]
        self._errors.pop(task.uid, None)
        self._written.pop(task.uid, None)
        self._gone.discard(task.uid)
        self._unwritten.discard(task.uid)
        self._queue.forget(task.uid)

    def _count(self, old: TaskStatus, step: Step) -> None:
        new = step.status
        if new.phase != old.phase and new.code is not None and new.kind is not None:
            self.counts.failures[new.kind, new.code] += 1
        if new.attempt > old.attempt:
            self.counts.retries[old.kind or ""] += 1
        if not step.open and new.phase in OVER:
            self.counts.ended[new.phase] += 1


def _stage(status: TaskStatus) -> object:
    return None if status.plugin_state is None else status.plugin_state.get("stage", "")

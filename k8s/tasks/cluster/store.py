"""``ClusterStore``: tasks in the API server of a cluster, for asyncio. Implements ``Store``.

An informer for each namespace, or one for all, is started by the first call that needs the whole: lists, watches, and
creates of tasks that need others. It writes each status by compare-and-swap: the server refuses one that was made from
an older version of the object. If that was only a label or a finalizer, the write is repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from backoff_ctrl.k8s.gate.events.correlator import Reason
from backoff_ctrl.k8s.kube.answers.fields import is_going, mapping
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource, Informer
from backoff_ctrl.k8s.kube.watching.objects import WatchAbsentError
from backoff_ctrl.k8s.kube.watching.status import WatchRecord
from backoff_ctrl.k8s.tasks.model import JSON, NOTED_WITH, TaskStatus, unix
from backoff_ctrl.k8s.tasks.reading import difference
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import (
    PAGE,
    AbsentError,
    Change,
    ConflictError,
    ExistsError,
    NeedsError,
    Stored,
    StoreError,
    Wish,
    asked_by,
    circle,
    is_new_signal,
    needs_of,
)

from .bounds import LEFT_OUT, LeftOut, TaskShares
from .cache import Entry, Following, TaskCache
from .conditions import quiet
from .objects import is_held, manifest_of, status_of
from .requests import Requests
from .schema import NAME

log = logging.getLogger(__name__)

Made: TypeAlias = list[tuple[Stored, bool]]
"""Tasks, and whether each is new."""

LONGEST_PAUSE: Final = 15.0
"""Seconds at most between two tries to list Tasks."""
ASK_AGAIN: Final = 60.0
"""Seconds at most until a server that has refused them is asked again."""
GOING_SECONDS: Final = 10.0
"""Seconds that a new run waits until the Task before it is gone: others may have finalizers on it."""
GOING_PAUSE: Final = 0.2
ROOM_AGAIN: Final = 15.0
"""Seconds between two looks whether there is room for Tasks that were left out."""
TOLD_AT_A_TIME: Final = 20
"""Events about Tasks that were left out, at each look."""
TRIES: Final = 5
"""Writes of one status, each after another client changed the rest of its object."""


class ClusterStore:
    """A store in the API server. An async context manager; all on the event loop that entered it.

    ``namespaces``: those whose tasks it has; empty: all of the cluster.
    """

    def __init__(
        self,
        configuration: Any,
        namespaces: Sequence[str] = (),
        *,
        clock: Callable[[], float] = time.time,
        shares: TaskShares | None = None,
    ) -> None:
        """``configuration`` is one of any official client, ``clock`` returns Unix time.

        ``shares`` bound what is kept of the Tasks of each namespace; None: all is kept.
        """
        self._configuration = configuration
        self._clock = clock
        self.cache = TaskCache(shares)
        self._followings = [Following(self.cache, each) for each in namespaces or (None,)]
        self._informing: list[asyncio.Task[None]] = []
        self._identity = ""
        self._releasing: set[str] = set()
        self.record = WatchRecord()

    async def __aenter__(self) -> Self:
        """Open the session, without a request."""
        self._session = await ClusterSession(self._configuration).__aenter__()
        self._requests = Requests(self._session, str(self._configuration.host))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the informers, and close."""
        for each in self._informing:
            each.cancel()
        await asyncio.gather(*self._informing, return_exceptions=True)
        await self._session.__aexit__(kind, error, trace)

    async def identity(self) -> str:
        """Return the identity of the cluster: every store in it is the same one."""
        self._identity = self._identity or await self._requests.identity()
        return self._identity

    def pause(self, status: TaskStatus, times: int) -> float:
        return quiet(status, times)

    # -- reading ---------

    async def ready(self) -> None:
        """Wait until all tasks are known. Raises ``StoreError`` if the server refuses to list them."""
        if not self._informing:
            source = ClusterSource(self._session)
            self._informing = [
                asyncio.create_task(
                    Informer(
                        source, each, self.record, random.Random(), longest_pause=LONGEST_PAUSE, ask_again=ASK_AGAIN
                    ).run()
                )
                for each in self._followings
            ]
        for each in self._followings:
            await each.said.wait()
            if each.refusal is None:
                continue
            if isinstance(each.refusal, WatchAbsentError):
                await self._requests.insist_on_kind()
            where = f"namespace {each.namespace}" if each.namespace else "all namespaces"
            raise StoreError(f"tasks of {where} can't be listed ({each.refusal}): allow list and watch on {NAME}")

    def _is_known(self) -> bool:
        """Return whether all tasks are known now."""
        return bool(self._informing) and all(each.said.is_set() and each.refusal is None for each in self._followings)

    async def get(self, namespace: str, name: str) -> Stored:
        entry = self.cache.named(namespace, name) if self._is_known() else None
        return entry.task if entry is not None and entry.whole else (await self._read(namespace, name)).task

    async def _read(self, namespace: str, name: str) -> Entry:
        """Read a Task from the server. Raises ``AbsentError``."""
        try:
            return self.cache.take(await self._requests.get(namespace, name))
        except AbsentError:
            if (known := self.cache.named(namespace, name)) is not None:
                self.cache.forget(known.task.uid)
            raise

    def left_out(self) -> list[str]:
        """Return a sentence for each Task for which there is no room now."""
        return [each.sentence for each in self.cache.left_out()]

    async def list(
        self, after: int = 0, limit: int = PAGE, *, namespace: str | None = None, unfinished: bool = False
    ) -> list[Stored]:
        await self.ready()

        def wanted(task: Stored) -> bool:
            return task.number > after and (task.open or not unfinished) and namespace in (None, task.namespace)

        return self.cache.tasks(wanted)[:limit]

    async def aborted(self, after: float) -> Sequence[Stored]:
        await self.ready()
        found = self.cache.tasks(
            lambda task: (
                not task.open and task.status.phase == Phase.ABORTED.title and unix(task.status.ended_at or "") > after
            )
        )
        return sorted(found, key=lambda task: task.status.ended_at or "", reverse=True)[:PAGE]

    async def revision(self) -> int:
        await self.ready()
        return self.cache.revision

    async def watch(self, since: int | None = None, *, wishes: bool = False) -> AsyncIterator[Sequence[Change]]:
        """Yield changes as they come. A wish is a new task, a new generation of its spec, or its deletion."""
        await self.ready()
        seen = self.cache.revision if since is None else since
        while True:
            news = self.cache.news()
            while changes := self.cache.changes(seen, wishes=wishes):
                seen = changes[-1].revision
                yield changes
            await news.wait()

    async def take_in_again(self) -> None:
        """Tell of the Tasks for which there is no room, and take each in once there is. Runs until cancelled."""
        told: set[str] = set()
        while True:
            left_out = self.cache.left_out()
            told &= {each.uid for each in left_out}
            untold = [each for each in left_out if each.uid not in told]
            for left in untold[:TOLD_AT_A_TIME]:
                told.add(left.uid)
                await self._about(left, self._requests.tell(left.body, Reason.TOO_LARGE, LEFT_OUT, self._clock()))
            for left in left_out:
                if self.cache.has_room(left):
                    await self._about(left, self._read(left.namespace, left.name))
            await asyncio.sleep(ROOM_AGAIN)

    @staticmethod
    async def _about(left: LeftOut, request: Awaitable[object]) -> None:
        """Wait for a request about a Task that was left out; one that fails harms no other."""
        try:
            await request
        except Exception as error:  # noqa: BLE001 - it is looked at again
            log.info(
                "task %s/%s, for which there was no room, is looked at later: %s", left.namespace, left.name, error
            )

    # -- writing ---------

    async def create(self, wishes: Sequence[Wish]) -> Made:
        """Create these Tasks. The server is asked first whether it would take each; it has no transaction."""
        if any(wish.spec.get("needs") for wish in wishes):
            await self.ready()
            self._refuse_circles(wishes)
        bodies = [manifest_of(wish) for wish in wishes]
        if len(wishes) > 1:
            there = await asyncio.gather(*(self._requests.create(body, dry=True) for body in bodies))
            for wish, found in zip(wishes, there, strict=True):
                if found is None:
                    await self._attach(wish, look=True)
        outcomes = await asyncio.gather(
            *(self._create(wish, body) for wish, body in zip(wishes, bodies, strict=True)), return_exceptions=True
        )
        made = [each for each in outcomes if not isinstance(each, BaseException)]
        for error in outcomes:
            if isinstance(error, BaseException):
                for task, new in made:
                    if new:
                        await self._requests.delete({"metadata": _identifying(task)})
                raise error
        return made

    async def _create(self, wish: Wish, body: JSON) -> tuple[Stored, bool]:
        made = await self._requests.create(body)
        if made is None:
            return await self._attach(wish), False
        return self.cache.take(made).task, True

    async def _attach(self, wish: Wish, *, look: bool = False) -> Stored:
        """Return the task of that name if it is the same. Raises ``ExistsError``. ``look``: without any change."""
        there = (await self._read(wish.namespace, wish.name)).task
        if differs := difference(there.spec, wish.spec):
            raise ExistsError(
                f"task {wish.namespace}/{wish.name} exists with another spec ({differs}): choose another name, or "
                f"delete that task first (kubectl delete task {wish.name} -n {wish.namespace})"
            )
        if look:
            return there
        who = {note: mapping(wish.spec.get(note)).get("by", "") for note in NOTED_WITH.values()}
        if there.open and "signal" in wish.spec:
            there = await self.signal(wish.namespace, wish.name, wish.spec["signal"], who["signalled"])
        return await self.request_abort(wish.namespace, wish.name, who["aborted"]) if wish.abort else there

    def _refuse_circles(self, wishes: Sequence[Wish]) -> None:
        """Raise ``NeedsError`` if these tasks and those that have not ended would wait for each other in a circle."""
        for namespace in {wish.namespace for wish in wishes}:
            known = self.cache.tasks(lambda task: task.open and task.namespace == namespace)  # noqa: B023 - used now
            needs = {task.name: task.needs for task in known}
            needs |= {wish.name: needs_of(wish.spec) for wish in wishes if wish.namespace == namespace}
            if found := circle(needs):
                raise NeedsError(f"spec.needs: these tasks would wait for each other forever: {' -> '.join(found)}")

    async def set_status(self, uid: str, version: int, status: TaskStatus, *, open_: bool) -> int:
        """Write a status. The finalizer of a task that has ended is taken off with it."""
        entry = self.cache.entry(uid)
        for _ in range(TRIES):
            if entry is None or entry.version != version:
                break
            written = await self._requests.write_status(entry.body, status_of(status, entry.body))
            if written is not None:
                entry = self.cache.take(written)
                if not open_:
                    await self.release(entry)
                return entry.version
            entry = await self._again(entry)
        raise ConflictError(f"the status of task {uid} was written by somebody else, or the task was deleted")

    async def _again(self, entry: Entry) -> Entry | None:
        """Read a Task again that has changed; None: it is gone."""
        try:
            found = await self._read(entry.task.namespace, entry.task.name)
        except AbsentError:
            return None
        return found if found.task.uid == entry.task.uid else None

    async def request_abort(self, namespace: str, name: str, by: str = "") -> Stored:
        def is_news(task: Stored) -> bool:
            return task.open and not task.abort

        return await self._ask_for(namespace, name, "abort", is_news, {"abort": True}, by)

    async def signal(self, namespace: str, name: str, value: Any, by: str = "") -> Stored:
        return await self._ask_for(
            namespace, name, "signal", lambda task: is_new_signal(task, value), {"signal": value}, by
        )

    async def _ask_for(
        self, namespace: str, name: str, what: str, is_news: Callable[[Stored], bool], given: JSON, by: str
    ) -> Stored:
        """Write what is asked of a Task (``what`` is the field of its spec), with who asks it, if it is news."""
        by = by or await self._requests.user()
        for _ in range(TRIES):
            entry = await self._read(namespace, name)
            if not is_news(entry.task):
                return entry.task
            noted = {**given, NOTED_WITH[what]: asked_by(by, self._clock())}
            if (body := await self._requests.ask_for(entry.body, noted, what)) is not None:
                return self.cache.take(body).task
        raise ConflictError(f"task {namespace}/{name} changes all the time: {what} it again")

    async def replace(self, uid: str, wish: Wish) -> Stored:
        """Delete a Task and create the new one, which the server is asked about before: it has no transaction."""
        there = (await self._read(wish.namespace, wish.name)).task
        if there.uid != uid:
            raise ConflictError(f"task {wish.namespace}/{wish.name} was created anew meanwhile: look at it first")
        if there.open:
            raise ConflictError(f"task {wish.namespace}/{wish.name} has not ended: abort it first")
        if wish.spec.get("needs"):
            await self.ready()
            self._refuse_circles([wish])
        await self._requests.create(manifest_of(replace(wish, name=f"again-{uid}")), dry=True)
        await self.delete(wish.namespace, wish.name)
        until = asyncio.get_running_loop().time() + GOING_SECONDS
        while (made := await self._requests.create(manifest_of(wish))) is None:
            if asyncio.get_running_loop().time() > until:
                raise ConflictError(
                    f"task {wish.namespace}/{wish.name} is being deleted, and something still holds it (its "
                    "finalizers): create the new one once it is gone"
                )
            await asyncio.sleep(GOING_PAUSE)
        return self.cache.take(made).task

    async def delete(self, namespace: str, name: str) -> Stored:
        for _ in range(TRIES):
            entry = await self._read(namespace, name)
            if entry.task.open:
                raise ConflictError(f"task {namespace}/{name} has not ended: abort it first, then delete it")
            if await self._requests.delete(entry.body):
                self.cache.forget(entry.task.uid)
                return entry.task
        raise ConflictError(f"task {namespace}/{name} changes all the time: delete it again")

    # -- its finalizer ---------

    async def hold(self, uid: str) -> bool:
        """Put our finalizer on a Task; return whether it is there now. False: the Task is going, or gone."""
        entry = self.cache.entry(uid)
        while entry is not None:
            if is_held(entry.body):
                return True
            if is_going(entry.body):
                return False
            body = await self._requests.hold(entry.body, held=True)
            entry = self.cache.take(body) if body is not None else await self._again(entry)
        return False

    async def release(self, entry: Entry | None, *, running: bool = False) -> None:
        """Take our finalizer off a Task that has ended, unless it runs again meanwhile. ``running``: also then.

        What the server refuses now is logged, and tried again when it is deleted.
        """
        if entry is None or entry.task.uid in self._releasing:
            return
        uid = entry.task.uid
        self._releasing.add(uid)
        try:
            while entry is not None and is_held(entry.body) and (running or not entry.task.open):
                body = await self._requests.hold(entry.body, held=False)
                entry = self.cache.take(body) if body is not None else await self._again(entry)
        except StoreError as error:
            log.warning("%s", error)
        finally:
            self._releasing.discard(uid)

    async def tell(self, uid: str, reason: str, note: str) -> None:
        """Write a Kubernetes event about a Task, if the server takes it."""
        entry = self.cache.entry(uid)
        if entry is not None:
            try:
                await self._requests.tell(entry.body, reason, note, self._clock())
            except StoreError as error:
                log.warning("%s: %s", note, error)


def open_store(
    file: Path | None, configuration: Any, namespaces: Sequence[str], *, create: bool = True
) -> SqliteStore | ClusterStore:
    """Return the store in a file, or (None) these namespaces of the cluster's."""
    return ClusterStore(configuration, namespaces) if file is None else SqliteStore(file, create=create)


def _identifying(task: Stored) -> JSON:
    """Return what identifies a task, as the metadata of its object."""
    return {"namespace": task.namespace, "name": task.name, "uid": task.uid}

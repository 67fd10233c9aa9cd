"""``task run``, ``abort`` and ``logs`` on a store of this machine: this process is the manager, unless another one is.

Tasks in the cluster are carried out by the operator there: these commands write requests, and show what happens.
All tasks from files are checked, and their objects built once, before any is stored.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.ending import at_signals
from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.status.serving import SERVICE
from backoff_ctrl.k8s.tasks.again import Needing, failed_by_need, run_again
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore, open_store
from backoff_ctrl.k8s.tasks.documents import TaskItem, item
from backoff_ctrl.k8s.tasks.executing import check, cluster_of
from backoff_ctrl.k8s.tasks.figures import samples
from backoff_ctrl.k8s.tasks.logs import TaskLog
from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.platform import Platform
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import Store, Stored, Wish
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins

from .options import manifests_in
from .places import user_here
from .showing import View, ended_before

ENDING = (signal.SIGINT, signal.SIGTERM)


def wishes_in(files: Sequence[str], namespace: str, platform: Platform) -> list[Wish]:
    """Return the tasks in files; ``namespace`` is for those without one. Raises ``BadInput``."""
    wishes: dict[tuple[str, str], Wish] = {}
    for where, manifest in manifests_in(files):
        try:
            wish = wish_of(read_task(manifest, namespace))
            check(wish, platform.registry, platform.config())
        except TaskSpecError as error:
            raise BadInput(f"{where}: {error}") from None
        key = (wish.namespace, wish.name)
        if key in wishes and wishes[key] != wish:
            raise BadInput(f"{where}: metadata.name: {wish.namespace}/{wish.name} is in these files twice: rename one")
        wishes[key] = wish
    return list(wishes.values())


class Again(NamedTuple):
    """A task that is to run again, with changed fields."""

    namespace: str
    name: str
    changes: Sequence[tuple[str, Any]]


class Run:
    """Tasks that are carried out, or followed, until they have ended or the user leaves."""

    def __init__(
        self,
        file: Path | None,
        cluster: ClusterAccess,
        platform: Platform,
        at: Sequence[str] = (),
        *,
        namespaces: Sequence[str] = (),
    ) -> None:
        """Prepare; no store is opened yet. ``at`` are the options in hints that lead to the store and the cluster.

        Without a ``file`` the tasks are in these namespaces of the cluster: few people may list those of all.
        """
        self._namespaces = namespaces
        self._file = file
        self._at = at
        self._cluster = cluster
        self._platform = platform
        self.items: dict[str, TaskItem] = {}
        """The followed tasks by uid, in their present state."""
        self.detached = False
        """Whether the user left before all had ended."""
        self.by_others = file is None
        """Whether another process carries the tasks out."""

    async def tasks(
        self, wishes: Sequence[Wish], view: Callable[[], View], *, abort_on_exit: bool, again: Again | None = None
    ) -> None:
        """Store these tasks, run one again, or else take all unfinished ones; follow them to their ends."""
        async with open_store(self._file, self._cluster.configuration, self._namespaces) as store:
            since = await store.revision()
            if again is not None:
                followed = [(task, True) for task in await self._again(store, again)]
            elif wishes:
                followed = await store.create(wishes)
            else:
                followed = [(task, True) for task in await _unfinished(store)]
            self.items.update((task.uid, item(task)) for task, _ in followed)
            if followed:
                shown = view()
                for task, new in followed:
                    if not (new or task.open):
                        shown.say(ended_before(item(task), time.time(), self._at))
                await self._follow(store, since, shown, abort_on_exit=abort_on_exit)

    async def _again(self, store: Store, again: Again) -> list[Stored]:
        """Replace a task that has ended by its next run, and with it those that failed by their need of it.

        Raises ``BadInput`` for a change that can't be made; then the old one stays.
        """
        there = await store.get(again.namespace, again.name)
        ended = {each.name: each for each in await _ended(store, there.namespace)}
        about = {name: Needing(task.status.phase, task.status.code, task.needs) for name, task in ended.items()}
        others = failed_by_need(there.name, about)
        wishes = []
        try:
            for task, changes in [(there, again.changes), *((ended[each], ()) for each in others)]:
                wish = run_again(task, changes)
                check(wish, self._platform.registry, self._platform.config())
                wishes.append((task.uid, wish))
        except TaskSpecError as error:
            raise BadInput(str(error)) from None
        return [await store.replace(uid, wish) for uid, wish in wishes]

    async def abort(self, namespace: str, name: str, view: View, seconds: float) -> None:
        """Request the end, and carry it out if no other process does; wait that long at most."""
        async with open_store(self._file, self._cluster.configuration, self._namespaces, create=False) as store:
            since = await store.revision()
            task = await store.request_abort(namespace, name, _asks(store))
            self.items[task.uid] = item(task)
            if task.open:
                with suppress(TimeoutError):  # the exit code and the printed task show that it goes on
                    async with asyncio.timeout(seconds):
                        await self._follow(store, since, view, only=[task.uid])

    async def _follow(
        self,
        store: SqliteStore | ClusterStore,
        since: int,
        view: View,
        *,
        abort_on_exit: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        """Become the manager of a file as soon as no other process is, and show what happens."""
        ends = asyncio.Event()
        async with _signals(ends), RUNTIME.lent():
            manager = None  # tasks of the cluster are the operator's to run and to show
            hide: Callable[[], object] = lambda: None  # noqa: E731
            work = [asyncio.create_task(self._show(store, since, view))]
            if isinstance(store, SqliteStore):
                manager = self._manager(store, only)
                managing = asyncio.create_task(manager.run())
                work = [managing, asyncio.create_task(self._platform.follow()), *work]
                hide = SERVICE.show_beside(lambda: () if manager.reconciler is None else samples(manager.reconciler))
            try:
                await self._until_over(work, ends, store, view, abort_on_exit=abort_on_exit)
            finally:
                if manager is not None:
                    self.by_others = bool(manager.held_by)
                hide()
                for each in work:
                    each.cancel()
                await asyncio.gather(*work, return_exceptions=True)
                view.close()

    def _manager(self, store: SqliteStore, only: Collection[str] | None) -> Manager:
        return Manager(
            store,
            through_plugins(self._platform.registry, self._cluster.configuration, self._platform.section),
            self._platform.config,
            cluster=cluster_of(self._cluster.configuration),
            only=only,
            gc=self._platform.gc,
        )

    async def _until_over(
        self, work: Sequence[asyncio.Task[None]], ends: asyncio.Event, store: Store, view: View, *,
        abort_on_exit: bool,
    ) -> None:  # fmt: skip
        shown = work[-1]
        while True:
            leaving = asyncio.create_task(ends.wait())
            await asyncio.wait([*work, leaving], return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            for each in work:
                if each.done():
                    each.result()  # raises what ended it
            if shown.done():
                return
            ends.clear()
            if not abort_on_exit or self.detached:
                self.detached = True
                return
            self.detached = True
            view.say("aborting the tasks; a second Ctrl-C leaves them to the next manager")
            for each_item in list(self.items.values()):
                await store.request_abort(each_item.namespace, each_item.name, _asks(store))

    async def _show(self, store: Store, since: int, view: View) -> None:
        """Take in changes, until all followed tasks have ended."""
        for each in self.items.values():
            view.changed(each)
        if not self._left():
            return
        async for changes in store.watch(since):
            for change in changes:
                if change.uid not in self.items:
                    continue
                known = self.items[change.uid]
                # a deleted one had ended, with an unknown result
                self.items[change.uid] = replace(known, unfinished=False) if change.task is None else item(change.task)
                view.changed(self.items[change.uid])
            if not self._left():
                return

    def _left(self) -> bool:
        return any(each.unfinished for each in self.items.values())


async def print_log(
    file: Path | None,
    cluster: ClusterAccess,
    platform: Platform,
    named: tuple[str, str],
    container: str,
    *,
    follow: bool,
) -> None:
    """Write the log of a task to stdout. Raises ``StoreError``, ``LogError``, ``ClusterError`` and ``PluginError``."""
    opened = open_store(file, cluster.configuration, [named[0]], create=False)
    async with opened as store, ClusterSession(cluster.configuration) as session:
        entry = platform.registry.resolve((await store.get(*named)).spec["type"])
        log = TaskLog(session, entry, lambda: store.get(*named), container)
        told = ""
        async for line in log.follow() if follow else log.lines():
            told = told or _told(log.note)
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        if not told:  # an empty log has a note, too
            _told(log.note)


def _told(note: str) -> str:
    """Print the note of a log beside it, if there is one, and return it."""
    if note:
        click.echo(printable(note), err=True)
    return note


def _asks(store: Store) -> str:
    """Return who asks for the end of a task; empty: the API server knows."""
    return "" if isinstance(store, ClusterStore) else user_here()


async def _unfinished(store: Store) -> list[Stored]:
    found: list[Stored] = []
    while page := await store.list(found[-1].number if found else 0, unfinished=True):
        found += page
    return found


async def _ended(store: Store, namespace: str) -> list[Stored]:
    found, after = [], 0
    while page := await store.list(after, namespace=namespace):
        found += [each for each in page if not each.open]
        after = page[-1].number
    return found


@asynccontextmanager
async def _signals(ends: asyncio.Event) -> AsyncIterator[None]:
    """Make Ctrl-C and SIGTERM set the event."""
    restore = at_signals(ENDING, ends.set)
    try:
        yield
    finally:
        restore()

"""What every store promises, as functions of two stores of the same tasks: one here, one in another process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from backoff_ctrl.k8s.tasks.model import TaskStatus, shown, unix
from backoff_ctrl.k8s.tasks.store import (
    AbsentError,
    ConflictError,
    ExistsError,
    NeedsError,
    Store,
    Stored,
    Wish,
)
from tests.tasks.tasks_written import until, wish

NOW: Final = shown(1_790_000_000)
RUNS: Final = TaskStatus(phase="Running", since=NOW, created_at=NOW)
DONE: Final = TaskStatus(phase="Success", since=NOW, created_at=NOW, ended_at=NOW)
ABORTED: Final = DONE.model_copy(update={"phase": "Aborted"})


def within(namespace: str) -> Callable[..., Wish]:
    """Return a maker of wishes for a namespace."""

    def make(name: str = "train", **spec: Any) -> Wish:
        return replace(wish(name, **spec), namespace=namespace)

    return make


async def made(store: Store, wish: Wish) -> Stored:
    ((task, _),) = await store.create([wish])
    return task


async def names(store: Store, namespace: str) -> list[str]:
    return sorted(task.name for task in await store.list(namespace=namespace))


async def a_status_is_written_from_the_version_that_was_read(here: Store, there: Store, namespace: str) -> None:
    """Of two that were made from the same version the second is refused, in another process as well."""
    ((task, new),) = await here.create([within(namespace)()])
    other = await there.get(namespace, "train")
    assert (new, task.open, task.status.phase, task.uid) == (True, True, "NotReady", other.uid)
    version = await here.set_status(task.uid, task.version, RUNS, open_=True)
    for stale in (there, here):
        with pytest.raises(ConflictError):
            await stale.set_status(task.uid, other.version, DONE, open_=False)
    assert (await there.get(namespace, "train")).status.phase == "Running"
    await here.set_status(task.uid, version, DONE, open_=False)
    ended = await here.get(namespace, "train")
    assert (ended.status, ended.open) == (DONE, False)


async def the_same_spec_attaches_and_another_is_refused(here: Store, there: Store, namespace: str) -> None:
    """The error says what differs, and nothing of the whole is created."""
    ask = within(namespace)
    first = await made(here, ask())
    ((again, new),) = await there.create([ask(retries={"user": 0})])
    assert (again.uid, new) == (first.uid, False)
    with pytest.raises(ExistsError, match=r'spec\.priority is not set there and "3" here'):
        await here.create([ask("other"), ask(priority=3)])
    assert await names(here, namespace) == ["train"]


async def a_new_task_has_run_as_often_as_it_says(here: Store, there: Store, namespace: str) -> None:
    """So that the first end of what somebody stores with ``spec.again`` is its end."""
    await here.create([within(namespace)(again=3)])
    task = await there.get(namespace, "train")
    assert (task.again, task.status.again, task.is_asked_again) == (3, 3, False)


async def deleted_and_made_again_is_another_task(here: Store, there: Store, namespace: str) -> None:
    """Only what has ended can be deleted; what comes late for the first one is not written to the second."""
    ask = within(namespace)
    first = await made(here, ask())
    with pytest.raises(ConflictError, match="has not ended"):
        await there.delete(namespace, "train")
    version = await here.set_status(first.uid, first.version, DONE, open_=False)
    await there.delete(namespace, "train")
    with pytest.raises(AbsentError):
        await there.get(namespace, "train")
    second = await made(there, ask(priority=1))
    assert second.uid != first.uid
    with pytest.raises(ConflictError):
        await here.set_status(first.uid, version, RUNS, open_=True)


async def circles_are_refused_whole(here: Store, there: Store, namespace: str) -> None:
    """Within what is created at once, and with what is there already."""
    ask = within(namespace)
    with pytest.raises(NeedsError, match="a -> b -> c -> a"):
        await here.create([ask("a", needs=["b"]), ask("b", needs=["c"]), ask("c", needs=["a"])])
    assert await names(here, namespace) == []
    await here.create([ask("a", needs=["b", "x"]), ask("b", needs=["c"])])

    async def known() -> bool:
        return await names(there, namespace) == ["a", "b"]

    await until(known)
    with pytest.raises(NeedsError, match="forever"):
        await there.create([ask("c", needs=["a"])])
    assert await names(here, namespace) == ["a", "b"]


async def an_abort_is_a_wish_and_stays(here: Store, there: Store, namespace: str) -> None:
    """It does not touch the status, nor does it spoil a write; what has ended has nothing to abort."""
    ask = within(namespace)
    task = await made(here, ask())
    assert (await there.request_abort(namespace, "train")).abort
    await here.set_status(task.uid, task.version, ABORTED, open_=False)
    assert (await there.list(namespace=namespace))[0].abort
    assert [each.name for each in await here.aborted(0)] == ["train"]
    over = await made(here, ask("done"))
    await here.set_status(over.uid, over.version, DONE, open_=False)
    assert not (await here.request_abort(namespace, "done")).abort
    with pytest.raises(AbsentError):
        await here.request_abort(namespace, "nobody")


async def a_signal_is_a_wish_and_stays(here: Store, there: Store, namespace: str) -> None:
    """Its value is kept as it is, null within it too; only a task that waits for one takes it, and only one."""
    ask = within(namespace)
    value = {"by": "ada", "note": None, "votes": [1, 2.5]}
    task = await made(here, ask("approve", type="signal", container=None))
    assert (await there.signal(namespace, "approve", value)).spec["signal"] == value
    assert (await here.signal(namespace, "approve", value)).uid == task.uid
    with pytest.raises(ConflictError, match="has had its signal"):
        await here.signal(namespace, "approve", False)
    version = (await here.get(namespace, "approve")).version
    await here.set_status(task.uid, version, DONE, open_=False)
    ((again, new),) = await there.create([ask("approve", type="signal", container=None)])
    assert (again.uid, new, again.spec["signal"]) == (task.uid, False, value)
    await made(here, ask())
    with pytest.raises(ConflictError, match="only tasks of the type signal"):
        await there.signal(namespace, "train", True)
    over = await made(here, ask("late", type="signal", container=None))
    await here.set_status(over.uid, over.version, ABORTED, open_=False)
    with pytest.raises(ConflictError, match="has ended as Aborted"):
        await there.signal(namespace, "late", True)


async def who_gave_a_signal_and_when_is_kept(here: Store, there: Store, namespace: str) -> None:
    """In one line, with the time of the store's own clock; the same signal by another one later changes nothing."""
    await made(here, within(namespace)("approve", type="signal", container=None))
    before = time.time()
    await there.signal(namespace, "approve", True, "ada\n of team a")
    given = (await here.get(namespace, "approve")).spec["signalled"]
    assert given["by"] == "ada of team a"
    assert before - 1 <= unix(given["at"]) <= time.time() + 1
    await here.signal(namespace, "approve", True, "bob")
    assert (await there.get(namespace, "approve")).spec["signalled"] == given


async def who_asked_for_an_end_and_when_is_kept(here: Store, there: Store, namespace: str) -> None:
    """As of a signal, also where it comes with an equal task that exists; another one later changes nothing."""
    ask = within(namespace)
    for name in ("train", "again"):
        await made(here, ask(name))
    before = time.time()
    await there.request_abort(namespace, "train", "ada\n of team a")
    given = (await here.get(namespace, "train")).spec["aborted"]
    assert given["by"] == "ada of team a"
    assert before - 1 <= unix(given["at"]) <= time.time() + 1
    await here.request_abort(namespace, "train", "bob")
    assert (await there.get(namespace, "train")).spec["aborted"] == given
    ending = ask("again")
    await there.create([replace(ending, abort=True, spec={**ending.spec, "aborted": {"by": "eve"}})])
    found = await here.get(namespace, "again")
    assert (found.abort, found.spec["aborted"]["by"]) == (True, "eve")
    ((same, new),) = await here.create([ask("train")])
    assert (same.spec["aborted"], new) == (given, False)


async def only_what_has_ended_is_replaced(here: Store, there: Store, namespace: str) -> None:
    """By a new task, with a uid of its own; of two who want to replace one only the first does."""
    ask = within(namespace)
    first = await made(here, ask())
    with pytest.raises(ConflictError, match="has not ended"):
        await there.replace(first.uid, ask(priority=3))
    await here.set_status(first.uid, first.version, DONE, open_=False)
    second = await there.replace(first.uid, ask(priority=3))
    assert (second.uid != first.uid, second.open, second.spec["priority"]) == (True, True, 3)
    with pytest.raises(ConflictError, match="meanwhile"):
        await here.replace(first.uid, ask(priority=4))
    assert (await here.get(namespace, "train")).uid == second.uid


async def a_watch_tells_each_change_and_wishes_alone(here: Store, there: Store, namespace: str) -> None:
    """What this process writes and what another does; who asks for wishes is woken by no status."""
    since = await here.revision()
    heard: list[str] = []
    wishes: list[str] = []

    async def listen() -> None:
        async for changes in here.watch(since):
            heard.extend("gone" if each.task is None else each.task.status.phase for each in changes)

    async def listen_to_wishes() -> None:
        async for changes in here.watch(since, wishes=True):
            wishes.extend("gone" if each.task is None else f"{each.task.abort}" for each in changes)

    async def told(what: str) -> None:
        async def there_is() -> bool:
            return what in heard

        await until(there_is)

    listening = [asyncio.create_task(listen()), asyncio.create_task(listen_to_wishes())]
    task = await made(there, within(namespace)())
    await told("NotReady")
    version = (await here.get(namespace, "train")).version
    version = await here.set_status(task.uid, version, RUNS, open_=True)
    await told("Running")
    await there.request_abort(namespace, "train")
    await here.set_status(task.uid, version, ABORTED, open_=False)
    await told("Aborted")
    await there.delete(namespace, "train")
    await told("gone")
    for each in listening:
        each.cancel()
    assert (wishes[0], wishes[-1]) == ("False", "gone")
    assert len(wishes) <= 3


async def pages_have_each_task_once(here: Store, there: Store, namespace: str) -> None:
    """In one order, which is the same for all processes."""
    await here.create([within(namespace)(f"t{number}") for number in range(23)])
    found: list[str] = []
    after = 0
    while page := await there.list(after, 5, namespace=namespace):
        found += [task.name for task in page]
        after = page[-1].number
    assert sorted(found) == sorted(f"t{number}" for number in range(23))
    assert found == [task.name for task in await here.list(namespace=namespace)]


CONTRACT: Final[list[Callable[[Store, Store, str], Awaitable[None]]]] = [
    a_status_is_written_from_the_version_that_was_read,
    the_same_spec_attaches_and_another_is_refused,
    a_new_task_has_run_as_often_as_it_says,
    deleted_and_made_again_is_another_task,
    circles_are_refused_whole,
    an_abort_is_a_wish_and_stays,
    a_signal_is_a_wish_and_stays,
    who_gave_a_signal_and_when_is_kept,
    who_asked_for_an_end_and_when_is_kept,
    only_what_has_ended_is_replaced,
    a_watch_tells_each_change_and_wishes_alone,
    pages_have_each_task_once,
]

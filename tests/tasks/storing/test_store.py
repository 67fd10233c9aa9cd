"""What the store promises: one status at a time, nothing lost, no name used twice, nothing adopted."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from backoff_ctrl.k8s.status.conversation import as_json
from backoff_ctrl.k8s.tasks.documents import document
from backoff_ctrl.k8s.tasks.model import TaskObject, TaskStatus, TaskWait
from backoff_ctrl.k8s.tasks.sqlite import Lease, SqliteStore
from backoff_ctrl.k8s.tasks.store import (
    AbsentError,
    BrokenStoreError,
    ConflictError,
    ExistsError,
    FullError,
    NeedsError,
    StoreError,
)
from backoff_ctrl.k8s.tasks.tables import VERSION, Tables, Write, default_file, expanded
from tests.kit.costs import lines_of
from tests.tasks.tasks_written import NAMESPACE, until, wish

RUNS = TaskStatus(phase="Running")
LINES_A_TASK = 60
"""Lines of Python that run to list a task with its status: 55, and 1 % of a page's."""


def stored(tables: Tables) -> list[str]:
    return [task.name for task in tables.list()]


def test_a_status_is_written_from_the_version_that_was_read(tmp_path: Path) -> None:
    """Of two that were made from the same version, the second is refused, in another process as well."""
    one, other = Tables(tmp_path / "t.db"), Tables(tmp_path / "t.db")
    ((task, new),) = one.create([wish()])
    assert (new, task.version, task.open) == (True, 0, True)
    assert list(one.set_statuses([Write(task.uid, 0, RUNS, True)])) == [1]
    (refused,) = other.set_statuses([Write(task.uid, 0, TaskStatus(phase="Success"), False)])
    assert isinstance(refused, ConflictError)
    assert other.get(NAMESPACE, "train").status.phase == "Running"
    assert list(other.set_statuses([Write(task.uid, 1, TaskStatus(phase="Success"), False)])) == [2]
    one.close()
    other.close()


def test_the_same_spec_attaches_and_another_is_refused(tmp_path: Path) -> None:
    """The error says what differs, and nothing of the whole file is created."""
    tables = Tables(tmp_path / "t.db")
    ((first, _),) = tables.create([wish()])
    ((again, new),) = tables.create([wish(retries={"user": 0})])
    assert (again.uid, new) == (first.uid, False)
    with pytest.raises(ExistsError, match=r'spec\.priority is not set there and "3" here'):
        tables.create([wish("other"), wish(priority=3)])
    assert stored(tables) == ["train"]
    tables.close()


def test_deleted_and_made_again_is_another_task(tmp_path: Path) -> None:
    """Only what has ended can be deleted; the next of its name has a uid and a place of its own."""
    tables = Tables(tmp_path / "t.db")
    ((first, _),) = tables.create([wish()])
    with pytest.raises(ConflictError, match="has not ended"):
        tables.delete(NAMESPACE, "train")
    tables.set_statuses([Write(first.uid, 0, TaskStatus(phase="Success"), False)])
    tables.delete(NAMESPACE, "train")
    with pytest.raises(AbsentError):
        tables.get(NAMESPACE, "train")
    ((second, new),) = tables.create([wish(priority=1)])
    assert new
    assert second.uid != first.uid
    assert second.number > first.number
    (late,) = tables.set_statuses([Write(first.uid, 1, RUNS, True)])
    assert isinstance(late, ConflictError)
    tables.close()


def test_a_status_of_an_older_file_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    """Down to the bytes: an older program may be the next manager. What it had not yet is left out."""
    old = (
        '{"phase":"WaitingForResources","reason":"quota","attempt":1,'
        '"object":{"apiVersion":"v1","kind":"Pod","name":"x"},'
        '"wait":{"reason":"quota","quota":"q","place":3,"nextProbeAt":"2026-01-01T00:00:00Z"},"retried":{"user":1},'
        '"pluginState":{"stage":"a"},"logs":[{"name":"l","uri":"u"}],'
        '"reasons":[{"text":"t","at":"2026-01-01T00:00:00Z"}],'
        '"history":[{"phase":"RetryableFailure","at":"2026-01-01T00:00:00Z","attempt":0,"code":"x","kind":"USER"}]}'
    )
    tables = Tables(tmp_path / "t.db")
    ((task, _),) = tables.create([wish()])
    with sqlite3.connect(tmp_path / "t.db") as file:
        file.execute("UPDATE tasks SET status = ?", (old,))
    status = tables.get(NAMESPACE, "train").status
    assert (status.wait, status.object) == (
        TaskWait("quota", "q", place=3, next_probe_at="2026-01-01T00:00:00Z"), TaskObject("v1", "Pod", "x")
    )  # fmt: skip
    served = json.loads(as_json(document(tables.get(NAMESPACE, "train"), 0)))  # as the status API writes it
    assert served["object"] == {"api_version": "v1", "kind": "Pod", "name": "x", "uid": ""}
    assert (served["wait"]["next_probe_at"], served["logs"]) == ("2026-01-01T00:00:00Z", [{"name": "l", "uri": "u"}])
    assert list(tables.set_statuses([Write(task.uid, 0, status, True)])) == [1]
    assert file.execute("SELECT status FROM tasks").fetchone() == (old,)
    file.close()
    tables.close()


def test_circles_are_refused_whole(tmp_path: Path) -> None:
    """Within what is created at once, and with what is there already; the error shows the way round."""
    tables = Tables(tmp_path / "t.db")
    with pytest.raises(NeedsError, match="a -> b -> c -> a"):
        tables.create([wish("a", needs=["b"]), wish("b", needs=["c"]), wish("c", needs=["a"])])
    assert stored(tables) == []
    tables.create([wish("a", needs=["b", "x"]), wish("b", needs=["c"])])
    with pytest.raises(NeedsError, match="forever"):
        tables.create([wish("c", needs=["a"])])
    assert stored(tables) == ["a", "b"]
    tables.close()


def test_a_namespace_has_a_limit_of_its_own(tmp_path: Path) -> None:
    """What would be beyond is not created, and says what to do; an equal task and other namespaces are none of it."""
    tables = Tables(tmp_path / "t.db", most=3)
    tables.create([wish("a"), wish("b")])
    with pytest.raises(
        FullError, match=r"namespace team may have 3 tasks in .* delete some .*task delete NAME -n team"
    ):
        tables.create([wish("c"), wish("d")])
    assert stored(tables) == ["a", "b"]
    ((task, _),) = tables.create([wish("c")])
    tables.create([wish("a"), wish("c"), replace(wish("d"), namespace="other")])
    tables.set_statuses([Write(task.uid, 0, TaskStatus(phase="Success"), False)])
    with pytest.raises(FullError):
        tables.create([wish("d")])
    tables.delete(NAMESPACE, "c")
    tables.create([wish("d")])
    assert stored(tables) == ["a", "b", "d", "d"]
    tables.close()


def test_a_long_chain_of_needs_is_no_circle(tmp_path: Path) -> None:
    """Neither recursion nor time ends it: 5,000 links, and a lattice with 2^30 ways through it."""
    tables = Tables(tmp_path / "t.db")
    tables.create([wish(f"t{n}", needs=[f"t{n + 1}"]) for n in range(5000)])
    tables.create([wish(f"l{n}-{side}", needs=[f"l{n + 1}-0", f"l{n + 1}-1"]) for n in range(30) for side in (0, 1)])
    tables.close()


def test_an_abort_is_a_wish_and_stays(tmp_path: Path) -> None:
    """It is written once, and does not touch the status; what has ended has nothing to abort."""
    tables = Tables(tmp_path / "t.db")
    ((task, _),) = tables.create([wish()])
    assert tables.request_abort(NAMESPACE, "train").abort
    assert list(tables.set_statuses([Write(task.uid, 0, TaskStatus(phase="Aborted"), False)])) == [1]
    ((over, _),) = tables.create([wish("done")])
    tables.set_statuses([Write(over.uid, 0, TaskStatus(phase="Success"), False)])
    assert not tables.request_abort(NAMESPACE, "done").abort
    with pytest.raises(AbsentError, match="backoff-ctrl task list"):
        tables.request_abort(NAMESPACE, "nobody")
    tables.close()


async def test_watching_tells_each_change_and_misses_none(tmp_path: Path) -> None:
    """What this process writes and what another does, in order; wishes alone for those who ask for them alone."""
    async with SqliteStore(tmp_path / "t.db") as here, SqliteStore(tmp_path / "t.db") as there:
        since = await here.revision()
        heard: list[tuple[str, str]] = []
        wishes: list[str] = []

        async def listen() -> None:
            async for changes in here.watch(since):
                heard.extend((each.uid, "gone" if each.task is None else each.task.status.phase) for each in changes)

        async def listen_to_wishes() -> None:
            async for changes in here.watch(since, wishes=True):
                wishes.extend("gone" if each.task is None else f"{each.task.abort}" for each in changes)

        listening = [asyncio.create_task(listen()), asyncio.create_task(listen_to_wishes())]
        ((task, _),) = await there.create([wish()])
        await told(heard, (task.uid, "NotReady"))
        await here.set_status(task.uid, 0, RUNS, open_=True)
        await told(heard, (task.uid, "Running"))
        await there.request_abort(NAMESPACE, "train")
        await there.set_status(task.uid, 1, TaskStatus(phase="Aborted"), open_=False)
        await told(heard, (task.uid, "Aborted"))
        await there.delete(NAMESPACE, "train")
        await told(heard, (task.uid, "gone"))
        for each in listening:
            each.cancel()
        assert wishes[0] == "False"
        assert wishes[-1] == "gone"
        assert len(wishes) <= 3  # no status is a wish


async def told(heard: list[tuple[str, str]], what: tuple[str, str]) -> None:

    async def there() -> bool:
        return what in heard

    await until(there)


async def test_of_many_statuses_at_once_each_gets_its_own_answer(tmp_path: Path) -> None:
    """One that conflicts spoils none of the others."""
    async with SqliteStore(tmp_path / "t.db") as store:
        made = [task for task, _ in await store.create([wish(f"t{n}") for n in range(200)])]
        stale = made[7]
        await store.set_status(stale.uid, 0, RUNS, open_=True)
        found = await asyncio.gather(
            *(store.set_status(task.uid, 0, RUNS, open_=True) for task in made), return_exceptions=True
        )
        assert [isinstance(each, ConflictError) for each in found] == [task is stale for task in made]


def test_what_a_list_costs_grows_with_its_tasks_alone(tmp_path: Path) -> None:
    """All pages, statuses read, as `task list` does it: a few lines of Python a task, the ten-thousandth like the first."""
    tables = Tables(tmp_path / "t.db")

    def listed() -> int:
        found, after = 0, 0
        while page := tables.list(after):
            found, after = found + len(page), page[-1].number
        return found

    for total in (1_000, 3_000):
        made = [task for task, _ in tables.create([wish(f"t{total}-{n}") for n in range(total - listed())])]
        tables.set_statuses([Write(task.uid, 0, RUNS, True) for task in made])
        assert listed() == total
        assert lines_of(listed) < LINES_A_TASK * total
    tables.close()


def test_the_default_is_in_the_users_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As XDG says; a relative path does not count. Nobody else may read it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_file() == tmp_path / "backoff-ctrl" / "tasks.db"
    Tables(default_file()).close()
    assert default_file().stat().st_mode & 0o077 == 0
    assert default_file().parent.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_file() == tmp_path / ".local" / "state" / "backoff-ctrl" / "tasks.db"


def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    """This program does not know what is in it."""
    file = tmp_path / "t.db"
    Tables(file).close()
    with sqlite3.connect(file) as raw:
        raw.execute(f"PRAGMA user_version = {VERSION + 1}")
    raw.close()
    before = file.read_bytes()
    with pytest.raises(BrokenStoreError, match=r"t\.db was written by a newer version of backoff-ctrl"):
        Tables(file)
    assert file.read_bytes() == before


def test_so_is_the_file_of_another_program(tmp_path: Path) -> None:
    """A browser's history is no store, nor is a text; a folder can't be one."""
    file = tmp_path / "history.sqlite"
    with sqlite3.connect(file) as raw:
        raw.execute("CREATE TABLE urls (url TEXT)")
    raw.close()
    before = file.read_bytes()
    with pytest.raises(BrokenStoreError, match="belongs to another program"):
        Tables(file)
    assert file.read_bytes() == before  # not even its journal is another now
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be looked at " * 50)
    with pytest.raises(BrokenStoreError, match=r"notes\.txt is no store of tasks, or .*name another"):
        Tables(text)
    with pytest.raises(StoreError, match="can't be opened"):
        Tables(tmp_path)
    with pytest.raises(BrokenStoreError, match=r"there is no store at .*none\.db: run a task first"):
        Tables(tmp_path / "none.db", create=False)


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_to_a_file_that_is_gone(tmp_path: Path, *, replaced: bool) -> None:
    """Deleted, or replaced by a copy: what SQLite still has open would take tasks that nobody finds again."""
    file = tmp_path / "t.db"
    tables = Tables(file)
    tables.create([wish("first")])
    if replaced:
        file.rename(tmp_path / "old.db")
        Tables(file).close()
    else:
        file.unlink()
    with pytest.raises(BrokenStoreError, match=r"t\.db was deleted or replaced while it was in use"):
        tables.create([wish("lost")])
    lease = Lease(tables)
    with pytest.raises(BrokenStoreError, match="was deleted or replaced"):
        lease.acquire()
    tables.close()


def test_damage_is_told_and_nothing_is_touched(tmp_path: Path) -> None:
    """Pages in the middle are overwritten: the check finds it, and the error says how to save the rest."""
    file = tmp_path / "t.db"
    tables = Tables(file)
    tables.create([wish(f"t{n}") for n in range(500)])
    tables.close()
    content = bytearray(file.read_bytes())
    content[8192:20480] = b"\xff" * 12288
    file.write_bytes(content)
    with pytest.raises(BrokenStoreError, match=r"t\.db is damaged .*\.recover"):
        Tables(file).check()
    assert file.read_bytes() == bytes(content)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("status = json_set(status, '$.mood', 'fine')", r"status\.mood: Extra inputs"),
        ("status = json_set(status, '$.attempt', 'many')", r"status\.attempt: "),
        ("status = '{broken'", r"status: Invalid JSON"),
        ("spec = '{}'", "its spec names no type"),
        ("metadata = '['", "Expecting value"),
    ],
)
def test_a_task_that_can_not_be_read_is_named(tmp_path: Path, change: str, said: str) -> None:
    """A newer version may have written fields that this one does not know; a disk may have lost some."""
    file = tmp_path / "t.db"
    tables = Tables(file)
    tables.create([wish()])
    with sqlite3.connect(file) as raw:
        raw.execute(f"UPDATE tasks SET {change}")
    raw.close()
    with pytest.raises(
        BrokenStoreError, match=rf"task team/train in the store can't be read \(.*{said}.*newer version"
    ):
        tables.list()
    tables.close()


def test_a_user_without_a_home_is_told_to_name_a_file() -> None:
    """Containers often run as a user that nobody has written down."""
    with pytest.raises(BrokenStoreError, match="has no home directory here: name a file with --store"):
        expanded("~nobody-of-this-name/tasks.db")

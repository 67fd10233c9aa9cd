"""What is read from the tables and written to them, each in one transaction. Everything here blocks."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.needs import circle
from backoff_ctrl.k8s.tasks.reading import difference
from backoff_ctrl.k8s.tasks.store import (
    PAGE,
    AbsentError,
    BrokenStoreError,
    Change,
    ConflictError,
    ExistsError,
    FullError,
    LeaseLostError,
    NeedsError,
    Stored,
    Wish,
)
from backoff_ctrl.k8s.tasks.times import shown

from .file import damaged, open_file, told, which

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

CHANGES_MAX: Final = 1000
"""Changes told at a time."""
GONE_KEPT: Final = 10_000
"""Deleted tasks remembered, for those who watch."""
TASKS_MAX: Final = 20_000
"""Tasks of a namespace, those that have ended included: one that fills the disk would stop all others."""
_COLUMNS: Final = (
    "uid, number, namespace, name, metadata, spec, abort, status, version, open, created_at, changed, wished"
)


class Write(NamedTuple):
    """One status to write, made from a version."""

    uid: str
    version: int
    status: TaskStatus
    open: bool


class Tables:
    """The store's tables. One operation at a time; its methods may be called from any thread."""

    def __init__(
        self, file: Path, *, create: bool = True, clock: Callable[[], float] = time.time, most: int = TASKS_MAX
    ) -> None:
        """Open the file. ``clock`` returns Unix time, ``most`` is how many tasks a namespace may have.

        Raises ``StoreError``.
        """
        self.file = file
        self.most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._connection = open_file(file, create=create)
        self._opened = which(file)

    def close(self) -> None:
        """Close the file; what was written stays. A second call does nothing."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    def check(self) -> None:
        """Read the whole file once. Raises ``BrokenStoreError`` if it is damaged."""
        with self._lock, told(self.file):
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(self.file, " ".join(str(found).split()))

    def fact(self, name: str) -> str:
        """Return a fact about the whole store; empty: it has none of that name."""
        with self.reading() as run:
            row = run("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
            return "" if row is None else str(row[0])

    def keep_fact(self, name: str, value: str) -> None:
        """Keep a fact about the whole store."""
        with self.writing() as run:
            run("INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value))  # fmt: skip

    def create(self, wishes: Sequence[Wish]) -> list[tuple[Stored, bool]]:
        """Keep all of these, or none. Raises ``ExistsError``, ``NeedsError``, ``FullError``."""
        with self.writing(through=True) as run:
            found = [self._create(run, wish) for wish in wishes]
            self._refuse_too_many(run, {task.namespace for task, new in found if new})
            _refuse_circles(run, {wish.namespace for wish in wishes if wish.spec.get("needs")})
        return found

    def _refuse_too_many(self, run: Run, namespaces: set[str]) -> None:
        for namespace in namespaces:
            (count,) = run("SELECT count(*) FROM tasks WHERE namespace = ?", (namespace,)).fetchone()
            if count > self.most:
                raise FullError(
                    f"namespace {namespace} may have {self.most} tasks in {self.file}, also those that have ended: "
                    f"delete some (backoff-ctrl task delete NAME -n {namespace})"
                )

    def _create(self, run: Run, wish: Wish) -> tuple[Stored, bool]:
        there = _one(run, wish.namespace, wish.name)
        if there is not None:
            if differs := difference(there.spec, wish.spec):
                raise ExistsError(
                    f"task {wish.namespace}/{wish.name} exists with another spec ({differs}): choose another name, or "
                    f"delete that task first (backoff-ctrl task delete {wish.name} -n {wish.namespace})"
                )
            return (self._abort(run, there), False) if wish.abort else (there, False)
        revision = _next(run)
        now = self._clock()
        status = TaskStatus(created_at=shown(now), since=shown(now))
        run(
            "INSERT INTO tasks (uid, namespace, name, metadata, spec, abort, status, version, open, created_at, "
            "changed, wished) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 1, ?, ?, ?)",
            (str(uuid.uuid4()), wish.namespace, wish.name, _text(wish.metadata), _text(wish.spec), wish.abort,
             _status_text(status), now, revision, revision),
        )  # fmt: skip
        made = _one(run, wish.namespace, wish.name)
        assert made is not None
        return made, True

    def get(self, namespace: str, name: str) -> Stored:
        """Return a task. Raises ``AbsentError``."""
        with self.reading() as run:
            found = _one(run, namespace, name)
        if found is None:
            raise _absent(namespace, name)
        return found

    def list(
        self, after: int = 0, limit: int = PAGE, *, namespace: str | None = None, unfinished: bool = False
    ) -> list[Stored]:
        """Return a page of tasks, in the order of their creation."""
        where = "number > ?" + (" AND open" if unfinished else "") + (" AND namespace = ?" if namespace else "")
        given = (after, *([namespace] if namespace else []), limit)
        with self.reading() as run:
            rows = run(f"SELECT {_COLUMNS} FROM tasks WHERE {where} ORDER BY number LIMIT ?", given).fetchall()
        return [_stored(row) for row in rows]

    def aborted(self, after: float) -> Sequence[Stored]:
        """Return the tasks that ended as aborted after a time, the newest first."""
        where = "abort AND NOT open AND json_extract(status, '$.phase') = 'Aborted'"
        with self.reading() as run:
            rows = run(f"SELECT {_COLUMNS} FROM tasks WHERE {where} AND json_extract(status, '$.endedAt') > ? "
                       "ORDER BY changed DESC LIMIT ?", (shown(after), PAGE)).fetchall()  # fmt: skip
        return [_stored(row) for row in rows]

    def set_statuses(self, writes: Sequence[Write], holder: str | None = None) -> Sequence[int | Exception]:
        """Write statuses in one transaction; return for each its new version, or why it was not written.

        ``holder``: who has to have the lease still. Raises ``LeaseLostError`` if another has it: nothing is written.
        """
        with self.writing() as run:
            if holder is not None and run("SELECT 1 FROM lease WHERE holder = ?", (holder,)).fetchone() is None:
                raise LeaseLostError(f"another manager has taken over {self.file}: nothing more was written")
            return [_write(run, write) for write in writes]

    def request_abort(self, namespace: str, name: str) -> Stored:
        """Write the wish that a task ends. Raises ``AbsentError``."""
        with self.writing(through=True) as run:
            found = _one(run, namespace, name)
            if found is None:
                raise _absent(namespace, name)
            return self._abort(run, found)

    def _abort(self, run: Run, task: Stored) -> Stored:
        if task.open and not task.abort:
            revision = _next(run)
            run("UPDATE tasks SET abort = 1, changed = ?, wished = ? WHERE uid = ?", (revision, revision, task.uid))
        return _one(run, task.namespace, task.name) or task

    def delete(self, namespace: str, name: str) -> Stored:
        """Forget a task that has ended. Raises ``AbsentError``, ``ConflictError``."""
        with self.writing(through=True) as run:
            found = _one(run, namespace, name)
            if found is None:
                raise _absent(namespace, name)
            if found.open:
                raise ConflictError(f"task {namespace}/{name} has not ended: abort it first, then delete it")
            revision = _next(run)
            run("DELETE FROM tasks WHERE uid = ?", (found.uid,))
            run("INSERT INTO gone VALUES (?, ?)", (found.uid, revision))
            run("DELETE FROM gone WHERE uid IN (SELECT uid FROM gone ORDER BY changed DESC LIMIT -1 OFFSET ?)",
                (GONE_KEPT,))  # fmt: skip
        return found

    def revision(self) -> int:
        """Return the number of the latest change."""
        return int(self.fact("revision"))

    def data_version(self) -> int:
        """Return a number that changes when another process has written: the cheapest question there is."""
        with self.reading() as run:
            return int(run("PRAGMA data_version").fetchone()[0])

    def changes(self, since: int, *, wishes: bool = False) -> Sequence[Change]:
        """Return what has changed after a revision, oldest first."""
        column = "wished" if wishes else "changed"
        with self.reading() as run:
            rows = run(f"SELECT {_COLUMNS} FROM tasks WHERE {column} > ? ORDER BY {column} LIMIT ?",
                       (since, CHANGES_MAX)).fetchall()  # fmt: skip
            gone = run("SELECT changed, uid FROM gone WHERE changed > ? ORDER BY changed LIMIT ?",
                       (since, CHANGES_MAX)).fetchall()  # fmt: skip
        place = 12 if wishes else 11
        found = [Change(row[place], row[0], _stored(row)) for row in rows]
        found += [Change(changed, uid, None) for changed, uid in gone]
        return sorted(found, key=lambda change: change.revision)[:CHANGES_MAX]

    @contextmanager
    def reading(self) -> Iterator[Run]:
        """Read what belongs together."""
        with self._lock, told(self.file):
            yield self._connection.execute

    @contextmanager
    def writing(self, *, through: bool = False) -> Iterator[Run]:
        """Write what belongs together: all of it or nothing.

        ``through``: it is on the disk when this returns, whatever happens to the machine; else a power cut may take
        the last statuses back, which the reconciler finds out again.
        """
        with self._lock, told(self.file):
            if which(self.file) != self._opened:  # SQLite would write on, to a file that nobody can open again
                raise BrokenStoreError(
                    f"{self.file} was deleted or replaced while it was in use, so nothing more is written to it: "
                    "restart this command, and use what is there now"
                )
            run = self._connection.execute
            if through:
                run("PRAGMA synchronous = FULL")
            try:
                run("BEGIN IMMEDIATE")
                try:
                    yield run
                    run("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        run("ROLLBACK")
                    raise
            finally:
                if through:
                    run("PRAGMA synchronous = NORMAL")


if TYPE_CHECKING:
    Run = Callable[..., sqlite3.Cursor]


def _next(run: Run) -> int:
    run("UPDATE facts SET value = value + 1 WHERE name = 'revision'")
    return int(run("SELECT value FROM facts WHERE name = 'revision'").fetchone()[0])


def _one(run: Run, namespace: str, name: str) -> Stored | None:
    row = run(f"SELECT {_COLUMNS} FROM tasks WHERE namespace = ? AND name = ?", (namespace, name)).fetchone()
    return None if row is None else _stored(row)


def _stored(row: Sequence[Any]) -> Stored:
    uid, number, namespace, name, metadata, spec, abort, status, version, open_, created_at = row[:11]
    try:
        return Stored(
            uid, number, namespace, name, json.loads(metadata), _spec(spec), bool(abort),
            TaskStatus.model_validate_json(status), version, bool(open_), created_at,
        )  # fmt: skip
    except ValueError as error:  # pydantic's and json's are of this kind
        raise BrokenStoreError(_unreadable(f"{namespace}/{name}", error)) from None


def _spec(text: str) -> dict[str, Any]:
    spec = json.loads(text)
    if not isinstance(spec, dict) or not isinstance(spec.get("type"), str):
        raise ValueError("its spec names no type")  # noqa: TRY004 - damage, as json tells it
    return spec


def _unreadable(task: str, error: ValueError) -> str:
    """Say what is wrong with a stored task: a field that only a newer version knows, or damage."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        said = f"status.{'.'.join(map(str, first['loc']))}: {first['msg']}".replace("status.: ", "status: ")
    else:
        said = str(error)
    return (
        f"task {task} in the store can't be read ({said}): it is damaged, or was written by a newer version of "
        "backoff-ctrl: use that version, restore the store from a copy, or name another file with --store"
    )


def _write(run: Run, write: Write) -> int | Exception:
    try:
        text = _status_text(write.status)
    except ValueError as error:  # what JSON can't hold: the others are written all the same
        return error
    done = run(
        "UPDATE tasks SET status = ?, open = ?, version = version + 1, changed = ? WHERE uid = ? AND version = ?",
        (text, write.open, _next(run), write.uid, write.version),
    )
    if done.rowcount:
        return write.version + 1
    return ConflictError(f"the status of task {write.uid} was written by somebody else, or the task was deleted")


def _refuse_circles(run: Run, namespaces: set[str]) -> None:
    """Raise ``NeedsError`` if tasks of a namespace that have not ended would wait for each other in a circle."""
    for namespace in namespaces:
        rows = run("SELECT name, spec FROM tasks WHERE namespace = ? AND open", (namespace,))
        needs = {name: json.loads(spec).get("needs", ()) for name, spec in rows if '"needs"' in spec}
        if found := circle(needs):
            raise NeedsError(f"spec.needs: these tasks would wait for each other forever: {' -> '.join(found)}")


def _absent(namespace: str, name: str) -> AbsentError:
    return AbsentError(f"there is no task {namespace}/{name}: backoff-ctrl task list shows the existing ones")


def _status_text(status: TaskStatus) -> str:
    return status.model_dump_json(by_alias=True, exclude_defaults=True)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

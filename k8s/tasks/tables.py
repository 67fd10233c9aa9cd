"""The store's SQLite file: opening it, reading and writing it, and its errors in sentences.

Each operation is one transaction, and blocks. Any number of processes read, and write requests; only the holder of the
lease writes statuses.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from backoff_ctrl.k8s.gate.settings import read_settings
from backoff_ctrl.k8s.kube.answers.fields import mapping
from backoff_ctrl.k8s.kube.operators.wrong_values import told

from .model import TaskStatus, shown
from .reading import difference
from .store import (
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
    StoreError,
    Wish,
    asked_by,
    circle,
    is_new_signal,
    needs_of,
    signalled,
)

VERSION: Final = 1
"""The version of the tables."""
OURS: Final = 0x62_6F_63_74
"""The application id that marks a SQLite file as a store of tasks."""
BUSY_SECONDS: Final = 10.0
"""Seconds that a write waits for one of another process."""
OTHER: Final = "or name another file with --store"
CHANGES_MAX: Final = 1000
"""Changes reported at a time."""
GONE_KEPT: Final = 10_000
"""Deleted tasks that are remembered for watchers."""
TASKS_MAX: Final = 20_000
"""The most tasks of a namespace, ended ones included: one that fills the disk would stop all others."""
_COLUMNS: Final = (
    "uid, number, namespace, name, metadata, spec, abort, status, version, open, created_at, changed, wished"
)
_TABLES: Final = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL UNIQUE,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    metadata TEXT NOT NULL,
    spec TEXT NOT NULL,
    abort INTEGER NOT NULL,
    status TEXT NOT NULL,
    version INTEGER NOT NULL,
    open INTEGER NOT NULL,
    created_at REAL NOT NULL,
    changed INTEGER NOT NULL,
    wished INTEGER NOT NULL,
    UNIQUE (namespace, name)
);
CREATE INDEX by_change ON tasks (changed);
CREATE INDEX by_wish ON tasks (wished);
CREATE INDEX unfinished ON tasks (number) WHERE open;
CREATE TABLE gone (uid TEXT PRIMARY KEY, changed INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX gone_by_change ON gone (changed);
CREATE TABLE lease (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    holder TEXT NOT NULL,
    who TEXT NOT NULL,
    boot TEXT NOT NULL,
    until REAL NOT NULL,
    locked INTEGER NOT NULL,
    renewals INTEGER NOT NULL
);
INSERT INTO facts VALUES ('revision', '0');
"""


def default_file() -> Path:
    """Return the store of this user: ``$XDG_STATE_HOME/backoff-ctrl/tasks.db``, by default below ``~/.local/state``."""
    given = read_settings().state_home
    state = Path(given) if Path(given).is_absolute() else expanded("~/.local/state")
    return state / "backoff-ctrl" / "tasks.db"


def expanded(path: str) -> Path:
    """Return a path with its ``~`` replaced. Raises ``BrokenStoreError`` for a user without a home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BrokenStoreError(f"{path}: that user has no home directory here: name a file with --store") from None


def open_file(file: Path, *, create: bool = True) -> sqlite3.Connection:
    """Open the store, creating it if it does not exist. Raises ``StoreError``.

    Only its user may read it: a task's environment may hold secrets. Any thread may use the connection, one at a time.
    """
    with store_errors(file):
        if create:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        elif not file.exists():
            raise BrokenStoreError(f"there is no store at {file}: run a task first, {OTHER}")
        connection = sqlite3.connect(file, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, file)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    _refuse_foreign(connection, file)  # before anything that writes: another program's file stays as it is
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise BrokenStoreError(
            f"{file} is on a file system where SQLite can't share it ({mode}): choose a local disk with --store"
        )
    connection.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing; wishes are written through, see Tables
    connection.execute("PRAGMA foreign_keys = ON")
    version = _version(connection)
    if version == 0:
        connection.execute("BEGIN IMMEDIATE")  # one process makes the tables, the others wait for it
        try:
            version = _version(connection)
            if version == 0:
                _make(connection, file)
                version = VERSION
        finally:
            connection.execute("COMMIT" if version else "ROLLBACK")
    if version > VERSION:
        raise BrokenStoreError(
            f"{file} was written by a newer version of backoff-ctrl (its tables are version {version}, this program "
            f"knows {VERSION}): use that version, {OTHER}"
        )


def _refuse_foreign(connection: sqlite3.Connection, file: Path) -> None:
    """Raise ``BrokenStoreError`` for a file with somebody else's tables."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    # Read in this order: another process may make our tables between the two, and it writes the id with them.
    if tables and connection.execute("PRAGMA application_id").fetchone()[0] != OURS:
        raise BrokenStoreError(f"{file} belongs to another program: name another file with --store")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _make(connection: sqlite3.Connection, file: Path) -> None:
    """Make the tables, within a transaction."""
    _refuse_foreign(connection, file)
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)
    connection.execute("INSERT INTO facts VALUES ('store', ?)", (secrets.token_hex(8),))
    connection.execute(f"PRAGMA application_id = {OURS}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def which(file: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from another one at its path; None: it does not exist."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def store_errors(file: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the disk as ``StoreError``: the file, what is wrong and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _meaning(file, error) from error
    except OSError as error:
        raise BrokenStoreError(f"{file} can't be opened ({error.strerror or error}): fix that, {OTHER}") from error


def _meaning(file: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            f"{file} has been locked by another process for more than {BUSY_SECONDS:g} s: end that one (fuser {file} "
            "names it), then try again; nothing was changed"
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreError(
            f"{file} can't be written ({error}): make room on its disk and try again; what it holds is as it was"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return BrokenStoreError(
            f"{file} is no store of tasks, or its beginning is damaged ({error}); it was left as it is: {OTHER}"
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return damaged(file, str(error))
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return BrokenStoreError(f"{file} can't be opened or written ({error}): check whose it is, {OTHER}")
    return StoreError(f"{file} can't be used ({error}): look at it with sqlite3, {OTHER}")


def damaged(file: Path, why: str) -> BrokenStoreError:
    """Return the error for a damaged file, which was not changed."""
    return BrokenStoreError(
        f"{file} is damaged ({why}); it was left as it is. Save what can be read with: sqlite3 {file} .recover | "
        f"sqlite3 repaired.db; then use --store repaired.db. Objects of its tasks carry the label "
        "backoff-ctrl.dev/task-uid"
    )


class Write(NamedTuple):
    """One status to write, made from a version."""

    uid: str
    version: int
    status: TaskStatus
    open: bool


class Tables:
    """The store's tables. One operation at a time; its methods may be called from any thread.

    Methods with the names of ``Store``'s have their meaning.
    """

    def __init__(
        self, file: Path, *, create: bool = True, clock: Callable[[], float] = time.time, most: int = TASKS_MAX
    ) -> None:
        """Open the file. ``clock`` returns Unix time, ``most`` is the limit of tasks in a namespace.

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
        with self._lock, store_errors(self.file):
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(self.file, " ".join(str(found).split()))

    def fact(self, name: str) -> str:
        """Return a fact about the whole store; empty: it has none of that name."""
        with self.reading() as run:
            row = run("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
            return "" if row is None else str(row[0])

    def keep_fact(self, name: str, value: str) -> None:
        with self.writing() as run:
            run("INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value))  # fmt: skip

    def create(self, wishes: Sequence[Wish]) -> list[tuple[Stored, bool]]:
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
            if there.open and "signal" in wish.spec:
                there = self._signal(run, there, wish.spec["signal"], mapping(wish.spec.get("signalled")).get("by", ""))
            by = mapping(wish.spec.get("aborted")).get("by", "")
            return (self._abort(run, there, by), False) if wish.abort else (there, False)
        revision = _next(run)
        now = self._clock()
        status = TaskStatus(created_at=shown(now), since=shown(now), again=wish.spec.get("again", 0))
        run(
            "INSERT INTO tasks (uid, namespace, name, metadata, spec, abort, status, version, open, created_at, "
            "changed, wished) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 1, ?, ?, ?)",
            (str(uuid.uuid4()), wish.namespace, wish.name, _text(wish.metadata), _text(wish.spec), wish.abort,
             _status_text(status), now, revision, revision),
        )  # fmt: skip
        return _present(run, wish.namespace, wish.name), True

    def get(self, namespace: str, name: str) -> Stored:
        with self.reading() as run:
            return _present(run, namespace, name)

    def list(
        self, after: int = 0, limit: int = PAGE, *, namespace: str | None = None, unfinished: bool = False
    ) -> list[Stored]:
        where = "number > ?" + (" AND open" if unfinished else "") + (" AND namespace = ?" if namespace else "")
        given = (after, *([namespace] if namespace else []), limit)
        with self.reading() as run:
            rows = run(f"SELECT {_COLUMNS} FROM tasks WHERE {where} ORDER BY number LIMIT ?", given).fetchall()
        return [_stored(row) for row in rows]

    def aborted(self, after: float) -> Sequence[Stored]:
        where = "abort AND NOT open AND json_extract(status, '$.phase') = 'Aborted'"
        with self.reading() as run:
            rows = run(f"SELECT {_COLUMNS} FROM tasks WHERE {where} AND json_extract(status, '$.endedAt') > ? "
                       "ORDER BY changed DESC LIMIT ?", (shown(after), PAGE)).fetchall()  # fmt: skip
        return [_stored(row) for row in rows]

    def set_statuses(self, writes: Sequence[Write], holder: str | None = None) -> Sequence[int | Exception]:
        """Write statuses in one transaction; return for each its new version, or why it was not written.

        ``holder`` must still have the lease. Raises ``LeaseLostError`` if another has it: nothing is written.
        """
        with self.writing() as run:
            if holder is not None and run("SELECT 1 FROM lease WHERE holder = ?", (holder,)).fetchone() is None:
                raise LeaseLostError(f"another manager has taken over {self.file}: nothing more was written")
            return [_write(run, write) for write in writes]

    def request_abort(self, namespace: str, name: str, by: str = "") -> Stored:
        with self.writing(through=True) as run:
            return self._abort(run, _present(run, namespace, name), by)

    def _abort(self, run: Run, task: Stored, by: str) -> Stored:
        if task.open and not task.abort:
            revision = _next(run)
            spec = {**task.spec, "aborted": asked_by(by, self._clock())}
            run("UPDATE tasks SET spec = ?, abort = 1, changed = ?, wished = ? WHERE uid = ?",
                (_text(spec), revision, revision, task.uid))  # fmt: skip
        return _present(run, task.namespace, task.name)

    def signal(self, namespace: str, name: str, value: Any, by: str = "") -> Stored:
        with self.writing(through=True) as run:
            return self._signal(run, _present(run, namespace, name), value, by)

    def _signal(self, run: Run, task: Stored, value: Any, by: str) -> Stored:
        if is_new_signal(task, value):
            revision = _next(run)
            spec = {**task.spec, **signalled(value, by, self._clock())}
            run("UPDATE tasks SET spec = ?, changed = ?, wished = ? WHERE uid = ?",
                (_text(spec), revision, revision, task.uid))  # fmt: skip
        return _present(run, task.namespace, task.name)

    def replace(self, uid: str, wish: Wish) -> Stored:
        with self.writing(through=True) as run:
            there = _present(run, wish.namespace, wish.name)
            if there.uid != uid:
                raise ConflictError(f"task {wish.namespace}/{wish.name} was created anew meanwhile: look at it first")
            self._forget(run, there)
            made, _ = self._create(run, wish)
            _refuse_circles(run, {wish.namespace} if wish.spec.get("needs") else set())
        return made

    def delete(self, namespace: str, name: str) -> Stored:
        with self.writing(through=True) as run:
            found = _present(run, namespace, name)
            self._forget(run, found)
        return found

    @staticmethod
    def _forget(run: Run, task: Stored) -> None:
        if task.open:
            raise ConflictError(f"task {task.namespace}/{task.name} has not ended: abort it first")
        revision = _next(run)
        run("DELETE FROM tasks WHERE uid = ?", (task.uid,))
        run("INSERT INTO gone VALUES (?, ?)", (task.uid, revision))
        run("DELETE FROM gone WHERE uid IN (SELECT uid FROM gone ORDER BY changed DESC LIMIT -1 OFFSET ?)",
            (GONE_KEPT,))  # fmt: skip

    def revision(self) -> int:
        return int(self.fact("revision"))

    def data_version(self) -> int:
        """Return a number that changes when another process has written: the cheapest check."""
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
        """Read in one transaction."""
        with self._lock, store_errors(self.file):
            yield self._connection.execute

    @contextmanager
    def writing(self, *, through: bool = False) -> Iterator[Run]:
        """Write in one transaction.

        ``through``: it is on the disk when this returns, whatever happens to the machine; else a power cut may lose the
        last statuses, which the reconciler then finds out again.
        """
        with self._lock, store_errors(self.file):
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


Run = Callable[..., sqlite3.Cursor]


def _next(run: Run) -> int:
    run("UPDATE facts SET value = value + 1 WHERE name = 'revision'")
    return int(run("SELECT value FROM facts WHERE name = 'revision'").fetchone()[0])


def _one(run: Run, namespace: str, name: str) -> Stored | None:
    row = run(f"SELECT {_COLUMNS} FROM tasks WHERE namespace = ? AND name = ?", (namespace, name)).fetchone()
    return None if row is None else _stored(row)


def _present(run: Run, namespace: str, name: str) -> Stored:
    if (found := _one(run, namespace, name)) is None:
        raise AbsentError(f"there is no task {namespace}/{name}: backoff-ctrl task list shows the existing ones")
    return found


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
        raise ValueError("its spec names no type")  # noqa: TRY004 - damage, like errors of json
    return spec


def _unreadable(task: str, error: ValueError) -> str:
    """Return what is wrong with a stored task: a field that only a newer version knows, or damage."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        said = f"status.{'.'.join(map(str, first['loc']))}: {told(first)}".replace("status.: ", "status: ")
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
        needs = {name: needs_of(json.loads(spec)) for name, spec in rows if '"needs"' in spec}
        if found := circle(needs):
            raise NeedsError(f"spec.needs: these tasks would wait for each other forever: {' -> '.join(found)}")


def _status_text(status: TaskStatus) -> str:
    return status.model_dump_json(by_alias=True, exclude_defaults=True)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

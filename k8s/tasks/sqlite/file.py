"""The store's file: where it is, how it is opened, and what its errors mean for people."""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.tasks.store import BrokenStoreError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = 1
"""The version of the tables."""
OURS: Final = 0x62_6F_63_74
"""What marks a file of SQLite as a store of tasks."""
BUSY_SECONDS: Final = 10.0
"""How long a write waits for that of another process."""
OTHER: Final = "or name another file with --store"
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
    given = os.environ.get("XDG_STATE_HOME", "")
    state = Path(given) if Path(given).is_absolute() else expanded("~/.local/state")
    return state / "backoff-ctrl" / "tasks.db"


def expanded(path: str) -> Path:
    """Return a path with its ``~`` replaced. Raises ``BrokenStoreError`` for a user without a home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BrokenStoreError(f"{path}: that user has no home directory here: name a file with --store") from None


def open_file(file: Path, *, create: bool = True) -> sqlite3.Connection:
    """Open the store, and make it if it is not there. Raises ``StoreError``.

    Only its user may read it: a task's environment may hold secrets. The connection may be used by any thread, by one
    at a time.
    """
    with told(file):
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
    mine = connection.execute("PRAGMA application_id").fetchone()[0] == OURS
    if not mine and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
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
    """Return what tells a file from another one at its path; None: there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def told(file: Path) -> Iterator[None]:
    """Tell errors of SQLite and of the disk as ``StoreError``: the file, what is wrong and what to do."""
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
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(file, str(error))
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return BrokenStoreError(f"{file} can't be opened or written ({error}): check whose it is, {OTHER}")
    return StoreError(f"{file} can't be used ({error}): look at it with sqlite3, {OTHER}")


def damaged(file: Path, why: str) -> BrokenStoreError:
    """Return the error of a file that is no good any more; it was not touched."""
    return BrokenStoreError(
        f"{file} is damaged ({why}); it was left as it is. Save what can be read with: sqlite3 {file} .recover | "
        f"sqlite3 mended.db; then use --store mended.db. Objects of its tasks carry the label "
        "backoff-ctrl.dev/task-uid"
    )

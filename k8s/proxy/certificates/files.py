"""Files that others read while they are written: each appears whole, with its mode, or not at all.

Others may write beside them, too: what a file or a link of somebody else's names is neither read, changed nor followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
_BEGUN: Final = ".backoff-ctrl-"  # a file that is being written
_LONGEST: Final = 65_536


class CertificatesError(Exception):
    """TLS mode can't be set up as asked. One sentence that says why, and what to do."""


def make_folder(folder: Path, mode: int) -> None:
    """Make a directory unless it is there, or is a link by which another user says where it is."""
    with _explained(folder, "used"):
        if folder.is_symlink() and not _trusted(folder.lstat()):
            raise CertificatesError(f"{folder} is a symbolic link of another user's: name the directory itself")
        if not folder.is_dir():
            folder.mkdir(mode, parents=True, exist_ok=True)
        next(folder.iterdir(), None)  # may it be read?


def check_owner(folder: Path) -> None:
    """Raise ``CertificatesError`` for a directory whose owner could replace what is kept in it."""
    with _explained(folder, "used"):
        if not _trusted(folder.stat()):
            raise CertificatesError(
                f"{folder} belongs to another user, who could replace the key: name one of the proxy's"
            )


def sweep(folder: Path) -> None:
    """Remove what a process that was killed left half written. Only who holds the lock knows that nobody writes now."""
    with _explained(folder, "used"):
        for path in folder.iterdir():
            if path.name.startswith(_BEGUN):
                path.unlink()


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Let one process at a time work in a directory; the lock goes with the process."""
    with _explained(folder, "locked"):
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file by one with this content and mode, whatever the umask; nothing is done if it is so already."""
    if read(path, mode) == content:
        return
    begun = path.with_name(f"{_BEGUN}{secrets.token_hex(8)}")
    with _explained(path.parent, "written"):
        handle = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with _removed_on_error(begun):
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, mode)
                file.write(content)
                file.flush()
                os.fsync(handle)
            begun.replace(path)


def read(path: Path, mode: int) -> bytes | None:
    """Return the content of a file of ours, and give it this mode; None if it is missing, or no such file.

    A second name (a hard link) of some file of ours may have been put there to have its mode changed.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP}:  # the latter: a symbolic link
            return None
        raise _error(path, "read", error) from None
    with _explained(path, "read"), os.fdopen(handle, "rb") as file:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1 or state.st_uid != os.geteuid():
            return None
        if state.st_mode & 0o7777 != mode:
            os.fchmod(handle, mode)
        return file.read(_LONGEST)


def link(path: Path, target: Path) -> None:
    """Make a symbolic link, in place of whatever file is there; the target need not exist on this side."""
    begun = path.with_name(f"{_BEGUN}{secrets.token_hex(8)}")
    with _explained(path.parent, "written"):
        if path.is_symlink() and path.readlink() == target:
            return
        begun.symlink_to(target)
        with _removed_on_error(begun):
            begun.replace(path)


def _trusted(state: os.stat_result) -> bool:
    """Say whether a file is this user's or the superuser's."""
    return state.st_uid in {0, os.geteuid()}


@contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    """Turn an error of the system into one sentence."""
    try:
        yield
    except OSError as error:
        raise _error(path, done, error) from None


def _error(path: Path, done: str, error: OSError) -> CertificatesError:
    reason = error.strerror or type(error).__name__
    return CertificatesError(f"{path} cannot be {done}: {reason}; mount a volume there that the proxy may write")

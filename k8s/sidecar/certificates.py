"""The certificates of listeners: their TLS context, files that are renewed by others, and files written here.

A file that is written appears whole, with its mode, or not at all. Others may write in the same directory: their files
and links are neither read, changed nor followed.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import secrets
import ssl
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
_BEGUN: Final = ".backoff-ctrl-"  # a file that is being written
_LONGEST: Final = 65_536
LOOK_EVERY: Final = 10.0
"""Seconds between checks of the files: the kubelet itself takes a minute to show a Secret's change."""
_logger = logging.getLogger("backoff_ctrl")


class CertificatesError(Exception):
    """TLS mode can't be set up as asked. One sentence that says why, and what to do."""


def make_folder(folder: Path, mode: int) -> None:
    """Make a directory unless it exists. Raises ``CertificatesError`` for a symbolic link of another user."""
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
    """Remove half-written files of killed processes.

    Call it with the lock, which proves that no other process is writing.
    """
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
    """Replace a file by one with this content and mode, under any umask, unless it is the same already."""
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
    """Return the content of a file of ours, and give it this mode; None if it is missing or not ours.

    A hard link is not followed: an attacker may have put it there to have the mode of another file of ours changed.
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
    """Make a symbolic link, in place of any file there; the target need not exist on this side."""
    begun = path.with_name(f"{_BEGUN}{secrets.token_hex(8)}")
    with _explained(path.parent, "written"):
        if path.is_symlink() and path.readlink() == target:
            return
        begun.symlink_to(target)
        with _removed_on_error(begun):
            begun.replace(path)


def _trusted(state: os.stat_result) -> bool:
    """Return whether a file belongs to this user or the superuser."""
    return state.st_uid in {0, os.geteuid()}


@contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):  # the first error is the one to report
            path.unlink()
        raise


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _error(path, done, error) from None


def _error(path: Path, done: str, error: OSError) -> CertificatesError:
    reason = error.strerror or type(error).__name__
    return CertificatesError(f"{path} cannot be {done}: {reason}; mount a volume there that the proxy may write")


def listener_context() -> ssl.SSLContext:
    """Return a context without a certificate: HTTP/1.1 over TLS 1.2 or later, without renegotiation.

    Without renegotiation a write never waits for a read: ``k8s/sidecar/http/transports.py`` relies on that.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


class GivenCertificate:
    """The certificate of one listener. ``context`` is its TLS context; new connections get the newest."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read both, as PEM. Raises ``CertificatesError``."""
        self._files = certificate, key
        self._read: tuple[bytes, bytes] | None = None
        self.context = listener_context()
        self.ends: datetime | None = None
        """When it expires; None: not known without the package cryptography."""
        self.renew()

    def renew(self) -> None:
        """Read the files again, and use them if they have changed.

        Raises ``CertificatesError``, and the certificate that was read last stays.
        """
        certificate, key = self._files
        try:
            found = certificate.read_bytes(), key.read_bytes()
            if found == self._read:
                return
            trial = listener_context()  # half replaced files must not reach the listener
            trial.load_cert_chain(certificate, key, password="")
            self.context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise CertificatesError(
                f"{certificate} and {key} can't be used as certificate and key: {why}; both must be PEM"
            ) from None
        self._read = found
        self.ends = _ends(found[0])

    async def keep_fresh(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Check the files periodically, until cancelled. Unusable files are logged once, and tried again."""
        said = ""
        while True:
            await pause(LOOK_EVERY)
            try:
                self.renew()
            except CertificatesError as error:
                if str(error) != said:
                    _logger.warning("%s; the previous certificate stays in use", error)
                said = str(error)
            else:
                said = ""


class ClientAuthority:
    """Who signs the certificates of a listener's clients: a file of PEM, which others may renew.

    A client need not have a certificate: the handler of a request asks ``has_certificate``, since probes have no
    certificate.
    """

    def __init__(self, file: Path, context: ssl.SSLContext) -> None:
        """Have the context verify what clients show. Raises ``CertificatesError``."""
        self._file = file
        self._context = context
        self._read: bytes | None = None
        context.verify_mode = ssl.CERT_OPTIONAL
        self.renew()

    def renew(self) -> None:
        """Trust what the file has now, beside what it had before. Raises ``CertificatesError`` without a change."""
        try:
            found = self._file.read_bytes()
            if found == self._read:
                return
            if not found.strip():
                raise ValueError("it is empty")  # noqa: TRY301 - as what OpenSSL says of other files
            self._context.load_verify_locations(cadata=found.decode())
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise CertificatesError(
                f"{self._file} can't be used as the authority of clients: {why}; it must have certificates as PEM"
            ) from None
        self._read = found


def has_certificate(transport: asyncio.BaseTransport | None) -> bool:
    """Return whether the client of a connection has shown a certificate, which a ``ClientAuthority`` has verified."""
    return transport is not None and bool(transport.get_extra_info("peercert"))


def _ends(pem: bytes) -> datetime | None:
    try:
        from cryptography import x509  # noqa: PLC0415 - optional: others make this certificate

        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except (ImportError, ValueError):  # OpenSSL also reads DER that is not strict
        return None

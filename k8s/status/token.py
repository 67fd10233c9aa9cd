"""The token that actions need: from the environment, else drawn and written to a file that only this user can read.

Any web page can send requests to loopback, and any local user can connect to it. So actions need a secret even there.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final

from backoff_ctrl.k8s.gate.settings import STATUS_TOKEN, TOKEN_MIN, read_settings, settings

from .asked import ProblemError

log = logging.getLogger(__name__)

NEEDED: Final = "actions need the header Authorization: Bearer TOKEN; it is in {}"


class Token:
    """The token of one server. If a drawn one can't be written to a file there is none, and actions are refused."""

    def __init__(self, port: int) -> None:
        """Take the token from the environment, or draw one and write it to the file of this ``port``."""
        self.file: Path | None = None
        given = settings().status_token
        self._text = given if len(given) >= TOKEN_MIN else ""
        if not given:
            self._text = secrets.token_urlsafe(24)
            try:
                self.file = _write(token_file(port), self._text)
            except OSError as error:
                self._text = ""
                log.warning(
                    "actions on this gate are disabled, since its token can't be stored (%s): set %s",
                    error,
                    STATUS_TOKEN,
                )

    def allows(self, authorization: str) -> bool:
        """Return whether a header ``Authorization`` has the token."""
        kind, _, given = authorization.partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self._text.encode())
        return right and kind.lower() == "bearer" and bool(self._text)

    def check(self, authorization: str, words: str = NEEDED) -> None:
        """Raise ``ProblemError`` for a header ``Authorization`` without the token; ``words`` say where it is."""
        if not self.allows(authorization):
            raise ProblemError(401, words.format(self.where), "#/headers/Authorization")

    @property
    def where(self) -> str:
        """Return where to find it."""
        return f"the variable {STATUS_TOKEN} of the gate's program" if self.file is None else f"the file {self.file}"

    def close(self) -> None:
        """Remove the file, unless another process has the port now, and its own token there."""
        if self.file is not None:
            with contextlib.suppress(OSError):
                if self.file.read_text(encoding="ascii").strip() == self._text:
                    self.file.unlink()
            self.file = None


def token_file(port: int) -> Path:
    """Return where the token of the server at this port is kept: a folder of this user's own."""
    runtime = read_settings().runtime_dir
    folder = Path(runtime) / "backoff-ctrl" if runtime else Path(tempfile.gettempdir()) / f"backoff-ctrl-{_user()}"
    return folder / f"status-{port}.token"


def read_token(port: int) -> str:
    """Return the token for the server at this port of this machine; empty if this user has none."""
    if given := read_settings().status_token:
        return given
    try:
        file = token_file(port)
        return file.read_text(encoding="ascii").strip() if _is_ours(file.parent) else ""
    except (OSError, ValueError):
        return ""


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(file.parent):
        raise PermissionError(f"{file.parent} belongs to somebody else, or others may write there")
    with contextlib.suppress(FileNotFoundError):
        file.unlink()  # of a process that was killed
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(opened, "w", encoding="ascii") as stream:
        stream.write(text + "\n")
    return file


def _is_ours(folder: Path) -> bool:
    found = folder.lstat()
    mine = _user() in (found.st_uid, -1)
    return mine and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else -1

"""Keeps what a ledger has learned in a file: read when the ledger opens, saved now and then and when it closes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .memory_file import MemoryFile

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.ledger import Ledger

ENVIRONMENT: Final = "BACKOFF_CTRL_MEMORY"
"""The environment variable with the directory of the memory files, one per API server. Unset: nothing is kept."""
SAVE_EVERY: Final = 30.0
"""Seconds between saves. What a process learned since the last one is lost if it is killed."""


class MemoryKeeper:
    """One ledger's memory. A daemon thread saves, so that a slow disk delays no create."""

    def __init__(self, ledger: Ledger, file: MemoryFile, *, every: float = SAVE_EVERY) -> None:
        """Give the ledger what the file holds, and start to save every ``every`` seconds."""
        self._ledger = ledger
        self._file = file
        self._every = every
        self._closed = threading.Event()
        memory = file.load()
        if memory is not None:
            ledger.recall(memory)
        self._thread: threading.Thread | None = None
        try:
            thread = threading.Thread(target=self._run, name="backoff-ctrl-memory", daemon=True)
            thread.start()
            self._thread = thread
        except RuntimeError as error:  # no more threads: it is saved at the end alone
            ledger.failed_open(error)

    def close(self) -> None:
        """Save for the last time. A second call does nothing."""
        if not self._closed.is_set():
            self._closed.set()
            if self._thread is not None:
                self._thread.join()  # so that the last save is the newest; a forked child has no thread
            self._save()

    def _run(self) -> None:
        while not self._closed.wait(self._every):
            self._save()

    def _save(self) -> None:
        try:
            memory = self._ledger.remember()
            if memory is not None and memory.quotas:
                self._file.save(memory)
        except Exception as error:  # noqa: BLE001 - law 18: memory only helps, and must not stop anything
            self._ledger.failed_open(error)


def memory_file_of(server: str) -> MemoryFile | None:
    """Return the file that the environment asks for, or None. Its name is a hash, which does not reveal the server."""
    directory = os.environ.get(ENVIRONMENT)
    if not directory:
        return None
    with contextlib.suppress(RuntimeError):  # the home directory is unknown: take the name literally
        directory = str(Path(directory).expanduser())
    return MemoryFile(Path(directory) / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}.json", server)

"""Guardian: ends what a test run has started even when the test run itself was killed.

It is a process of its own that reads lines from a pipe: ``watch PID``, ``forget PID``. When the pipe ends, because
its writer has closed it or is no more, it kills what is still watched and removes the folder it was given.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_PATIENCE: Final = 30.0
"""Seconds for the killed to be gone; longer is for the machine's init, not for us."""
_POLL: Final = 0.01


class Guardian:
    """The writer's end: use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        """Prepare to guard a folder and the processes that work in it."""
        self._folder = folder

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._folder], stdin=subprocess.PIPE, start_new_session=True, cwd="/"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pipe and wait until it is done."""
        self._process.communicate(timeout=45)

    def watch(self, pid: int) -> None:
        """Kill this process when the writer is no more."""
        self._tell(f"watch {pid}")

    def forget(self, pid: int) -> None:
        self._tell(f"forget {pid}")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()


def _guard(lines: Iterable[str], folder: str) -> None:
    watched: set[int] = set()
    for line in lines:
        word, _, pid = line.partition(" ")
        (watched.add if word == "watch" else watched.discard)(int(pid))
    deadline = time.monotonic() + _PATIENCE
    for each in watched:
        with suppress(ProcessLookupError):  # it is gone
            os.kill(each, signal.SIGKILL)
            while time.monotonic() < deadline:
                time.sleep(_POLL)
                os.kill(each, 0)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _guard(sys.stdin, sys.argv[1])

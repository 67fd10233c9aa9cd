"""Runs the Go compiler: one test run at a time, with a word every half a minute, and ended with the run."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.control_plane.guardian import Guardian

Say = Callable[[str], None]

_AS_KUBERNETES_DOES: Final = ("CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOWORK=off", "GOOS=", "GOARCH=")
_TELL_EVERY: Final = 30.0
_LAST_WORDS: Final = 15


def compiled(command: list[str], folder: Path, what: str, takes: str, say: Say, guardian: Guardian) -> str | None:
    """Run the compiler in a folder. Returns its last lines if it failed, else None.

    ``what`` is built, and ``takes``: how long, are for people.
    """
    environment = {**os.environ, **dict(each.split("=", 1) for each in _AS_KUBERNETES_DOES)}
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as words:
        process = subprocess.Popen(
            ["nice", *command],  # tests run beside it
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
        guardian.watch(process.pid)
        say(f"building {what}, once per machine: {takes} ...")
        name = what.partition(" ")[0]
        try:
            while process.poll() is None:
                try:
                    process.wait(_TELL_EVERY)
                except subprocess.TimeoutExpired:
                    say(f"building {name}: {time.monotonic() - started:.0f} s so far")
        finally:
            if process.poll() is None:  # Ctrl-C: the compiler's children go with it
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            guardian.forget(process.pid)
        words.seek(0)
        said = [line for line in words.read().splitlines() if not line.startswith("go: downloading")]
    if process.returncode:
        return "\n".join(said[-_LAST_WORDS:])
    say(f"built {name} in {time.monotonic() - started:.0f} s")
    return None


@contextmanager
def one_at_a_time(folder: Path, say: Say) -> Iterator[None]:
    """Hold the lock of a folder; the system lets go of it even when this process is killed."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another test run that builds in {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield

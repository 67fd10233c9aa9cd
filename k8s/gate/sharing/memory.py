"""Memory: a file that carries what a gate has learned over a restart, and its keeper, which saves it now and then.

The file is written atomically, versioned, and limited in size. Amounts are exact Quantity strings. Loading adds the
time since saving, by the wall clock, to every age; a clock that went back adds no time. A damaged file is renamed,
which is logged, and the gate learns from scratch.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import hashlib
import json
import logging
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from backoff_ctrl.engine.facts.quantities import format_quantity, parse_quantity
from backoff_ctrl.engine.look.memory import Memory, RememberedCeiling, RememberedQuota
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.locked_engine import Failure
from backoff_ctrl.k8s.gate.runtime.host import GOODBYE, RUNTIME, Task, after_fork

log = logging.getLogger(__name__)

SAVE_EVERY: Final = 30.0  # seconds between saves. What a process learned since the last one is lost if it is killed.
VERSION: Final = 1
LARGEST: Final = 16 * 1024 * 1024
"""The largest file that is read, in bytes: 16 MiB hold about 40,000 quotas of four resources."""
MOST_QUOTAS: Final = 20_000
"""The number of quotas that are saved, newest first. A file with more was not written by this code."""
SLICE: Final = 32  # namespaces written between two pauses
PAUSE: Final = 0.0002  # seconds, in which other threads run
STRAY: Final = 3600.0  # seconds after which a temporary file is deleted: its writer was killed


class MemoryFile:
    """One file for the API server with this URL. ``clock`` is the wall clock, in seconds."""

    def __init__(self, path: Path, server: str, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._server = server
        self._clock = clock
        self._complaint = ""

    def load(self) -> Memory | None:
        """Return what was saved, with ages as of now; None if it can't be used. Never raises."""
        self._sweep()
        try:
            with open(self.path, "rb", opener=_open_file) as file:
                text = file.read(LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning(
                "cannot read the memory file %s (%s): the gate starts without it and learns from refusals",
                self.path,
                error.strerror,
            )
            return None
        try:
            return self._read(text)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            self._set_aside(error)
            return None

    def save(self, memory: Memory) -> bool:
        """Replace the file; return whether that succeeded. Errors, as of a full disk, are logged once, not raised."""
        text = "".join(self._slices(memory, most := MOST_QUOTAS))
        while len(text) > LARGEST and most:  # quotas of many resources
            text = "".join(self._slices(memory, most := most // 2))
        beside = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A unique name: in containers that share a volume, every process has id 1.
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self.path.parent, prefix=f"{self.path.name}.", suffix=".new", delete=False
            ) as file:
                beside = Path(file.name)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # otherwise a power failure may leave an empty file
            beside.replace(self.path)
        except OSError as error:
            complaint = error.strerror or str(error)
            if complaint != self._complaint:
                log.warning(
                    "cannot write the memory file %s (%s): the gate will not remember over a restart (logged once)",
                    self.path,
                    complaint,
                )
            self._complaint = complaint
            if beside is not None:
                with contextlib.suppress(OSError):  # the complaint is logged; _sweep deletes the file later
                    beside.unlink()
            return False
        self._complaint = ""
        return True

    def _sweep(self) -> None:
        """Delete the temporary files of killed processes."""
        with contextlib.suppress(OSError):  # they only take space; the next sweep tries again
            for stray in self.path.parent.glob(f"{self.path.name}.*.new"):
                if stray.lstat().st_mtime < time.time() - STRAY:
                    stray.unlink(missing_ok=True)

    def _read(self, text: bytes) -> Memory | None:
        if len(text) > LARGEST:
            raise ValueError(f"it has more than {LARGEST} bytes")
        found = json.loads(text)
        if found["version"] != VERSION or found["server"] != self._server:
            log.warning(
                "the memory file %s has version %s for %s, not version %d for %s: the gate learns from refusals",
                self.path, found["version"], found["server"], VERSION, self._server,
            )  # fmt: skip
            return None
        if sum(map(len, found["namespaces"].values())) > MOST_QUOTAS:
            raise ValueError(f"it has more than {MOST_QUOTAS} quotas")
        passed = max(0.0, self._clock() - float(found["saved_at"]))
        quotas = {
            str(namespace): {str(name): _quota(quota, passed) for name, quota in named.items()}
            for namespace, named in found["namespaces"].items()
            if named
        }
        return Memory(quotas, float(found["settle_time"]))

    def _slices(self, memory: Memory, most: int) -> Iterator[str]:
        """Yield the text piece by piece, with pauses: a long one in one go would hold up every other thread."""
        head = {
            "version": VERSION,
            "server": self._server,
            "saved_at": self._clock(),
            "settle_time": memory.settle_time,
        }
        yield f'{_json(head)[:-1]},"namespaces":{{'
        for number, (namespace, named) in enumerate(_newest(memory, most).items()):
            if number % SLICE == SLICE - 1:
                time.sleep(PAUSE)
            quotas = {name: _text_of_quota(quota) for name, quota in named.items()}
            yield f"{',' if number else ''}{_json(namespace)}:{_json(quotas)}"
        yield "}}"

    def _set_aside(self, error: Exception) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged")
        log.warning(
            "the memory file %s is damaged (%s): renamed to %s; the gate learns from refusals", self.path, error, aside
        )
        try:
            self.path.replace(aside)
        except OSError as failure:
            log.warning("cannot rename the memory file %s (%s)", self.path, failure.strerror)


def _open_file(path: str, flags: int) -> int:
    """Open a regular file only: opening a pipe without a writer would block."""
    number = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return number
    os.close(number)
    raise OSError(errno.EINVAL, "not a regular file")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _newest(memory: Memory, most: int) -> Mapping[str, Mapping[str, RememberedQuota]]:
    """Return the newest quotas by namespace and name, at most so many."""
    if sum(map(len, memory.quotas.values())) <= most:
        return memory.quotas
    every = [(ns, name, quota) for ns, named in memory.quotas.items() for name, quota in named.items()]
    every.sort(key=lambda each: min((ceiling.age for ceiling in each[2].ceilings.values()), default=0.0))
    newest: dict[str, dict[str, RememberedQuota]] = {}
    for namespace, name, quota in every[:most]:
        newest.setdefault(namespace, {})[name] = quota
    return newest


def _text_of_quota(quota: RememberedQuota) -> dict[str, Any]:
    ceilings = {
        resource: {
            "limited": format_quantity(ceiling.limited),
            "used": format_quantity(ceiling.used),
            "age": round(ceiling.age, 3),
        }
        for resource, ceiling in quota.ceilings.items()
    }
    return {"ceilings": ceilings, "applies": [[sorted(scopes), found] for scopes, found in quota.applies.items()]}


def _quota(found: Mapping[str, Any], passed: float) -> RememberedQuota:
    ceilings = {
        str(resource): RememberedCeiling(
            parse_quantity(ceiling["limited"]),
            parse_quantity(ceiling["used"]),
            max(0.0, float(ceiling["age"])) + passed,
        )
        for resource, ceiling in found["ceilings"].items()
    }
    applies = {frozenset(map(str, scopes)): bool(answer) for scopes, answer in found["applies"]}
    return RememberedQuota(ceilings, applies)


# -- the keeper ---------


class MemoryKeeper:
    """One ledger's memory: read when the ledger opens, saved now and then, so that no create waits for a slow disk."""

    def __init__(self, ledger: Ledger, file: MemoryFile, *, every: float = SAVE_EVERY) -> None:
        """Give the ledger what the file holds, and start to save every ``every`` seconds."""
        self._ledger = ledger
        self._file = file
        self._every = every
        memory = file.load()
        if memory is not None:
            ledger.recall(memory)
        self._forked()
        after_fork(self._forked)
        started = ledger.engine.attempt(RUNTIME.spawn, self._run, GOODBYE)
        self._task: Task | None = None if isinstance(started, Failure) else started
        if self._task is None:  # no more threads: it is saved at the end alone
            atexit.register(self.close)

    def _forked(self) -> None:
        self._saving = threading.Lock()  # so that the last save is the newest
        self._over = False
        self._task = None

    def close(self) -> None:
        """Save once more and stop. A second call has no effect."""
        if not self._over:
            self._over = True
            if self._task is not None:
                self._task.stop()
            self._ledger.engine.attempt(self._save)

    async def _run(self, task: Task) -> None:
        loop = asyncio.get_running_loop()
        while not task.ending:
            await task.wait(self._every)
            if not task.ending:
                await loop.run_in_executor(None, self._ledger.engine.attempt, self._save)
        self.close()  # Python ends, else it is closed already

    def _save(self) -> None:
        with self._saving:
            memory = self._ledger.remember()
            if memory is not None and memory.quotas:
                self._file.save(memory)


def memory_file_of(directory: str, server: str) -> MemoryFile:
    """Return the file of a server in a directory. Its name is a hash, which does not reveal the server."""
    with contextlib.suppress(RuntimeError):  # the home directory is unknown: take the name literally
        directory = str(Path(directory).expanduser())
    return MemoryFile(Path(directory) / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}.json", server)

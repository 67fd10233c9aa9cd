"""What a gate learned, in a small file over a restart: written whole or not at all, versioned, bounded.

Amounts are Quantity texts, exact. Ages grow by the time between saving and loading on the wall clock; a clock that
went back adds nothing. A file that cannot be read is set aside under another name, with a sentence, and forgotten.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.memory import Memory, RememberedCeiling, RememberedQuota
from backoff_ctrl.engine.quantities import format_quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

VERSION: Final = 1
LARGEST: Final = 16 * 1024 * 1024
"""Bytes that are read at most: 16 MiB hold about 40,000 quotas of four resources."""
MOST_QUOTAS: Final = 20_000
"""The newest of them are saved, no more, and a file that has more was not written here."""
STRAY: Final = 3600.0
"""Seconds after which what was begun beside the file is nobody's any more: its writer was killed."""


class MemoryFile:
    """One file for one API server. ``clock`` is the wall clock, in seconds."""

    def __init__(self, path: Path, server: str, *, clock: Callable[[], float] = time.time) -> None:
        """Touch nothing yet."""
        self.path = path
        self._server = server
        self._clock = clock
        self._complaint = ""

    def load(self) -> Memory | None:
        """Return what was saved, aged; None if there is nothing to be had. Never raises."""
        self._sweep()
        try:
            with open(self.path, "rb", opener=_open_file) as file:
                text = file.read(LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the memory file %s can't be read (%s): the gate learns anew", self.path, error.strerror)
            return None
        try:
            return self._read(text)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            self._set_aside(error)
            return None

    def save(self, memory: Memory) -> bool:
        """Replace the file by this memory; say whether that went well. A full disk is logged, once, not raised."""
        text = self._text(memory, most := MOST_QUOTAS)
        while len(text) > LARGEST and most:  # many resources each
            text = self._text(memory, most := most // 2)
        beside = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A name of its own: in containers that share a volume all are process 1.
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self.path.parent, prefix=f"{self.path.name}.", suffix=".new", delete=False
            ) as file:
                beside = Path(file.name)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # else a power cut may leave the new name with nothing in it
            beside.replace(self.path)
        except OSError as error:
            complaint = error.strerror or str(error)
            if complaint != self._complaint:
                log.warning("the memory file %s can't be written (%s): logged once", self.path, complaint)
            self._complaint = complaint
            if beside is not None:
                with contextlib.suppress(OSError):
                    beside.unlink()
            return False
        self._complaint = ""
        return True

    def _text(self, memory: Memory, most: int) -> str:
        return json.dumps(self._written(memory, most), separators=(",", ":"))

    def _sweep(self) -> None:
        """Take away what killed processes had begun to write."""
        strays: list[Path] = []
        with contextlib.suppress(OSError):
            strays += self.path.parent.glob(f"{self.path.name}.*.new")
        for stray in strays:
            with contextlib.suppress(OSError):
                if stray.lstat().st_mtime < time.time() - STRAY:
                    stray.unlink()

    def _read(self, text: bytes) -> Memory | None:
        if len(text) > LARGEST:
            raise ValueError(f"it has more than {LARGEST} bytes")
        found = json.loads(text)
        if found["version"] != VERSION or found["server"] != self._server:
            log.warning(
                "the memory file %s is of version %s for %s, not of version %d for %s: the gate learns anew",
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

    def _written(self, memory: Memory, most: int) -> dict[str, Any]:
        namespaces: dict[str, dict[str, Any]] = {}
        for namespace, name, quota in _newest(memory)[:most]:
            namespaces.setdefault(namespace, {})[name] = {
                "ceilings": {resource: _text_of(ceiling) for resource, ceiling in quota.ceilings.items()},
                "applies": [[sorted(scopes), applies] for scopes, applies in quota.applies.items()],
            }
        return {
            "version": VERSION,
            "server": self._server,
            "saved_at": self._clock(),
            "settle_time": memory.settle_time,
            "namespaces": namespaces,
        }

    def _set_aside(self, error: Exception) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged")
        log.warning(
            "the memory file %s is damaged (%s): set aside as %s; the gate learns anew", self.path, error, aside
        )
        try:
            self.path.replace(aside)
        except OSError as failure:
            log.warning("it could not be set aside (%s)", failure.strerror)


def _open_file(path: str, flags: int) -> int:
    """Open what is a file: a pipe that nobody writes into would be waited for."""
    number = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return number
    os.close(number)
    raise OSError(errno.EINVAL, "it is no regular file")


def _newest(memory: Memory) -> list[tuple[str, str, RememberedQuota]]:
    """List the quotas, the newest first."""
    every = [(ns, name, quota) for ns, named in memory.quotas.items() for name, quota in named.items()]
    every.sort(key=lambda each: min((ceiling.age for ceiling in each[2].ceilings.values()), default=0.0))
    return every


def _text_of(ceiling: RememberedCeiling) -> dict[str, Any]:
    return {
        "limited": format_quantity(ceiling.limited),
        "used": format_quantity(ceiling.used),
        "age": round(ceiling.age, 3),
    }


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

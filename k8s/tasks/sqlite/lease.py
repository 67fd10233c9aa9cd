"""One manager per store: a lease that has to be renewed, and lapses with its holder.

Times are those of the machine's monotonic clock, which all processes of a boot share: setting the clock changes
nothing. A lease of an earlier boot has lapsed. Beside the row there is a lock on a file, which the kernel releases when
its holder dies: then nobody waits for the lease to lapse. A holder that is only stuck keeps the lock, but loses the
lease; from then on the store takes no status of it.
"""

from __future__ import annotations

import math
import os
import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.tasks.store import LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tables import Tables

try:
    import fcntl
except ImportError:  # Windows: the lease alone has to do
    fcntl = None  # type: ignore[assignment]

SECONDS: Final = 10.0
"""How long a lease holds without being renewed; it is renewed three times as often."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class HeldError(Exception):
    """Another manager has the store: ``who`` it is, and in how many seconds its lease lapses if it is not renewed."""

    def __init__(self, who: str, lapses_in: float) -> None:
        """Say who it is."""
        super().__init__(f"the store is managed by {who}")
        self.who = who
        self.lapses_in = lapses_in


class Lease:
    """The lease of one store, for one would-be manager."""

    def __init__(
        self, tables: Tables, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic, boot: str = ""
    ) -> None:
        """``clock`` is shared by all processes of a ``boot``."""
        self.holder = uuid.uuid4().hex
        self._tables = tables
        self._seconds = seconds
        self._clock = clock
        self._boot = boot or _boot_id()
        self._lock: int | None = None
        self._until = -math.inf

    @property
    def certain(self) -> bool:
        """Whether nobody else can have it yet, by the clock alone: who was stopped for long finds out here."""
        return self._clock() < self._until

    def acquire(self) -> None:
        """Take the lease. Raises ``HeldError`` while another has it."""
        locked = self._lock_file()
        now = self._clock()
        try:
            with self._tables.writing() as run:
                row = run("SELECT holder, who, boot, until, locked, renewals FROM lease").fetchone()
                renewals = 0
                if row is not None:
                    holder, who, boot, until, had_lock, renewals = row
                    dead = locked and had_lock  # it would have the lock still
                    # a lease that lasts longer than one can is of a clock that was another
                    valid = boot == self._boot and now < until <= now + self._seconds
                    if valid and holder != self.holder and not dead:
                        raise HeldError(who, until - now)  # noqa: TRY301 - ends the transaction
                run(
                    "INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?, ?, ?, ?)",
                    (self.holder, _who(), self._boot, now + self._seconds, locked, renewals + 1),
                )
        except BaseException:
            self._unlock_file()
            raise
        self._until = now + self._seconds

    def renew(self) -> None:
        """Keep it. Raises ``LeaseLostError`` if another has it."""
        locked = self._lock_file()  # it may have been with a holder that was stuck, or with one who only looked
        with self._tables.writing() as run:
            until = self._clock() + self._seconds
            kept = run(
                "UPDATE lease SET until = ?, locked = ?, renewals = renewals + 1 WHERE holder = ?",
                (until, locked, self.holder),
            )
            if not kept.rowcount:
                self._until = -math.inf
                raise LeaseLostError(f"another manager has taken over {self._tables.file}")
        self._until = until

    def release(self) -> None:
        """Give it back, so that the next manager need not wait. A second call does nothing."""
        self._until = -math.inf
        try:
            with self._tables.writing() as run:
                run("DELETE FROM lease WHERE holder = ?", (self.holder,))
        finally:
            self._unlock_file()

    @property
    def pause(self) -> float:
        """Seconds between two renewals."""
        return self._seconds / 3

    def _lock_file(self) -> bool:
        """Take the lock if nobody has it, and say whether it is here."""
        if fcntl is None:
            return False
        if self._lock is None:
            with suppress(OSError):
                self._lock = os.open(f"{self._tables.file}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if self._lock is None:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock_file(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _boot_id() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"{socket.gethostname()} {time.time() - time.monotonic():.0f}"

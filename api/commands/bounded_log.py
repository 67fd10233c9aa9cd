"""The log of a long-running command: users can't fill its disk, or hide other lines, by what they have it say.

Lines of one kind come from one place in the code. Of each kind 100 lines are written at once, then one a second; a
line says how many were left out before it. A line has at most 16,384 characters. What is only written for people who
ask for it (DEBUG) is not counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from backoff_ctrl.engine.backoff import Bucket

AT_ONCE: Final = 100
A_SECOND: Final = 1.0
"""How many lines of a kind are written at once, and then in a second."""
LENGTH_MAX: Final = 16_384
"""Characters of a line."""


class _Kind:
    __slots__ = ("bucket", "left_out")

    def __init__(self) -> None:
        self.bucket = Bucket(A_SECOND, AT_ONCE)
        self.left_out = 0


class BoundedLog(logging.StreamHandler):  # type: ignore[type-arg]
    """A handler that writes to stderr; see the module."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self._note = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it as left out. One thread at a time is here."""
        self._note = ""
        if record.levelno > logging.DEBUG:
            kind = self._kinds.setdefault((record.pathname, record.lineno), _Kind())
            now = self._clock()
            if kind.bucket.wait_for(1, now) > 0:
                kind.left_out += 1
                return
            kind.bucket.take(now)
            if kind.left_out:
                self._note = f" ({kind.left_out} such lines were left out before this one)"
            elif kind.bucket.level(now) < 1:
                self._note = f" (further such lines: at most {A_SECOND:g} a second)"
            kind.left_out = 0
        super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        if (more := len(line) - LENGTH_MAX) > 0:
            line = f"{line[: LENGTH_MAX // 2]} ... {more} characters are left out ... {line[-LENGTH_MAX // 2 :]}"
        return line + self._note

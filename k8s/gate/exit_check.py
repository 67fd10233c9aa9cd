"""Ends the waits of threads that Python waits for: after a Ctrl-C, creates in other threads would wait on for hours."""

from __future__ import annotations

from typing import Final

from backoff_ctrl.k8s.gate.runtime.exits import must_not_wait
from backoff_ctrl.k8s.gate.runtime.host import weakly

from .line import Line
from .locked_engine import Failure, LockedEngine
from .unfinished import closing

EXIT_CHECK: Final = 0.5
"""Seconds until creates that wait on other threads notice a Ctrl-C."""
JOBS_CHECK: Final = 0.02
"""Seconds until those notice it that begin later, in jobs that the executor still had."""


class ExitCheck:
    """Looks at the main thread again and again while anything is under way in a line."""

    def __init__(self, engine: LockedEngine, line: Line) -> None:
        self._engine = engine
        self._line = line
        self.reset()

    def reset(self) -> None:
        self._looks = False

    def begin(self) -> None:
        """From now on, while anything is under way, look whether Python waits for threads that wait here."""
        if self._engine.alarms.of_threads and not self._looks:
            self._look_in(EXIT_CHECK)

    def _look_in(self, seconds: float) -> None:
        self._looks = True
        if isinstance(self._engine.attempt(self._engine.alarms.call_later, seconds, weakly(self._look)), Failure):
            self._looks = False

    def _look(self) -> None:
        # The flag stays up meanwhile: a crowd that begins to wait would start a check each, and those never end.
        if not self._line.is_busy():
            self._looks = False
            if not self._line.is_busy():  # looked at again: one may have begun just now, and seen the flag
                return
        ended = must_not_wait()
        if ended == "all":
            self._looks = False
            self._line.close("Python is exiting")
            return
        if ended:
            waiting = [each for each in self._line.under_way() if each.thread in ended and each.gate is not None]
            self._line.stop(closing(waiting, "the program was interrupted and waits for this thread"))
        self._look_in(JOBS_CHECK if ended else EXIT_CHECK)

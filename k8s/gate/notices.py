"""Log lines about creates that wait: when one begins to, when it is in, and one a minute for all that wait.

The first two are INFO. The line a minute is a WARNING, which Python shows if logging is not set up: a program that
waits for hours should not look as if it hung.
"""

from __future__ import annotations

import logging
from typing import Final

from backoff_ctrl.k8s.gate.creates.wait import PASSING
from backoff_ctrl.k8s.gate.runtime.host import weakly

from .line import Line
from .locked_engine import LockedEngine
from .unfinished import Unfinished

log = logging.getLogger(__name__)

MINUTE: Final = 60.0
SOON_OVER: Final = frozenset({PASSING, "first-contact"})
"""Reasons that pass within moments, and are not worth a line."""


class Notices:
    """Writes the lines for one ledger. Thread-safe."""

    def __init__(self, engine: LockedEngine, line: Line) -> None:
        self._engine = engine
        self._line = line
        self.reset()

    def reset(self) -> None:
        self._ticking = False

    def waits(self, create: Unfinished) -> None:
        if not self._ticking:
            self._ticking = True
            self._tick_later()
        if create.noticed or not log.isEnabledFor(logging.INFO):
            return
        wait = create.wait()
        if wait.reason not in SOON_OVER:
            log.info("%s waits (%s)", wait.label, wait.why)
            create.noticed = True

    def without_minutes(self) -> None:
        """Stop the lines that come each minute: time is simulated here."""
        self._ticking = True

    def over(self, create: Unfinished) -> None:
        if create.answer is None and create.creation.relayed:
            return  # its caller is put off, and will come again
        if create.answer is None:
            end = f"ended with {type(create.error).__name__}"
        else:
            end = "was created" if create.answer.ok else f"was refused with {create.answer.status}"
        since = create.creation.noticed_at
        seconds = create.seconds if since is None else self._engine.now() - since
        log.info("%s %s after %.1f s", create.label, end, seconds)

    def _tick_later(self) -> None:
        self._engine.alarms.call_at(self._engine.now() + MINUTE, weakly(self._tick))

    def _tick(self) -> None:
        self._engine.attempt(self._look)

    def _look(self) -> None:
        waiting = [create for create in self._line.under_way() if create.waits]
        if not waiting:
            self._ticking = False
            return
        self._tick_later()
        oldest = max(waiting, key=lambda create: create.seconds)
        if oldest.seconds >= MINUTE:
            wait = oldest.wait()
            many = "1 create waits" if len(waiting) == 1 else f"{len(waiting)} creates wait"
            log.warning("%s; %s for %.0f s (%s)", many, wait.label, wait.waited, wait.why)

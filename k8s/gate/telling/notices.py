"""Log lines about creates that wait: when one begins to, when it is in, and one a minute for all that wait.

The first two are INFO. The line a minute is a WARNING, which Python shows if logging is not set up: a program that
waits for hours should not look as if it hung.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from backoff_ctrl.k8s.creates.wait import PASSING
from backoff_ctrl.k8s.gate.closing import Unfinished

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.gate.timers import Timers

log = logging.getLogger(__name__)

MINUTE: Final = 60.0
SOON_OVER: Final = frozenset({PASSING, "first-contact"})
"""Reasons that pass within moments, and are not worth a line."""


class Noticed(Unfinished, Protocol):
    """A create as the lines tell of it. ``noticed``: a line has said that it waits."""

    noticed: bool
    answer: Answer | None
    error: BaseException | None


class Notices:
    """Writes the lines for one ledger. Thread-safe; an error here harms no create."""

    def __init__(self, timers: Timers, under_way: Callable[[], list[Unfinished]]) -> None:
        """``under_way`` returns the creates that have not ended."""
        self._timers = timers
        self._under_way = under_way
        self._ticking = False

    def waits(self, create: Noticed) -> bool:
        """Note that a create waits, perhaps again; say whether a line was written. Never raises."""
        try:
            return self._waits(create)
        except Exception:
            log.exception("writing about a waiting create failed; the create itself goes on")
            return True  # not again

    def _waits(self, create: Noticed) -> bool:
        if not self._ticking:
            self._ticking = True
            self._timers.call_at(self._timers.now() + MINUTE, self._tick)
        if create.noticed or not log.isEnabledFor(logging.INFO):
            return False
        wait = create.wait()
        if wait.reason in SOON_OVER:
            return False
        log.info("%s waits (%s)", wait.label, wait.why)
        return True

    def without_minutes(self) -> None:
        """Stop the lines that come each minute: time is simulated here."""
        self._ticking = True

    def over(self, create: Noticed, seconds: float) -> None:
        """Write how a create ended, after so many seconds. Call it only if ``waits`` wrote a line about it."""
        if create.answer is None:
            end = f"ended with {type(create.error).__name__}"
        else:
            end = "is in" if create.answer.ok else f"was refused with {create.answer.status}"
        log.info("%s %s after %.1f s", create.label, end, seconds)

    def _tick(self) -> None:
        waiting = [create for create in self._under_way() if create.waits]
        if not waiting:
            self._ticking = False
            return
        self._timers.call_at(self._timers.now() + MINUTE, self._tick)
        oldest = max(waiting, key=lambda create: create.seconds)
        if oldest.seconds >= MINUTE:
            wait = oldest.wait()
            many = "1 create waits" if len(waiting) == 1 else f"{len(waiting)} creates wait"
            log.warning("%s; %s for %.0f s (%s)", many, wait.label, wait.waited, wait.why)

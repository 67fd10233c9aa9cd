"""The end of the process, while work still runs: Kubernetes grants 30 s, and the next leader waits for the Lease."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Final

from backoff_ctrl.api.exits import FAILED

log = logging.getLogger(__name__)

ENDS_WITHIN: Final = 25.0
"""Seconds from the signal, or from an error that ends it, to the end of the process."""
WRITING: Final = 2.0
"""Seconds more for the line that says so."""
NAMED: Final = 10
"""Tasks that the log names."""


def end_in_time(seconds: float = ENDS_WITHIN) -> None:
    """Have the process end after so many seconds, with code 1, if it has not ended by itself.

    From a thread: what does not end may be a task that can't be cancelled, a thread that the loop waits for, or the
    loop itself.
    """
    loop = asyncio.get_running_loop()

    def end() -> None:
        try:
            left = sorted({str(getattr(task.get_coro(), "__qualname__", task)) for task in asyncio.all_tasks(loop)})
            log.error(
                "it has not ended within %g s, and is ended: %s", seconds, ", ".join(left[:NAMED]) or "no task is left"
            )
            logging.shutdown()
        finally:
            os._exit(FAILED)

    # The second one writes no line: what does not end may be a write to stderr, which holds the lock of the log.
    for after, act in ((seconds, end), (seconds + WRITING, lambda: os._exit(FAILED))):
        timer = threading.Timer(after, act)
        timer.daemon = True
        timer.start()

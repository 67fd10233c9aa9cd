"""The end of the process, whatever still runs: Kubernetes grants 30 s, and the next leader waits for the Lease."""

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
NAMED: Final = 10
"""Tasks that the log names."""


def end_in_time(seconds: float = ENDS_WITHIN) -> None:
    """Have the process end after so many seconds, with code 1, if it has not ended by itself.

    From a thread: what does not end may be a task that can't be cancelled, a thread that the loop waits for, or the
    loop itself.
    """
    loop = asyncio.get_running_loop()

    def end() -> None:
        left = sorted({task.get_coro().__qualname__ for task in asyncio.all_tasks(loop)})  # type: ignore[union-attr]
        log.error(
            "it has not ended within %g s, and is ended: %s", seconds, ", ".join(left[:NAMED]) or "no task is left"
        )
        logging.shutdown()
        os._exit(FAILED)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()

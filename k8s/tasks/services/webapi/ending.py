"""The end of one job, which is repeated until it is done or given up: no task waits for ever for its service.

A job is given up when another try is hopeless, since its Secret is lost or its service refuses, or after ten minutes in
which the service did not end it. Then its task ends, and says what may still run. The time runs from the first time
that the end was asked for, which is stored: a restart does not begin it anew. But each process tries for a minute at
least, since the service may have been away together with the process before. So a manager that never lives for a
minute never gives up a job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_protocol import RemoteError, SecretError

from .outcomes import TEMPORARY

CHANGES: Final = (*TEMPORARY, 409, 423)
"""Answers below 500 that another try may change: the service is busy, or the job is not in a state to be ended."""
NOT_IMPLEMENTED: Final = 501


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the end of a job is tried, in seconds."""

    hopeless: float = 60.0
    """If each answer in this time says that it can't be ended. A process tries for so long in any case."""
    failing: float = 600.0
    """If the service does not answer, or fails."""
    tries: int = 3
    """Tries at least."""


class Ending:
    """What the tries to end one job have met."""

    def __init__(self, patience: Patience, before: float, clock: Callable[[], float]) -> None:
        """``before``: the seconds since the end was asked for, by the time of day; ``clock`` is the process's.

        What passes here is counted by that clock alone: the time of day may be set.
        """
        self.tries = 0
        """Tries of this process."""
        self.said = ""
        """What was wrong with the last one."""
        self._patience = patience
        self._clock = clock
        self._before = max(0.0, before)  # the time may have been set back, and others may write a state
        self._begun = clock()
        self._hopeless_since = self._begun
        self._hopeless = 0

    def failed(self, error: Exception) -> None:
        """Take note of a try that has failed."""
        self.tries += 1
        self.said = str(error) or type(error).__name__
        if not is_hopeless(error):
            self._hopeless = 0
            return
        if not self._hopeless:
            self._hopeless_since = self._clock()
        self._hopeless += 1

    @property
    def is_given_up(self) -> bool:
        patience, now = self._patience, self._clock()
        if self._hopeless >= patience.tries and now - self._hopeless_since >= patience.hopeless:
            return True
        here = now - self._begun
        return self.tries >= patience.tries and here >= patience.hopeless and self._before + here >= patience.failing


def is_hopeless(error: Exception) -> bool:
    """Return whether the same try would fail again and again."""
    if isinstance(error, RemoteError):
        status = error.status
        return status == NOT_IMPLEMENTED or (300 <= status < 500 and status not in CHANGES)
    return isinstance(error, SecretError | TaskSpecError)

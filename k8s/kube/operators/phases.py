"""The phases of a task and of an object, and whose fault a failure is. The words and numbers are Flyte's."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Phase(IntEnum):
    """The phase of a task. The numbers are stored, so they can't change. ``UNDEFINED``: the plugin has no news."""

    UNDEFINED = 0
    NOT_READY = 1
    WAITING_FOR_RESOURCES = 2
    QUEUED = 3
    INITIALIZING = 4
    RUNNING = 5
    SUCCESS = 6
    RETRYABLE_FAILURE = 7
    PERMANENT_FAILURE = 8
    WAITING_FOR_CACHE = 9
    ABORTED = 10
    PAUSED = 11

    is_failure: bool
    """The object has failed; a retryable failure may be followed by another attempt."""
    is_terminal: bool
    """This attempt is over."""

    def __init__(self, _: int) -> None:
        self.is_failure = self._name_ in {"RETRYABLE_FAILURE", "PERMANENT_FAILURE"}
        self.is_terminal = self.is_failure or self._name_ in {"SUCCESS", "ABORTED"}

    @property
    def title(self) -> str:
        """The phase as text, as in JSON: ``WaitingForResources``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class ErrorKind(StrEnum):
    """Who can fix a failure: its user, or those who run the platform. Each has its own budget of retries."""

    USER = "USER"
    SYSTEM = "SYSTEM"

"""What creates and gangs on their way have in common: how others see them, and how they are ended from outside."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from backoff_ctrl.engine.requests import Request
from backoff_ctrl.k8s.answers.answer import Answer, GateClosed
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.creates.wait import Wait

from .turn import Turn

log = logging.getLogger(__name__)

NO_LIMIT: Final = 10.0**9
"""Seconds: a longer time limit is none."""


class Unfinished(ABC):
    """A create or a gang, from the moment it was asked for. It has ended once it has an ``answer`` or an ``error``.

    ``gate`` is the gate whose caller waits for it, None once the caller has gone; ``thread`` the thread (its ident)
    that waits or runs the loop that does, None if nothing blocks. ``began`` is on the ledger's clock. ``noticed``: a
    log line has said that it waits. ``noted`` is a subscriber's own.
    """

    __slots__ = (
        "answer", "began", "creation", "error", "gate", "held", "noted", "noticed", "request", "stopped", "thread",
        "turn",
    )  # fmt: skip

    def __init__(self, creation: Creation, gate: object, began: float) -> None:
        self.creation = creation
        self.gate: object | None = gate
        self.began = began
        self.thread: int | None = None
        self.request: Request | None = None  # what stands in line for it, or stood there last
        self.turn: Turn | None = None  # what it waits for, or waited for last
        self.held: Turn | None = None  # the one that gave it the ticket which it holds
        self.stopped: BaseException | None = None  # it was ended from outside with this error
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.noticed = creation.noticed_at is not None
        self.noted: Any = None

    @property
    @abstractmethod
    def label(self) -> str:
        """How people know it: the resource, the namespace and the name."""

    @property
    @abstractmethod
    def create_id(self) -> str:
        """The id in its object's annotation; empty if it has none."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether it waits in line, or for another create with its key."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.answer is not None or self.error is not None

    follows: bool
    """Whether it waits for another create with its key."""

    @property
    @abstractmethod
    def sends(self) -> int:
        """How often it was handed to the transport. True from that step on: whoever goes after it leaves a create."""

    @property
    def until(self) -> float | None:
        """When its time limit ends, on the ledger's clock; None: it has none."""
        timeout = self.creation.timeout
        return None if timeout is None or timeout >= NO_LIMIT else self.began + timeout

    @property
    @abstractmethod
    def seconds(self) -> float:
        """How long ago it began, in seconds."""

    @abstractmethod
    def wait(self) -> Wait:
        """Say what it waits for."""

    @abstractmethod
    def describe(self) -> str:
        """Return one line: what it is, its state, since when, and what it waits for."""

    @abstractmethod
    def cancel(self, error: BaseException) -> None:
        """End it with this error. What is being sent is answered first, and counts. Safe from any thread."""


def closing(creates: Sequence[Unfinished], why: str) -> list[tuple[Unfinished, BaseException]]:
    """Log which creates are cancelled (a silent loss would look like a bug); return each with its ``GateClosed``.

    ``why`` ("the client was closed") begins the log line and the errors.
    """
    if creates:
        lines = [create.describe() for create in creates]
        what = "create" if len(lines) == 1 else "creates"
        log.warning("%s: cancelling %d unfinished %s:\n  %s", why, len(lines), what, "\n  ".join(lines))
    return [(create, _closed(create, why)) for create in creates]


def _closed(create: Unfinished, why: str) -> GateClosed:
    error = GateClosed(f"{why}: {create.label} was cancelled before it was created")
    error.wait = create.wait() if create.waits else None
    return error

"""What creates and gangs on their way have in common: what they wait for, how others see them, how others end them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.gangs.gang import Grant
from backoff_ctrl.engine.tickets import Refusal, Ticket
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed, WaitedTooLong
from backoff_ctrl.k8s.kube.answers.rejections import Rejection

log = logging.getLogger(__name__)

NO_LIMIT: Final = 10.0**9
"""Seconds: a longer time limit counts as no limit."""
Outcome: TypeAlias = Literal["created", "failed", "timed-out", "cancelled"]


class Signal(Enum):
    """A turn that came without a ticket."""

    GO = "the first list of quotas is there, or the create ahead has ended without a success"
    OPENED = "the engine failed: go on without it"
    LATE = "it was waited for too long"
    READ = "read the namespace's quotas and report them, then wait on"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The wait was ended from outside: the gate was closed, or an operator cancelled the create."""

    error: BaseException


Value: TypeAlias = Ticket | Refusal | Grant | Answer | Signal | Stopped
"""How a turn came. An answer is that of the create ahead, which has the same key."""


class Turn:
    """One wait: a future that the ledger resolves, once, under its lock. From then on ``value`` never changes.

    ``until`` is the time on the ledger's clock at which the waiter gives up; None: it waits as long as it takes.
    ``wake`` is called with the turn, without the lock, once a value is there; perhaps twice.
    """

    __slots__ = ("engine", "lock", "may_read", "settled", "until", "value", "wake")

    def __init__(self, until: float | None = None, *, may_read: bool = False) -> None:
        """``may_read``: the waiter can read the quotas of the namespace."""
        self.until = until
        self.may_read = may_read
        self.value: Value | None = None
        self.wake: Callable[[Turn], object] | None = None
        self.lock: Any = None  # held while a thread blocks
        self.engine: Controller | None = None  # that issued the ticket: after a failure there is another one
        self.settled = False  # the engine knows how the ticket ended, or the grant was taken

    @property
    def pending(self) -> bool:
        """Whether it has not come. Its time may be over; then the waiter leaves the line as soon as it goes on."""
        return self.value is None or self.value is Signal.LATE


class Unfinished(ABC):
    """A create or a gang, from the moment it was asked for. It has ended once it has an ``answer`` or an ``error``.

    ``gate`` is the gate whose caller waits for it, None once the caller has gone; ``thread`` the thread (its ident)
    that waits or runs the loop that does, None if no thread blocks. ``began``, and ``until``, the end of its time limit
    (None: no limit), are on the ledger's clock. ``noticed``: a log line has reported that it waits. ``noted`` is a
    subscriber's own. ``follows``: it waits for another create with its key. ``away``: its caller was asked to come
    again, and has not come yet.
    """

    __slots__ = (
        "answer", "away", "began", "creation", "error", "gate", "held", "noted", "noticed", "request", "stopped",
        "thread", "turn", "until", "word",
    )  # fmt: skip

    follows: bool

    def __init__(self, creation: Creation, gate: object, began: float) -> None:
        self.creation = creation
        self.gate: object | None = gate
        self.began = began
        timeout = creation.timeout
        self.until = None if timeout is None or timeout >= NO_LIMIT else began + timeout
        self.thread: int | None = None
        self.request: Request | None = None  # what stands in line for it, or stood there last
        self.turn: Turn | None = None  # what it waits for, or waited for last
        self.held: Turn | None = None  # the one that gave it the ticket which it holds
        self.stopped: BaseException | None = None  # it was ended from outside with this error
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.word: Answer | None = None  # the server's answer to it, until it is counted
        self.noticed = creation.noticed_at is not None
        self.noted: Any = None
        self.away = False

    @property
    def over(self) -> bool:
        return self.answer is not None or self.error is not None

    @property
    def outcome(self) -> Outcome:
        """How it ended. ``cancelled``: by its caller, an operator, or the end of the gate."""
        if self.answer is not None:
            return "created" if self.answer.ok else "failed"
        if isinstance(self.error, WaitedTooLong):
            return "timed-out"
        stopped = isinstance(self.error, GateClosed) or not isinstance(self.error, Exception)  # Ctrl-C and its like
        return "cancelled" if stopped else "failed"

    @property
    @abstractmethod
    def label(self) -> str: ...

    @property
    @abstractmethod
    def create_id(self) -> str:
        """The id in its object's annotation, or an empty text."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether it waits in line, or for another create with its key."""

    @property
    @abstractmethod
    def sends(self) -> int:
        """How often it was handed to the transport; from the first time on a caller that goes leaves a create."""

    @property
    def rejection(self) -> Rejection | None:
        """The server's latest answer to it, read, if that was a refusal."""
        return None

    @property
    @abstractmethod
    def seconds(self) -> float:
        """How long ago it began, in seconds."""

    @abstractmethod
    def wait(self) -> Wait: ...

    def gave_up(self, wait: Wait | None) -> str:
        """Record that its time limit has passed, and what it waited for then, if it did."""
        why = "" if wait is None else f" ({wait.why})"
        return f"gave up waiting for {self.label} after {self.creation.timeout:g} s, the timeout it was given{why}"

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
    ends: list[tuple[Unfinished, BaseException]] = []
    for create in creates:
        error = GateClosed(f"{why}: {create.label} was cancelled before it was created")
        error.wait = create.wait() if create.waits else None
        ends.append((create, error))
    return ends

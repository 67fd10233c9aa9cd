"""What a create or a gang waits for: a future that the ledger resolves, once, under its lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.gangs import Grant
from backoff_ctrl.engine.tickets import Refusal, Ticket
from backoff_ctrl.k8s.answers.answer import Answer


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
    """One wait. ``value`` is None until it is resolved; from then on it never changes.

    ``until`` is the time on the ledger's clock at which whoever waits gives up; None: it waits as long as it takes.
    ``wake`` is called with the turn, without the lock, once a value is there; perhaps twice.
    """

    __slots__ = ("engine", "may_read", "settled", "until", "value", "wake")

    def __init__(self, until: float | None = None, *, may_read: bool = False) -> None:
        """``may_read``: whoever waits can read the quotas of the namespace."""
        self.until = until
        self.may_read = may_read
        self.value: Value | None = None
        self.wake: Callable[[Turn], object] | None = None
        self.engine: Controller | None = None  # that issued the ticket: after a failure there is another one
        self.settled = False  # the engine knows how the ticket ended; or somebody has taken the grant

    @property
    def pending(self) -> bool:
        """Whether it has not come. Its time may be over; then whoever waits leaves the line as soon as he goes on."""
        return self.value is None or self.value is Signal.LATE

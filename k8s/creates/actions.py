"""What a conversation says (actions) and hears (events): values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from backoff_ctrl.engine.outcomes import Outcome, Rejected
    from backoff_ctrl.engine.tickets import RefusalReason
    from backoff_ctrl.k8s.answers.answer import Answer


# -- actions: each is answered by one event, but for the last two ---------


@dataclass(frozen=True, slots=True)
class Line:
    """Stand in line for a ticket; ``outcome`` first ends the ticket that is held. Answered by Ticketed, Refused."""

    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send the create. Answered by Answered, Unsent, Unknown."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LookUp:
    """Get the object of that name. Answered by Answered, Unsent, Unknown."""

    name: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Let ``delay`` seconds go by, then do ``then``; ``outcome`` first ends the ticket. Answered by Woke."""

    delay: float
    then: Send | LookUp | Line
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Refresh:
    """Fetch new credentials. Answered by Refreshed."""


@dataclass(frozen=True, slots=True)
class Return:
    """The end: give this answer to the caller. ``learned`` is a refusal that the answer replaces."""

    answer: Answer
    outcome: Outcome | None = None
    learned: Rejected | None = None


@dataclass(frozen=True, slots=True)
class Raise:
    """The end: the caller gets this error."""

    error: BaseException
    outcome: Outcome | None = None


Action = Line | Send | LookUp | WaitUntil | Refresh | Return | Raise


class State(StrEnum):
    """What the conversation waits for."""

    NEW = "new"
    LINE = "line"
    SENDING = "sending"
    LOOKING = "looking"
    PAUSED = "paused"
    REFRESHING = "refreshing"
    OVER = "over"


NEXT: Final[dict[type[Action], State]] = {
    Line: State.LINE,
    Send: State.SENDING,
    LookUp: State.LOOKING,
    WaitUntil: State.PAUSED,
    Refresh: State.REFRESHING,
    Return: State.OVER,
    Raise: State.OVER,
}
"""The state is the action whose reply is awaited."""


# -- events ---------


@dataclass(frozen=True, slots=True)
class Ticketed:
    """The engine let us in."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine will not have us."""

    reason: RefusalReason
    detail: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The server answered; ``sent`` and ``now`` on the gate's clock."""

    answer: Answer
    sent: float
    now: float


@dataclass(frozen=True, slots=True)
class Unsent:
    """No connection: the server has not seen it."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Unknown:
    """It left and nothing came back."""

    error: BaseException
    now: float


@dataclass(frozen=True, slots=True)
class Woke:
    """The time has gone by."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The credentials are as fresh as they get."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The caller's waiting time is over: no more waiting; what is in flight is still answered."""

    detail: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Nobody wants it any more: nothing new is sent; what is in flight still counts."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Broken:
    """The means to go on failed in a way of their own: the caller gets that error, whatever was under way."""

    error: BaseException


Event = Ticketed | Refused | Answered | Unsent | Unknown | Woke | Refreshed | TimedOut | Cancelled | Broken

"""The actions a create's state machine asks for, and the events that answer them. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from backoff_ctrl.engine.facts.outcomes import Outcome, Rejected
from backoff_ctrl.engine.facts.shapes import NeverFits
from backoff_ctrl.engine.tickets import RefusalReason
from backoff_ctrl.k8s.kube.answers.answer import Answer

from .wait import Wait

# -- actions: each is answered by one event, except the last two ---------


@dataclass(frozen=True, slots=True)
class JoinLine:
    """Wait in line for a ticket, after ending the held one with ``outcome``. Answered by Ticketed or Declined."""

    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send the create. Answered by Answered, Unsent or Unknown."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LookUp:
    """Get the object of that name. Answered by Answered, Unsent or Unknown."""

    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for ``delay`` seconds, then do ``then``; ``outcome`` first ends the held ticket. Answered by Woke."""

    delay: float
    then: Send | LookUp | JoinLine
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Refresh:
    """Fetch new credentials, then do ``then`` (None: send again). Answered by Refreshed."""

    then: LookUp | None = None


@dataclass(frozen=True, slots=True)
class Return:
    """The end: the caller gets this answer. ``learned`` is a quota refusal that the answer replaces."""

    answer: Answer
    outcome: Outcome | None = None
    learned: Rejected | None = None


@dataclass(frozen=True, slots=True)
class Raise:
    """The end: the caller gets this error."""

    error: BaseException
    outcome: Outcome | None = None


Action = JoinLine | Send | LookUp | Pause | Refresh | Return | Raise


@dataclass(frozen=True, slots=True)
class ListQuotas:
    """List the quotas of the create's namespace, before the first create there. Answered as LookUp is."""


Call = Send | LookUp | Refresh | ListQuotas
"""What is done through the transport."""


class State(StrEnum):
    """What the machine waits for. The values are shown to people."""

    NEW = "not begun"
    LINE = "waiting in line"
    SENDING = "being sent"
    LOOKING = "being looked up"
    PAUSED = "pausing before the next try"
    REFRESHING = "fetching credentials"
    OVER = "over"


NEXT: Final[dict[type[Action], State]] = {
    JoinLine: State.LINE,
    Send: State.SENDING,
    LookUp: State.LOOKING,
    Pause: State.PAUSED,
    Refresh: State.REFRESHING,
    Return: State.OVER,
    Raise: State.OVER,
}
"""The state is named for the action whose reply is awaited."""


# -- events ---------


@dataclass(frozen=True, slots=True)
class Ticketed:
    """The engine admitted the create. ``waited``: not at once; it stood in line before."""

    waited: bool = False


@dataclass(frozen=True, slots=True)
class Declined:
    """The engine will not admit the create: it can never fit, has waited too long, or too many wait already."""

    reason: RefusalReason
    detail: str
    never: NeverFits | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The server answered. ``sent`` and ``now`` are times of the gate's clock."""

    answer: Answer
    sent: float
    now: float


@dataclass(frozen=True, slots=True)
class Unsent:
    """No connection was made: the server has not seen the request. ``reached``: it has answered this process before."""

    error: BaseException
    reached: bool = True


@dataclass(frozen=True, slots=True)
class Unknown:
    """The request was sent and no answer came: the object may have been stored."""

    error: BaseException
    now: float


@dataclass(frozen=True, slots=True)
class Woke:
    """The pause is over."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The credentials were fetched, as far as the transport can."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The caller's time limit has passed: no more waiting, but a request in flight may still be answered.

    ``wait`` says what it waited for; None: it did not wait.
    """

    detail: str
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The caller has gone: no further request is sent, but a request in flight still counts."""

    error: BaseException


Event = Ticketed | Declined | Answered | Unsent | Unknown | Woke | Refreshed | TimedOut | Cancelled

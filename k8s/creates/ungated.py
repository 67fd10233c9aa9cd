"""A create that passes ungated: it is sent once, as it is, and the caller gets whatever comes back.

Shadow mode and an internal error of the gate both end here. The outcome still teaches the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.outcomes import Created, Expired, Failed, Outcome, Overloaded
from backoff_ctrl.k8s.answers.rejections import Rejection, read_rejection

from .actions import Action, Answered, Cancelled, Event, Raise, Return, Send, State, Unknown, Unsent
from .treatments import TREATMENTS, Reaction, overloaded, rejected

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Answer


class Ungated:
    """The shortest state machine. It has the interface of ``Conversation``, so the same drivers drive it."""

    def __init__(self, body: dict[str, Any]) -> None:
        """Take the body as the caller gave it."""
        self.state = State.NEW
        self.last: Answer | None = None
        self.rejection: Rejection | None = None
        self.sends = 0
        self._body = body

    def start(self) -> Send:
        """Return the only action: send the body."""
        self.state, self.sends = State.SENDING, 1
        return Send(self._body)

    def handle(self, event: Event) -> Action | None:
        """End with the first answer. A time limit changes nothing, and only a create not begun can be cancelled."""
        if self.state is State.NEW and isinstance(event, Cancelled):
            self.state = State.OVER
            return Raise(event.error)
        if self.state is State.OVER or not isinstance(event, Answered | Unsent | Unknown):
            return None
        self.state = State.OVER
        if isinstance(event, Unsent):
            return Raise(event.error, Overloaded())
        if isinstance(event, Unknown):
            return Raise(event.error, Expired())
        return Return(event.answer, self._outcome(event))

    def abandon(self, error: BaseException) -> Action:
        """End at once. The object may have been stored."""
        self.state = State.OVER
        return Raise(error, Expired())

    def _outcome(self, event: Answered) -> Outcome:
        self.last = event.answer
        if event.answer.ok:
            return Created()
        self.rejection = read_rejection(event.answer.status, event.answer.headers, event.answer.body)
        treatment = TREATMENTS[self.rejection.lane]
        if treatment.reaction is Reaction.LEARN:
            return rejected(self.rejection, event.sent)
        if treatment.reaction is Reaction.AGAIN:
            return overloaded(self.rejection, treatment)
        return Expired() if treatment.reaction is Reaction.LOOK_UP else Failed()

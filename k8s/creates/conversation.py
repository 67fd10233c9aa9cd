"""The life of one create as a state machine: events go in, actions come out. No I/O, no clock, no threads.

Each state is named for the action whose reply is awaited. ``TABLE`` lists the events each state accepts and the method
that handles each. Both gates (asyncio and threads) drive this machine, so what holds for one holds for the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.outcomes import Abandoned, Expired, Failed
from backoff_ctrl.k8s.answers.answer import (
    Answer,
    NotSent,
    OutcomeUnknown,
    WaitedTooLong,
    exceeded_quota,
    refused_here,
)  # fmt: skip
from backoff_ctrl.k8s.answers.rejections import Lane, Rejection, rejection_of

from .actions import (
    NEXT,
    Action,
    Answered,
    Cancelled,
    Declined,
    Event,
    JoinLine,
    LookUp,
    Pause,
    Raise,
    Refresh,
    Refreshed,
    Return,
    Send,
    State,
    Ticketed,
    TimedOut,
    Unknown,
    Unsent,
    Woke,
)  # fmt: skip
from .creation import Creation
from .looking import Looking, Why
from .naming import UNSIGNED, Signature, name_create
from .patience import LOOK_AGAIN, SERVER_LIMIT, Patience
from .stored import created_as
from .treatments import TREATMENTS, Reaction, Treatment, overloaded, rejected

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from .wait import Wait


__all__ = ["TABLE", "Answer", "Conversation", "Creation", "NotSent", "OutcomeUnknown", "State"]


_JOIN: Final = JoinLine()
_NEVER_SENT: Final = Abandoned()
NEVER_FITS: Final = " (this never fits: request less, or have the quota raised)"


class Conversation(Looking):
    """The state machine. ``start()`` gives the first action, ``handle(event)`` the next, until Return or Raise."""

    __slots__ = ("_paused", "_refreshing", "_stopped", "rejection", "sends", "state")

    def __init__(self, creation: Creation, rng: random.Random, signature: Signature = UNSIGNED) -> None:
        """Draw the name and the create id before anything is sent, unless they were drawn before."""
        named = creation.named or name_create(
            creation.body,
            namespace=creation.namespace,
            resource=creation.resource,
            key=creation.key,
            rng=rng,
            signature=signature,
            asked=creation.asked,
        )
        super().__init__(creation, named, Patience(rng))
        self.state = State.NEW
        self.rejection: Rejection | None = None  # the latest answer to the create, read
        self.sends = 0
        self._paused: Send | LookUp | JoinLine = _JOIN  # what follows the pause
        self._refreshing: LookUp | None = None  # what follows new credentials; None: the create is sent again
        self._worth = _NEVER_SENT
        self._stopped: TimedOut | Cancelled | None = None

    def start(self) -> Action | None:
        """Return the first action: join the line, or look up what an earlier process may have made with the key.

        A create that is sent although its object exists is charged until the quota is counted again.
        """
        return self._next(self._look(Why.KEYED) if self.named.keyed and self._may_look else JoinLine())

    def handle(self, event: Event) -> Action | None:
        """Return the next action; None: keep waiting for the reply to the last one."""
        return self._next(TABLE[self.state][type(event)](self, event))

    def abandon(self, error: BaseException) -> Action:
        """End at once, whatever the state: there is no way to go on."""
        self.state = State.OVER
        return Raise(error, self._held_worth())

    # -- the next action ---------

    def _next(self, action: Action | None) -> Action | None:
        if action is None:
            return None
        if self._stopped is not None:
            action = self._within_limits(action, self._stopped)
        if isinstance(action, Send):
            self.sends += 1
            self._worth = Expired()
        elif isinstance(action, JoinLine | Pause):
            if action.outcome is not None:
                self._holding = False
            if isinstance(action, Pause):
                self._paused = action.then
        elif isinstance(action, Refresh):
            self._refreshing = action.then
        self.state = NEXT[type(action)]
        return action

    def _within_limits(self, action: Action, stop: TimedOut | Cancelled) -> Action:
        """Allow no more waiting after a time-out, and nothing new at all after a cancellation."""
        if isinstance(action, Return | Raise):
            return action
        if isinstance(stop, TimedOut) and not isinstance(action, JoinLine | Pause):
            return action
        outcome = action.outcome if isinstance(action, JoinLine | Pause) else None
        return Raise(self._stop_error(stop), outcome or self._held_worth())

    def _stop_error(self, stop: TimedOut | Cancelled) -> BaseException:
        return stop.error if isinstance(stop, Cancelled) else self._waited_too_long(stop.detail, stop.wait)

    def _waited_too_long(self, detail: str, wait: Wait | None) -> WaitedTooLong:
        in_doubt = isinstance(self._held_worth(), Expired)
        error = WaitedTooLong(f"{detail}; {self._so_far(in_doubt=in_doubt)}", self.last, wait)
        if not in_doubt:
            error.answer = self.refusal(wait) or self.last
        return error

    def refusal(self, wait: Wait | None) -> Answer | None:
        """Return the refusal by the quota that it waits for: the server's last one, else as the server would give it.

        None: no quota is what it waits for.
        """
        if self.rejection is not None and self.rejection.lane is Lane.QUOTA:
            return self.last
        if wait is None or not wait.quota:
            return None
        lacking = ((wait.resource, wait.asked_nano, wait.left_nano, wait.limited_nano), *wait.beside)
        amounts = {resource: (asked, limited - left, limited) for resource, asked, left, limited in sorted(lacking)}
        return self._exceeded(wait.quota, amounts)

    def _exceeded(self, quota: str, amounts: Mapping[str, Sequence[int]], hint: str = "") -> Answer:
        """Make the refusal that the server would give."""
        answer = exceeded_quota(self.creation.resource, self.named.name, quota, amounts, hint)
        self.rejection = rejection_of(answer)
        return answer

    def _so_far(self, *, in_doubt: bool) -> str:
        if in_doubt:
            return "it was sent, but whether it was stored is unknown: look for the object before you create it again"
        if self.last is not None:
            said = "" if self.rejection is None else f": {self.rejection.message}"
            return f"the API server's last answer was {self.last.status}{said}"
        return "no connection to the API server could be made" if self.sends else "it was never sent"

    # -- in line ---------

    def _ticketed(self, _: Ticketed) -> Action:
        self._holding, self._worth = True, Abandoned()
        return Send(self.named.body)

    def _declined(self, event: Declined) -> Action:
        if event.reason == "waited-too-long":
            return Raise(self._waited_too_long(event.detail, None))
        if self.last is not None:
            return Return(self.last)
        if event.never is not None:
            quota, resource, *amounts = event.never
            return Return(self._exceeded(quota, {resource: amounts}, NEVER_FITS))
        retry_after = 1 if event.reason == "too-many-waiting" else None
        answer = refused_here(self.creation.resource, self.named.name, event.detail, retry_after=retry_after)
        return Return(answer)

    # -- the create's answer ---------

    def _answered(self, event: Answered) -> Action:
        self.last = event.answer
        if event.answer.ok:
            self.rejection = None
            return Return(event.answer, created_as(event.answer, self.named.body, self.creation.resource))
        self.rejection = rejection_of(event.answer)
        lane = self.rejection.lane
        treatment = TREATMENTS[lane]
        if self._patience.wears_out(lane, treatment):
            return Return(event.answer, Expired() if treatment.reaction is Reaction.LOOK_UP else Failed())
        return REACTIONS[treatment.reaction](self, event, self.rejection, treatment)

    def _learn(self, event: Answered, rejection: Rejection, *_: object) -> Action:
        self._worth = refusal = rejected(rejection, event.sent)
        if self._may_exist(event.now):
            self._looked_at = event.now
            return self._look(Why.REFUSED)
        return JoinLine(refusal)

    def _may_exist(self, now: float) -> bool:
        """Say whether the refusal may hide a 409: quota admission answers before storage does."""
        if not self._may_look:
            return False
        if now < self._in_doubt_until:
            return True
        foreign = not self.named.minted or self.named.keyed
        return foreign and now - self._looked_at >= LOOK_AGAIN

    def _again(self, _: Answered, rejection: Rejection, treatment: Treatment) -> Action:
        self._worth = outcome = overloaded(rejection, treatment)
        return JoinLine(outcome)

    def _look_first(self, event: Answered, *_: object) -> Action:
        return self._in_doubt(event.now, Return(event.answer, Expired()))

    def _exists(self, *_: object) -> Action:
        self._worth = Failed()
        if self._may_look:
            return self._look(Why.EXISTS)
        self._why = Why.EXISTS
        return self._blind()

    def _refresh(self, event: Answered, *_: object) -> Action:
        if self.creation.relayed:
            return self._give_back(event)
        self._worth = Failed()
        return Refresh()

    def _give_back(self, event: Answered, *_: object) -> Action:
        return Return(event.answer, Failed())

    def _refreshed(self, _: Refreshed) -> Action:
        return self._refreshing or Send(self.named.body)

    # -- no answer ---------

    def _unsent(self, event: Unsent) -> Action:
        treatment = TREATMENTS[Lane.NOT_SENT]
        worn_out = self._patience.wears_out(Lane.NOT_SENT, treatment) and not self.creation.relayed
        if not event.met or worn_out:
            return Raise(event.error, Failed())
        self._worth = outcome = overloaded(None, treatment)
        return JoinLine(outcome)

    def _unknown(self, event: Unknown) -> Action:
        give_up = Raise(event.error, Expired())
        if self._patience.wears_out(Lane.UNKNOWN_OUTCOME, TREATMENTS[Lane.UNKNOWN_OUTCOME]):
            return give_up
        return self._in_doubt(event.now, give_up)

    def _in_doubt(self, now: float, give_up: Return | Raise) -> Action:
        if not self.named.name:
            return give_up  # without a name it cannot be recognised
        self._give_up = give_up
        self._in_doubt_until = now + SERVER_LIMIT
        if self._may_look:
            return self._look(Why.UNKNOWN)
        return self._resend()

    def _woke(self, _: Woke) -> Action:
        return self._paused

    # -- stopping ---------

    def _stop_waiting(self, event: TimedOut | Cancelled) -> Action:
        self._stopped = event
        return Raise(self._stop_error(event), self._held_worth())

    def _stop_later(self, event: TimedOut | Cancelled) -> None:
        if not isinstance(self._stopped, Cancelled):
            self._stopped = event


# ruff: noqa: SLF001 - these tables belong to the class, and follow it only because Python reads from the top
REACTIONS: Final[Mapping[Reaction, Callable[[Conversation, Answered, Rejection, Treatment], Action]]] = {
    Reaction.LEARN: Conversation._learn,
    Reaction.AGAIN: Conversation._again,
    Reaction.LOOK_UP: Conversation._look_first,
    Reaction.EXISTS: Conversation._exists,
    Reaction.REFRESH: Conversation._refresh,
    Reaction.GIVE_BACK: Conversation._give_back,
}
"""The method for each reaction that the table of treatments names."""

_LATER = {TimedOut: Conversation._stop_later, Cancelled: Conversation._stop_later}
_AT_ONCE = {TimedOut: Conversation._stop_waiting, Cancelled: Conversation._stop_waiting}
TABLE: Final[Mapping[State, Mapping[type[Event], Callable[[Conversation, Any], Action | None]]]] = {
    State.NEW: _AT_ONCE,
    State.LINE: {Ticketed: Conversation._ticketed, Declined: Conversation._declined, **_AT_ONCE},
    State.SENDING: {
        Answered: Conversation._answered,
        Unsent: Conversation._unsent,
        Unknown: Conversation._unknown,
        **_LATER,
    },
    State.LOOKING: {
        Answered: Conversation._looked,
        Unsent: Conversation._look_failed,
        Unknown: Conversation._look_failed,
        **_LATER,
    },
    State.PAUSED: {Woke: Conversation._woke, **_AT_ONCE},
    State.REFRESHING: {Refreshed: Conversation._refreshed, **_LATER},
    State.OVER: {},
}
"""The events each state accepts, and the method for each. Any other event is a bug of the driver: KeyError."""

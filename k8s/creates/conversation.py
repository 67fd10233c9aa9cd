"""One create's life, as a pure machine: it hears events and says what to do next. No I/O, no clock, no threads.

The state is the action whose reply is awaited; ``TABLE`` says which event each state may hear and who answers it.
Both gates (asyncio and threads) drive this machine: whatever holds for one holds for the other.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.outcomes import Abandoned, Created, Expired, Failed, Outcome, Rejected
from backoff_ctrl.k8s.answers.answer import (
    Answer,
    NotSent,
    OutcomeUnknown,
    WaitedTooLong,
    already_exists,
    assumed_created,
    found_as_created,
    refused_here,
)  # fmt: skip
from backoff_ctrl.k8s.answers.rejections import Lane, Rejection, read_rejection
from backoff_ctrl.k8s.charges.footprint import FootprintError
from backoff_ctrl.k8s.charges.kinds import PODS
from backoff_ctrl.k8s.charges.live import ENDED
from backoff_ctrl.k8s.charges.remembered import remembered_footprint

from .actions import (
    NEXT,
    Action,
    Answered,
    Cancelled,
    Event,
    Line,
    LookUp,
    Raise,
    Refresh,
    Refreshed,
    Refused,
    Return,
    Send,
    State,
    Ticketed,
    TimedOut,
    Unknown,
    Unsent,
    WaitUntil,
    Woke,
)  # fmt: skip
from .creation import Creation
from .naming import CREATE_ID, name_create
from .patience import LOOK_AGAIN, LOOK_TRIES, SERVER_LIMIT, Patience
from .treatments import TREATMENTS, Step, Treatment, overloaded, rejected

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping


__all__ = ["TABLE", "Answer", "Conversation", "Creation", "NotSent", "OutcomeUnknown", "State"]


class Why(StrEnum):
    """Why the name is looked up: it decides what the look-up means."""

    UNKNOWN = "unknown outcome"
    REFUSED = "full quota, and the name may exist"
    EXISTS = "the name is taken"


class Conversation:
    """The machine. ``start()`` gives the first action, ``hear(event)`` the next, until Return or Raise."""

    def __init__(self, creation: Creation, rng: random.Random) -> None:
        """Draw the name and the id before anything is sent."""
        self.creation = creation
        self.named = name_create(
            creation.body,
            namespace=creation.namespace,
            resource=creation.resource,
            key=creation.key,
            rng=rng,
        )
        self.state = State.NEW
        self.last: Answer | None = None  # the last word of the server on the create itself
        self.rejection: Rejection | None = None  # the same, read
        self.sends = 0
        self._patience = Patience(rng)
        self._paused: Send | LookUp | Line = Line()
        self._give_up: Return | Raise | None = None  # what an outcome that stays unknown ends with
        self._look_tries = 0
        self._why = Why.UNKNOWN
        self._may_look = bool(self.named.name)
        self._in_doubt_until = float("-inf")  # an earlier send may still be stored
        self._looked_at = float("-inf")
        self._holding = False  # a ticket is held
        self._worth: Outcome = Abandoned()  # what the held ticket is worth if we stopped now
        self._stopped: TimedOut | Cancelled | None = None

    def start(self) -> Action | None:
        """Begin: stand in line."""
        return self._say(Line())

    def hear(self, event: Event) -> Action | None:
        """Answer an event with the next action; ``None``: go on waiting for what was asked before."""
        return self._say(TABLE[self.state][type(event)](self, event))

    def abandon(self, error: BaseException) -> Action:
        """End at once, whatever is under way: the means to go on are gone."""
        return self._over(Raise(error, self._held_worth()))

    # -- saying ---------

    def _say(self, action: Action | None) -> Action | None:
        if action is None:
            return None
        action = self._within_limits(action)
        if isinstance(action, Line | WaitUntil) and action.outcome is not None:
            self._holding = False
        if isinstance(action, Send):
            self.sends += 1
            self._worth = Expired()
        if isinstance(action, WaitUntil):
            self._paused = action.then
        self.state = NEXT[type(action)]
        return action

    def _over(self, action: Raise) -> Action:
        self.state = State.OVER
        return action

    def _within_limits(self, action: Action) -> Action:
        """No waiting after a time-out, and nothing new at all after a cancellation."""
        stop = self._stopped
        if stop is None or isinstance(action, Return | Raise):
            return action
        if isinstance(stop, TimedOut) and not isinstance(action, Line | WaitUntil):
            return action
        outcome = action.outcome if isinstance(action, Line | WaitUntil) else None
        return Raise(self._stop_error(stop), outcome or self._held_worth())

    def _stop_error(self, stop: TimedOut | Cancelled) -> BaseException:
        return stop.error if isinstance(stop, Cancelled) else WaitedTooLong(stop.detail, self.last)

    def _held_worth(self) -> Outcome | None:
        return self._worth if self._holding else None

    # -- in line ---------

    def _ticketed(self, _: Ticketed) -> Action:
        self._holding, self._worth = True, Abandoned()
        return Send(self.named.body)

    def _refused(self, event: Refused) -> Action:
        if event.reason == "waited-too-long":
            return Raise(WaitedTooLong(event.detail, self.last))
        if self.last is not None:
            return Return(self.last)
        retry_after = 1 if event.reason == "too-many-waiting" else None
        answer = refused_here(self.creation.resource, self.named.name, event.detail, retry_after=retry_after)
        return Return(answer)

    # -- the create's answer ---------

    def _answered(self, event: Answered) -> Action:
        self.last = event.answer
        if event.answer.ok:
            self.rejection = None
            return Return(event.answer, self._created(event.answer))
        self.rejection = read_rejection(event.answer.status, event.answer.headers, event.answer.body)
        lane = self.rejection.lane
        treatment = TREATMENTS[lane]
        if self._patience.wears_out(lane, treatment):
            return Return(event.answer, Expired() if treatment.step is Step.LOOK_UP else Failed())
        return STEPS[treatment.step](self, event, self.rejection, treatment)

    def _learn(self, event: Answered, rejection: Rejection, _: Treatment) -> Action:
        self._worth = refusal = rejected(rejection, event.sent)
        if self._may_exist(event.now):
            self._looked_at = event.now
            return self._look(Why.REFUSED)
        return Line(refusal)

    def _may_exist(self, now: float) -> bool:
        """Whether a refusal may hide a 409: quota admission answers before storage does."""
        if not self._may_look:
            return False
        if now < self._in_doubt_until:
            return True
        foreign = not self.named.minted or self.named.keyed
        return foreign and now - self._looked_at >= LOOK_AGAIN

    def _again(self, _: Answered, rejection: Rejection, treatment: Treatment) -> Action:
        return Line(overloaded(rejection, treatment))

    def _look_first(self, event: Answered, _: Rejection, __: Treatment) -> Action:
        return self._in_doubt(event.now, Return(event.answer, Expired()))

    def _exists(self, _: Answered, __: Rejection, ___: Treatment) -> Action:
        self._worth = Failed()
        if self._may_look:
            return self._look(Why.EXISTS)
        self._why = Why.EXISTS
        return self._blind()

    def _refresh(self, _: Answered, __: Rejection, ___: Treatment) -> Action:
        self._worth = Failed()
        return Refresh()

    def _give_back(self, event: Answered, _: Rejection, __: Treatment) -> Action:
        return Return(event.answer, Failed())

    def _refreshed(self, _: Refreshed) -> Action:
        return Send(self.named.body)

    # -- no answer ---------

    def _unsent(self, event: Unsent) -> Action:
        treatment = TREATMENTS[Lane.NOT_SENT]
        if self._patience.wears_out(Lane.NOT_SENT, treatment):
            return Raise(event.error, Failed())
        return Line(overloaded(None, treatment))

    def _unknown(self, event: Unknown) -> Action:
        give_up = Raise(event.error, Expired())
        if self._patience.wears_out(Lane.UNKNOWN_OUTCOME, TREATMENTS[Lane.UNKNOWN_OUTCOME]):
            return give_up
        return self._in_doubt(event.now, give_up)

    def _in_doubt(self, now: float, give_up: Return | Raise) -> Action:
        if not self.named.name:
            return give_up  # nothing to recognise it by
        self._give_up = give_up
        self._in_doubt_until = now + SERVER_LIMIT
        if self._may_look:
            return self._look(Why.UNKNOWN)
        return self._resend()

    # -- the look-up's answer ---------

    def _look(self, why: Why) -> Action:
        self._why, self._look_tries = why, 0
        return LookUp(self.named.name)

    def _looked(self, event: Answered) -> Action:
        found = event.answer.json() if event.answer.ok else None
        if found is not None:
            return self._found(event.answer, found)
        if event.answer.status == 404:
            return self._absent()
        if read_rejection(event.answer.status, event.answer.headers, event.answer.body).lane is Lane.RBAC:
            self._may_look = False
            return self._blind()
        return self._look_again()

    def _found(self, answer: Answer, found: dict[str, Any]) -> Action:
        metadata = found.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        if metadata.get("deletionTimestamp"):
            return self._terminating()
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and annotations.get(CREATE_ID) == self.named.create_id:
            return Return(found_as_created(answer), self._created(answer))
        return self._taken()

    def _terminating(self) -> Action:
        """Wait it out without a ticket: it may take as long as its finalizers please."""
        if isinstance(self._worth, Rejected) and self._holding:
            return Line(self._worth)  # full anyway: what goes makes the room
        self._look_tries += 1
        outcome = Failed() if self._holding else None
        return WaitUntil(self._patience.pause(self._look_tries), LookUp(self.named.name), outcome)

    def _taken(self) -> Action:
        """A stranger's: the caller's 409, whichever way we came to know it."""
        if self._why is Why.EXISTS and self.last is not None and self.last.status == 409:
            return Return(self.last, self._held_worth())
        conflict = already_exists(self.creation.resource, self.named.name)
        learned = self._worth if self._holding and isinstance(self._worth, Rejected) else None
        return Return(conflict, Failed() if self._holding else None, learned)

    def _absent(self) -> Action:
        if not self._holding:
            return Line()
        if self._why is Why.REFUSED:
            self._in_doubt_until = float("-inf")  # answered, and not there: nothing of ours is under way
            return Line(self._worth)
        return self._resend()

    def _blind(self) -> Action:
        """Looking is forbidden: a 409 on a name that only we could draw is our own success."""
        if self._why is Why.EXISTS:
            if self.named.minted:
                return Return(assumed_created(self.named.body), Created() if self._holding else None)
            return self._taken()
        return self._absent()

    def _resend(self) -> Action:
        """Send the same name again; the first time at once, then with a pause that grows."""
        again = Send(self.named.body)
        done = self._patience.in_a_row
        return again if done <= 1 else WaitUntil(self._patience.pause(done - 1), again)

    def _look_failed(self, _: Unsent | Unknown) -> Action:
        return self._look_again()

    def _look_again(self) -> Action:
        self._look_tries += 1
        if self._look_tries < LOOK_TRIES:
            return WaitUntil(self._patience.pause(self._look_tries), LookUp(self.named.name))
        if self._why is Why.REFUSED:
            return Line(self._worth)
        if self._why is Why.EXISTS:
            return self._taken()
        assert self._give_up is not None
        return replace(self._give_up, outcome=self._held_worth())

    def _woke(self, _: Woke) -> Action:
        return self._paused

    # -- stopping ---------

    def _stop_waiting(self, event: TimedOut | Cancelled) -> Action:
        self._stopped = event
        return Raise(self._stop_error(event), self._held_worth())

    def _stop_later(self, event: TimedOut | Cancelled) -> None:
        if not isinstance(self._stopped, Cancelled):
            self._stopped = event

    # -- small things ---------

    def _created(self, answer: Answer) -> Created:
        """What the stored object is charged: after defaults and webhooks it may differ from what was sent."""
        stored = answer.json()
        if stored is None or stored.get("kind") != self.named.body.get("kind"):
            return Created()  # asked for as a table, or not an object at all
        metadata = stored.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) and self.creation.resource == PODS else None
        name = uid if isinstance(uid, str) and not _has_ended(stored) else ""  # the ends of pods are told by it
        try:
            return Created(remembered_footprint(stored, self.creation.resource), name)
        except FootprintError:
            return Created(None, name)  # stored all the same; the engine then keeps to the estimate


def _has_ended(pod: Mapping[str, Any]) -> bool:
    """Say whether a pod that was found has ended: nobody will tell of it any more."""
    status = pod.get("status")
    return isinstance(status, dict) and status.get("phase") in ENDED


# ruff: noqa: SLF001 - the tables are the machine's own, below it only because Python reads from the top
STEPS: Final[Mapping[Step, Callable[[Conversation, Answered, Rejection, Treatment], Action]]] = {
    Step.LEARN: Conversation._learn,
    Step.AGAIN: Conversation._again,
    Step.LOOK_UP: Conversation._look_first,
    Step.EXISTS: Conversation._exists,
    Step.REFRESH: Conversation._refresh,
    Step.GIVE_BACK: Conversation._give_back,
}
"""Who answers each step that the table of lanes names."""

_LATER = {TimedOut: Conversation._stop_later, Cancelled: Conversation._stop_later}
_AT_ONCE = {TimedOut: Conversation._stop_waiting, Cancelled: Conversation._stop_waiting}
TABLE: Final[Mapping[State, Mapping[type[Event], Callable[[Conversation, Any], Action | None]]]] = {
    State.NEW: _AT_ONCE,
    State.LINE: {Ticketed: Conversation._ticketed, Refused: Conversation._refused, **_AT_ONCE},
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
"""Which event each state may hear, and who answers it. Any other event is a bug of the driver's: KeyError."""

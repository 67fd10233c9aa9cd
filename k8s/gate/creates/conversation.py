"""The life of one create as a state machine: events go in, actions come out. No I/O, no clock, no threads.

Each state is named for the action whose reply is awaited. ``TABLE`` lists the events each state accepts and the method
that handles each. ``gate.life`` drives this machine for threads, asyncio and pools alike, so what holds for one holds
for the others.

Two rules decide most of what follows. *No object is stored twice*: the name is drawn before the first send, and
whenever an object may be stored already (an answer was lost, a key was used before, a full quota hides a 409) that name
is looked up first. *A ticket ends exactly once*: each action that leaves a ticket behind carries the outcome that ends
it, and ``_worth`` is its outcome if the create stopped now.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from backoff_ctrl.engine.facts.outcomes import Abandoned, Created, Expired, Failed, Outcome, Rejected, Uncounted
from backoff_ctrl.k8s.kube.answers.answer import (
    SERVER_LIMIT,
    Answer,
    NotSent,
    OutcomeUnknown,
    WaitedTooLong,
    already_exists,
    assumed_created,
    exceeded_quota,
    found_as_created,
    refused_here,
)
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection, rejection_of

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
)
from .creation import Creation, KeyReusedError
from .naming import UNSIGNED, Found, Named, Signature, whose
from .treatments import TREATMENTS, Denials, Reaction, Treatment, created_as, overloaded, rejected
from .wait import Wait

__all__ = ["TABLE", "Answer", "Conversation", "Creation", "NotSent", "OutcomeUnknown", "State"]

LOOK_AGAIN: Final = 30.0
"""Seconds between look-ups of a name the caller chose, after the first refusal: another client may take the name."""
LOOK_TRIES: Final = 6
"""Look-ups that may fail in a row."""
PAUSE_FIRST: Final = 0.25
PAUSE_LONGEST: Final = 8.0
"""Seconds; ``PAUSE_FIRST`` too."""
NEVER_FITS: Final = " (this never fits: request less, or have the quota raised)"
_JOIN: Final = JoinLine()
_NEVER_SENT: Final = Abandoned()
_EXPIRED: Final = Expired()
_LONG_AGO: Final = float("-inf")


class Why(StrEnum):
    """Why the name is looked up. It decides what the result means."""

    KEYED = "the key may have been used before"
    UNKNOWN = "unknown outcome"
    REFUSED = "full quota, and the name may exist"
    EXISTS = "the name is taken"


class Conversation:
    """The state machine. ``start()`` gives the first action, ``handle(event)`` the next, until Return or Raise."""

    __slots__ = (
        "_denials", "_give_up", "_holding", "_in_a_row", "_in_doubt_until", "_lane", "_look_tries", "_looked_at",
        "_may_look", "_may_refresh", "_paused", "_refreshing", "_rng", "_stopped", "_waited", "_why", "_worth",
        "creation", "last", "named", "rejection", "sends", "state",
    )  # fmt: skip

    def __init__(
        self,
        creation: Creation,
        rng: random.Random,
        signature: Signature = UNSIGNED,
        denials: Denials | None = None,
        digits: int | None = None,
    ) -> None:
        """Draw the name and the create id before anything is sent, unless they are given.

        ``denials``: shared by the creates of a ledger; None: every denial counts. ``digits``: the random bits of the
        id, if they were drawn before.
        """
        self.creation = creation
        self._denials = denials
        self.named: Named = creation.draw(rng, signature, digits)
        self.state = State.NEW
        self.last: Answer | None = None  # the server's latest answer to the create itself
        self.rejection: Rejection | None = None  # the latest answer to the create, read
        self.sends = 0
        self._rng = rng  # of the pauses
        self._lane: Lane | None = None  # of the latest answers,
        self._in_a_row = 0  # and how many of them it was
        self._holding = False  # a ticket is held
        self._waited = False  # for that ticket
        self._worth: Outcome = _NEVER_SENT  # of the held ticket if the create stopped now
        self._paused: Send | LookUp | JoinLine = _JOIN  # what follows the pause
        self._refreshing: LookUp | None = None  # what follows new credentials; None: the create is sent again
        self._stopped: TimedOut | Cancelled | None = None
        self._give_up: Return | Raise | None = None  # how it ends if the outcome stays unknown
        self._why = Why.UNKNOWN  # it is looked up
        self._look_tries = 0
        self._may_look = bool(self.named.name)
        self._may_refresh = True  # no look-up was refused for its credentials yet
        self._in_doubt_until = _LONG_AGO  # until then an earlier send may still be stored
        self._looked_at = _LONG_AGO

    def start(self) -> Action | None:
        """Return the first action: join the line, or look up what an earlier process may have made with the key.

        A create that is sent although its object exists is charged until the quota is counted again.
        """
        if self.named.keyed and self._may_look:
            self.state = State.LOOKING
            return self._look(Why.KEYED)
        self.state = State.LINE
        return _JOIN

    def handle(self, event: Event) -> Action | None:
        """Return the next action; None: keep waiting for the reply to the last one."""
        action = TABLE[self.state][type(event)](self, event)
        if action is None:
            return None
        if self._stopped is not None:
            action = self._within_limits(action, self._stopped)
        if isinstance(action, Send):
            self.sends += 1
            self._worth = _EXPIRED  # broken off from now on, it may or may not be stored
        elif isinstance(action, JoinLine | Pause):
            if action.outcome is not None:
                self._holding = False
            if isinstance(action, Pause):
                self._paused = action.then
        elif isinstance(action, Refresh):
            self._refreshing = action.then
        self.state = NEXT[type(action)]
        return action

    def abandon(self, error: BaseException) -> Raise:
        """End at once, in any state: it can't continue."""
        self.state = State.OVER
        return Raise(error, self._held_worth())

    def _held_worth(self) -> Outcome | None:
        return self._worth if self._holding else None

    def _within_limits(self, action: Action, stop: TimedOut | Cancelled) -> Action:
        """Allow no more waiting after a time-out, and no further request after a cancellation."""
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

        None: it does not wait for a quota, or by the quota's own figures it would fit, and others go first.
        """
        if self.rejection is not None and self.rejection.lane is Lane.QUOTA:
            return self.last
        if wait is None or not wait.quota:
            return None
        lacking = ((wait.resource, wait.asked_nano, wait.left_nano, wait.limited_nano), *wait.beside)
        amounts = {
            resource: (asked, limited - left, limited)
            for resource, asked, left, limited in sorted(lacking)
            if asked > left
        }
        return self._exceeded(wait.quota, amounts) if amounts else None

    def _exceeded(self, quota: str, amounts: Mapping[str, Sequence[int]], hint: str = "") -> Answer:
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

    def _ticketed(self, event: Ticketed) -> Action:
        self._holding, self._waited, self._worth = True, event.waited, _NEVER_SENT
        return Send(self.named.body)

    def _declined(self, event: Declined) -> Action:
        if event.reason == "waited-too-long":
            return Raise(self._waited_too_long(event.detail, None))
        if self.last is not None:  # the server's own words say more to a client than ours
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
            if self._denials is not None:
                self._denials.served(self.creation.subject)
            return Return(event.answer, created_as(event.answer, self.named.given, self.creation.resource))
        self.rejection = rejection_of(event.answer)
        lane = self.rejection.lane
        treatment = TREATMENTS[lane]
        if self._wears_out(lane, treatment):
            return Return(event.answer, Expired() if treatment.reaction is Reaction.LOOK_UP else Failed())
        return REACTIONS[treatment.reaction](self, event, self.rejection, treatment)

    def _learn(self, event: Answered, rejection: Rejection, *_: object) -> Action:
        self._worth = refusal = rejected(rejection, event.sent)
        if self._denials is not None:
            self._denials.served(self.creation.subject)
        if self._may_exist(event.now):
            self._looked_at = event.now
            return self._look(Why.REFUSED)
        return JoinLine(refusal)

    def _may_exist(self, now: float) -> bool:
        """Return whether the refusal may hide a 409: quota admission answers before storage does."""
        if not self._may_look or self.named.applied:
            return False
        if now < self._in_doubt_until:
            return True
        # A name of our own that was never in doubt is not taken: its suffix is one of 2 * 10^14.
        foreign = not self.named.minted or self.named.keyed
        return foreign and now - self._looked_at >= LOOK_AGAIN

    def _again(self, _: Answered, rejection: Rejection, treatment: Treatment) -> Action:
        self._worth = outcome = overloaded(rejection, treatment)
        return JoinLine(outcome)

    def _counted_soon(self, *_: object) -> Action:
        self._worth = outcome = Uncounted()
        return JoinLine(outcome)

    def _denied(self, event: Answered, rejection: Rejection, treatment: Treatment) -> Action:
        waited = self._waited or event.now < self._in_doubt_until  # a broken connection may mean that it restarts
        if self._denials is None or self._denials.counts(self.creation.subject, event.now, waited=waited):
            return self._give_back(event)
        return self._again(event, rejection, treatment)

    def _look_first(self, event: Answered, *_: object) -> Action:
        return self._in_doubt(event.now, Return(event.answer, Expired()))

    def _exists(self, *_: object) -> Action:
        self._worth = Failed()
        if self.named.applied:  # another client made the object meanwhile
            return self._resend()
        if self._may_look or (self.named.name and not self.named.minted):  # denied before: a server that starts
            return self._look(Why.EXISTS)
        self._why = Why.EXISTS
        return self._blind()

    def _refresh(self, event: Answered, *_: object) -> Action:
        if self.creation.relayed:  # the credentials are the caller's: only it can renew them
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
        worn_out = self._wears_out(Lane.NOT_SENT, treatment) and not self.creation.relayed
        if not event.reached or worn_out:
            return Raise(event.error, Failed())
        self._worth = outcome = overloaded(None, treatment)
        return JoinLine(outcome)

    def _unknown(self, event: Unknown) -> Action:
        give_up = Raise(event.error, Expired())
        if self._wears_out(Lane.UNKNOWN_OUTCOME, TREATMENTS[Lane.UNKNOWN_OUTCOME]):
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

    # -- the name is looked up ---------

    def _look(self, why: Why) -> Action:
        self._why, self._look_tries = why, 0
        return LookUp(self.named.name)

    def _looked(self, event: Answered) -> Action:
        found = whose(event.answer, self.named)
        if found is not None:
            return self._found(event.answer, found)
        if event.answer.status == 404:
            self._looked_at = event.now
            return self._absent()
        lane = rejection_of(event.answer).lane
        if lane is Lane.RBAC:
            self._may_look = False
            return self._blind()
        if lane is Lane.CREDENTIALS and self._may_refresh and not self.creation.relayed:
            self._may_refresh = False
            return Refresh(LookUp(self.named.name))
        return self._look_again()

    def _found(self, answer: Answer, found: Found) -> Action:
        if found is Found.APPLICABLE:
            return self._resend()
        if found is Found.GOING:
            return self._terminating()
        if found is Found.FOREIGN:
            return self._taken()
        if found is Found.OTHERWISE:
            label = f"{self.creation.resource} {self.creation.namespace}/{self.named.name}"
            return Raise(KeyReusedError(self.creation.key, label), self._held_worth())
        outcome = created_as(answer, self.named.given, self.creation.resource) if self._holding else None
        return Return(found_as_created(answer), outcome)

    def _terminating(self) -> Action:
        """Wait until the object is gone, without a ticket: finalizers may take any time."""
        if self._holding and isinstance(self._worth, Rejected):
            return JoinLine(self._worth)  # the quota is full anyway, and the object makes room when it goes
        self._look_tries += 1
        outcome = Failed() if self._holding else None
        return Pause(self._pause(self._look_tries), LookUp(self.named.name), outcome)

    def _taken(self) -> Action:
        """Return a 409: the object belongs to another client."""
        if self._why is Why.EXISTS and self.last is not None and self.last.status == 409:
            return Return(self.last, self._held_worth())
        conflict = already_exists(self.creation.resource, self.named.name)
        learned = self._worth if self._holding and isinstance(self._worth, Rejected) else None
        return Return(conflict, Failed() if self._holding else None, learned)

    def _absent(self) -> Action:
        if not self._holding:
            return JoinLine()
        if self._why is Why.REFUSED:
            self._in_doubt_until = _LONG_AGO  # answered, and not there: no send of ours is in flight
            return JoinLine(self._worth)
        return self._resend()

    def _blind(self) -> Action:
        """Decide without looking up, which is forbidden: a 409 on a name that only we could draw is our success."""
        if self._why is Why.EXISTS:
            if self.named.minted:
                return Return(assumed_created(self.named.body), Created() if self._holding else None)
            return self._taken()
        return self._absent()

    def _resend(self) -> Action:
        """Send the same name again: the first time at once, then after a growing pause."""
        again = Send(self.named.body)
        done = self._in_a_row
        return again if done <= 1 else Pause(self._pause(done - 1), again)

    def _look_failed(self, event: Unsent | Unknown) -> Action:
        last_try = self._look_tries + 1 >= LOOK_TRIES
        if self._why is Why.KEYED and isinstance(event, Unsent) and (last_try or not event.reached):
            return Raise(event.error)  # the create could not be sent either
        return self._look_again()

    def _look_again(self) -> Action:
        self._look_tries += 1
        if self._look_tries < LOOK_TRIES:
            return Pause(self._pause(self._look_tries), LookUp(self.named.name))
        if self._why is Why.KEYED:
            return JoinLine()  # a 409 to the create will be looked up
        if self._why is Why.REFUSED:
            return JoinLine(self._worth)
        if self._why is Why.EXISTS:
            return self._blind()
        assert self._give_up is not None
        return replace(self._give_up, outcome=self._held_worth())

    # -- patience ---------

    def _wears_out(self, lane: Lane, treatment: Treatment) -> bool:
        """Count one more answer of this lane; say whether it is one too many in a row."""
        self._in_a_row = self._in_a_row + 1 if lane is self._lane else 1
        self._lane = lane
        return treatment.tries is not None and self._in_a_row > treatment.tries

    def _pause(self, tries: int) -> float:
        """Return a jittered pause in seconds that doubles with each try, from 0.25-0.5 s up to 4-8 s."""
        longest = min(PAUSE_LONGEST, PAUSE_FIRST * 2.0 ** min(tries, 10))
        return self._rng.uniform(longest / 2, longest)

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
    Reaction.COUNTED_SOON: Conversation._counted_soon,
    Reaction.DENIED: Conversation._denied,
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

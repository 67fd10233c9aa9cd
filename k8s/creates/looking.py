"""The part of a create's life in which its name is looked up: why that is done, and what each result means. Pure."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.outcomes import Created, Failed, Outcome, Rejected
from backoff_ctrl.k8s.answers.answer import already_exists, assumed_created, found_as_created
from backoff_ctrl.k8s.answers.rejections import Lane, rejection_of

from .actions import Action, Answered, JoinLine, LookUp, Pause, Raise, Refresh, Return, Send, Unknown, Unsent
from .creation import KeyReusedError
from .patience import LOOK_TRIES, Patience
from .stored import created_as

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Answer

    from .creation import Creation
    from .naming import Named


LONG_AGO: Final = float("-inf")


class Why(StrEnum):
    """Why the name is looked up. It decides what the result means."""

    KEYED = "the key may have been used before"
    UNKNOWN = "unknown outcome"
    REFUSED = "full quota, and the name may exist"
    EXISTS = "the name is taken"


class Found(StrEnum):
    """What a look-up found under the name."""

    OURS = "made by this create, or by an earlier one with its key"
    OTHERWISE = "made with this key, for another body"
    GOING = "being deleted"
    FOREIGN = "made by somebody else"


def whose(answer: Answer, named: Named) -> Found | None:
    """Say what a look-up found; None: its answer shows no object."""
    found = answer.json() if answer.ok else None
    if found is None:
        return None
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    annotations = metadata.get("annotations")
    if metadata.get("deletionTimestamp"):
        return Found.GOING
    if not isinstance(annotations, dict) or not named.made(annotations):
        return Found.FOREIGN
    return Found.OTHERWISE if named.asked_otherwise(annotations) else Found.OURS


class Looking:
    """Looks up the name of a create. ``Conversation`` is the rest of its life."""

    __slots__ = (
        "_give_up", "_holding", "_in_doubt_until", "_look_tries", "_looked_at", "_may_look", "_may_refresh",
        "_patience", "_why", "_worth", "creation", "last", "named",
    )  # fmt: skip

    def __init__(self, creation: Creation, named: Named, patience: Patience) -> None:
        """Begin without a ticket, and with nothing known."""
        self.creation = creation
        self.named = named
        self.last: Answer | None = None  # the server's latest answer to the create itself
        self._patience = patience
        self._give_up: Return | Raise | None = None  # how it ends if the outcome stays unknown
        self._look_tries = 0
        self._why = Why.UNKNOWN
        self._may_look = bool(named.name)
        self._in_doubt_until = LONG_AGO  # until then an earlier send may still be stored
        self._looked_at = LONG_AGO
        self._may_refresh = True  # no look-up was refused for its credentials yet
        self._holding = False  # a ticket is held
        self._worth: Outcome  # of the held ticket if the create stopped now

    def _held_worth(self) -> Outcome | None:
        return self._worth if self._holding else None

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
        if found is Found.GOING:
            return self._terminating()
        if found is Found.FOREIGN:
            return self._taken()
        if found is Found.OTHERWISE:
            label = f"{self.creation.resource} {self.creation.namespace}/{self.named.name}"
            return Raise(KeyReusedError(self.creation.key, label), self._held_worth())
        outcome = created_as(answer, self.named.body, self.creation.resource) if self._holding else None
        return Return(found_as_created(answer), outcome)

    def _terminating(self) -> Action:
        """Wait until the object is gone, without a ticket: finalizers may take any time."""
        if self._holding and isinstance(self._worth, Rejected):
            return JoinLine(self._worth)  # the quota is full anyway, and the object makes room when it goes
        self._look_tries += 1
        outcome = Failed() if self._holding else None
        return Pause(self._patience.pause(self._look_tries), LookUp(self.named.name), outcome)

    def _taken(self) -> Action:
        """Return a 409: the object belongs to another client, whichever way that was found out."""
        if self._why is Why.EXISTS and self.last is not None and self.last.status == 409:
            return Return(self.last, self._held_worth())
        conflict = already_exists(self.creation.resource, self.named.name)
        learned = self._worth if self._holding and isinstance(self._worth, Rejected) else None
        return Return(conflict, Failed() if self._holding else None, learned)

    def _absent(self) -> Action:
        if not self._holding:
            return JoinLine()
        if self._why is Why.REFUSED:
            self._in_doubt_until = LONG_AGO  # answered, and not there: none of our sends is in flight
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
        done = self._patience.in_a_row
        return again if done <= 1 else Pause(self._patience.pause(done - 1), again)

    def _look_failed(self, event: Unsent | Unknown) -> Action:
        last_try = self._look_tries + 1 >= LOOK_TRIES
        if self._why is Why.KEYED and isinstance(event, Unsent) and (last_try or not event.met):
            return Raise(event.error)  # the create could not be sent either
        return self._look_again()

    def _look_again(self) -> Action:
        self._look_tries += 1
        if self._look_tries < LOOK_TRIES:
            return Pause(self._patience.pause(self._look_tries), LookUp(self.named.name))
        if self._why is Why.KEYED:
            return JoinLine()  # a 409 to the create will be looked up
        if self._why is Why.REFUSED:
            return JoinLine(self._worth)
        if self._why is Why.EXISTS:
            return self._blind()
        assert self._give_up is not None
        return replace(self._give_up, outcome=self._held_worth())

"""A create that passes ungated: it is sent once, as it is, and the caller gets the answer. Pure.

Creates in mode shadow or off, and those that meet an internal error of the gate, end here. The outcome still teaches
the engine. Two promises hold here too. A create with an idempotency key is looked up under its name before it is sent.
A create that continues without the engine after an internal error keeps the name that the gate drew before: an earlier
send, or an earlier process with the same key, may have stored it. Every answer to it that is not a success is looked
up, and an object of ours under that name is the create's success.
"""

from __future__ import annotations

import random
from typing import Any, Self, TypeVar

from backoff_ctrl.engine.facts.outcomes import Created, Expired, Failed, Outcome, Overloaded
from backoff_ctrl.k8s.kube.answers.answer import Answer, assumed_created, found_as_created
from backoff_ctrl.k8s.kube.answers.rejections import Rejection, rejection_of

from .actions import (
    Action,
    Answered,
    Cancelled,
    Event,
    LookUp,
    Raise,
    Refreshed,
    Return,
    Send,
    State,
    Unknown,
    Unsent,
)
from .conversation import Conversation
from .creation import Creation, KeyReusedError
from .naming import Found, Named, Signature, whose
from .treatments import TREATMENTS, Reaction, overloaded, rejected

End = TypeVar("End", Return, Raise, Return | Raise)


class Ungated:
    """The shortest state machine. It has the interface of ``Conversation``, so the same life drives it."""

    __slots__ = ("_body", "_goes_on", "_in_doubt", "_key", "_otherwise", "last", "named", "rejection", "sends", "state")

    def __init__(self, body: dict[str, Any], named: Named | None = None, key: str | None = None) -> None:
        """Take the body as the caller gave it; with a ``key`` also the name and id derived from it."""
        self.state = State.NEW
        self.last: Answer | None = None
        self.rejection: Rejection | None = None
        self.sends = 0
        self.named = named
        self._key = key
        self._body = body if named is None else named.body
        self._goes_on = False  # after an internal error; otherwise a lost answer is the caller's to resolve
        self._in_doubt = False  # an earlier send may be stored, of this process or of one before it
        self._otherwise: Return | Raise | None = None  # how it ends unless the object is found

    @classmethod
    def after(cls, before: Conversation | Ungated, creation: Creation, *, in_doubt: bool) -> Self:
        """Continue a create whose machine failed; ``in_doubt``: a send of it may have been stored."""
        opened = cls(creation.body, before.named, creation.key)
        opened.sends = before.sends
        opened.last, opened.rejection = before.last, before.rejection
        opened._goes_on, opened._in_doubt = True, in_doubt or opened._keyed
        return opened

    @property
    def _keyed(self) -> bool:
        return self.named is not None and self.named.keyed

    @property
    def _name(self) -> str:
        return "" if self.named is None else self.named.name

    def start(self) -> Send | LookUp:
        """Return the first action: send the body, or look up what the key may have made.

        If it was sent before, it is sent again: the answer shows whether there is anything to look up.
        """
        if self._keyed and self._name and not self.sends:
            self.state = State.LOOKING
            return LookUp(self._name)
        return self._send()

    def _send(self) -> Send:
        self.state = State.SENDING
        self.sends += 1
        return Send(self._body)

    def handle(self, event: Event) -> Action | None:
        """Return the next action; None: a time limit has no effect, and what was sent cannot be cancelled."""
        if isinstance(event, Cancelled):
            unsent = self.state is State.NEW or (self.state is State.LOOKING and not self.sends)
            return self._ended(Raise(event.error)) if unsent else None
        if self.state is State.LOOKING and isinstance(event, Answered | Unsent | Unknown | Refreshed):
            return self._looked(event)
        if self.state is State.SENDING and isinstance(event, Answered | Unsent | Unknown):
            return self._answered(event)
        return None

    def abandon(self, error: BaseException) -> Raise:
        """End at once. The object may have been stored."""
        return self._ended(Raise(error, Expired()))

    def _answered(self, event: Answered | Unsent | Unknown) -> Action:
        if isinstance(event, Answered):
            end: Return | Raise = Return(event.answer, self._outcome(event))
        else:
            end = Raise(event.error, Overloaded() if isinstance(event, Unsent) else Expired())
        created = isinstance(end, Return) and end.answer.ok
        may_be_stored = self._in_doubt or (self._goes_on and isinstance(event, Unknown))
        if created or not may_be_stored or not self._name:
            return self._ended(end)
        self._otherwise, self.state = end, State.LOOKING
        return LookUp(self._name)

    def _outcome(self, event: Answered) -> Outcome:
        self.last = event.answer
        if event.answer.ok:
            return Created()
        self.rejection = rejection_of(event.answer)
        treatment = TREATMENTS[self.rejection.lane]
        if treatment.reaction is Reaction.LEARN:
            return rejected(self.rejection, event.sent)
        if treatment.reaction is Reaction.AGAIN:
            return overloaded(self.rejection, treatment)
        return Expired() if treatment.reaction is Reaction.LOOK_UP else Failed()

    def _looked(self, event: Event) -> Action:
        """End with the object if it is ours; else send it, unless it was sent: then end as without the look-up."""
        answer = event.answer if isinstance(event, Answered) else None
        found = None if answer is None or self.named is None else whose(answer, self.named)
        if answer is not None and found is Found.OURS:
            return self._ended(Return(found_as_created(answer), Created() if self._otherwise else None))
        if found is Found.OTHERWISE:
            return self._ended(Raise(KeyReusedError(self._key, self._name)))
        if self._otherwise is None:
            return self._send()
        if answer is not None and answer.status == 403 and self._is_taken_by_us(self._otherwise):
            return self._ended(Return(assumed_created(self._body), Created()))
        return self._ended(self._otherwise)

    def _is_taken_by_us(self, otherwise: Return | Raise) -> bool:
        """Return whether a 409 can only be about our own object: no other client could draw that name."""
        conflict = isinstance(otherwise, Return) and otherwise.answer.status == 409
        return conflict and self.named is not None and self.named.minted

    def _ended(self, action: End) -> End:
        self.state = State.OVER
        return action


def ungated(creation: Creation, rng: random.Random, signature: Signature) -> Ungated:
    """Prepare a create whose namespace is not enforced: unchanged, except for what an idempotency key adds."""
    return Ungated(creation.body, None if creation.key is None else creation.draw(rng, signature), creation.key)

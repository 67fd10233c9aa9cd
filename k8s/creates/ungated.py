"""A create that passes ungated: it is sent once, as it is, and the caller gets whatever comes back.

Shadow mode, off and an internal error of the gate end here. The outcome still teaches the engine. A create with an
idempotency key keeps its promise in every mode: its name is looked up before it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.outcomes import Created, Expired, Failed, Outcome, Overloaded
from backoff_ctrl.k8s.answers.answer import found_as_created
from backoff_ctrl.k8s.answers.rejections import Rejection, rejection_of

from .actions import Action, Answered, Cancelled, Event, LookUp, Raise, Return, Send, State, Unknown, Unsent
from .creation import KeyReusedError
from .looking import Found, whose
from .naming import Signature, name_create
from .treatments import TREATMENTS, Reaction, overloaded, rejected

if TYPE_CHECKING:
    import random

    from backoff_ctrl.k8s.answers.answer import Answer

    from .creation import Creation
    from .naming import Named


class Ungated:
    """The shortest state machine. It has the interface of ``Conversation``, so the same drivers drive it."""

    def __init__(self, body: dict[str, Any], named: Named | None = None, key: str | None = None) -> None:
        """Take the body as the caller gave it; with a ``key`` also the name and id that it gives."""
        self.state = State.NEW
        self.last: Answer | None = None
        self.rejection: Rejection | None = None
        self.sends = 0
        self.named = named
        self._key = key
        self._body = body if named is None else named.body

    def start(self) -> Send | LookUp:
        """Return the first action: send the body, or look up what the key may have made."""
        if self.named is not None and self.named.name:
            self.state = State.LOOKING
            return LookUp(self.named.name)
        return self._send()

    def _send(self) -> Send:
        self.state, self.sends = State.SENDING, 1
        return Send(self._body)

    def handle(self, event: Event) -> Action | None:
        """End with the first answer. A time limit changes nothing, and what was sent cannot be cancelled."""
        if self.state in (State.NEW, State.LOOKING) and isinstance(event, Cancelled):
            self.state = State.OVER
            return Raise(event.error)
        if self.state is State.OVER or not isinstance(event, Answered | Unsent | Unknown):
            return None
        if self.state is State.LOOKING:
            return self._looked(event)
        self.state = State.OVER
        if isinstance(event, Unsent):
            return Raise(event.error, Overloaded())
        if isinstance(event, Unknown):
            return Raise(event.error, Expired())
        return Return(event.answer, self._outcome(event))

    def _looked(self, event: Answered | Unsent | Unknown) -> Action:
        """Return the object of the key; whatever else the look-up says, the create is sent."""
        assert self.named is not None
        found = whose(event.answer, self.named) if isinstance(event, Answered) else None
        if isinstance(event, Answered) and found is Found.OURS:
            self.state = State.OVER
            return Return(found_as_created(event.answer))
        if found is Found.OTHERWISE:
            self.state = State.OVER
            return Raise(KeyReusedError(self._key, self.named.name))
        return self._send()

    def abandon(self, error: BaseException) -> Action:
        """End at once. The object may have been stored."""
        self.state = State.OVER
        return Raise(error, Expired())

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


def ungated(creation: Creation, rng: random.Random, signature: Signature) -> Ungated:
    """Prepare a create whose namespace is not enforced: as it is, but for what an idempotency key adds."""
    if creation.key is None:
        return Ungated(creation.body)
    named = name_create(
        creation.body,
        namespace=creation.namespace,
        resource=creation.resource,
        key=creation.key,
        rng=rng,
        signature=signature,
        asked=creation.asked,
    )
    return Ungated(creation.body, named, creation.key)

"""A create that goes on without the engine, after an internal error: sent once more, and never stored twice. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.engine.outcomes import Created
from backoff_ctrl.k8s.answers.answer import assumed_created, found_as_created

from .actions import Action, Answered, Event, LookUp, Raise, Refreshed, Return, Send, State, Unknown, Unsent
from .creation import KeyReusedError
from .looking import Found, whose
from .ungated import Ungated

if TYPE_CHECKING:
    from .actions import Call
    from .conversation import Conversation
    from .creation import Creation


class FailingOpen(Ungated):
    """An ungated create under the name that the gate drew before.

    An earlier send, or an earlier process with the same key, may have stored it: then a refusal is looked up first,
    and an object of ours under that name is the create's success.
    """

    def __init__(self, before: Conversation | Ungated, creation: Creation, *, in_doubt: bool) -> None:
        """``before`` is the machine that failed; ``in_doubt``: a send may have been stored."""
        super().__init__(creation.body, before.named, creation.key)
        self.sends = before.sends
        self.last, self.rejection = before.last, before.rejection
        self._name = "" if self.named is None else self.named.name
        self._keyed = self.named is not None and self.named.keyed
        self._in_doubt = in_doubt or self._keyed
        self._otherwise: Return | Raise | None = None  # how it ends unless the object is found

    def go_on(self, awaited: Call | None) -> Send | LookUp | None:
        """Return the next action: send, unless the reply to an earlier call is still awaited.

        With a key the object is looked up before the first send: it may exist already.
        """
        if awaited is not None:
            self.state = State.SENDING if isinstance(awaited, Send) else State.LOOKING
            return None
        if self._keyed and self._name and not self.sends:
            self.state = State.LOOKING
            return LookUp(self._name)
        return self._send_again()

    def _send_again(self) -> Send:
        self.state = State.SENDING
        self.sends += 1
        return Send(self._body)

    def handle(self, event: Event) -> Action | None:
        """End with the first answer, unless that may hide an object of ours."""
        if self.state is State.LOOKING:
            return self._found(event) if isinstance(event, Answered | Unsent | Unknown | Refreshed) else None
        action = super().handle(event)
        if not isinstance(action, Return | Raise) or (isinstance(action, Return) and action.answer.ok):
            return action
        if not self._name or not (self._in_doubt or isinstance(event, Unknown)):
            return action
        self._otherwise, self.state = action, State.LOOKING
        return LookUp(self._name)

    def _found(self, event: Event) -> Action:
        answer = event.answer if isinstance(event, Answered) else None
        found = None if answer is None or self.named is None else whose(answer, self.named)
        if answer is not None and found is Found.OURS:
            return self._ended(Return(found_as_created(answer), Created()))
        if found is Found.OTHERWISE:
            return self._ended(Raise(KeyReusedError(self._key, self._name)))
        if self._otherwise is None:  # it was looked up before the first send, or before the error
            return self._send_again()
        if answer is not None and answer.status == 403 and self._is_taken_by_us(self._otherwise):
            return self._ended(Return(assumed_created(self._body), Created()))
        return self._ended(self._otherwise)

    def _ended(self, action: Return | Raise) -> Return | Raise:
        self.state = State.OVER
        return action

    def _is_taken_by_us(self, otherwise: Return | Raise) -> bool:
        """Say whether a 409 can only be about our own object: nobody else could draw that name."""
        conflict = isinstance(otherwise, Return) and otherwise.answer.status == 409
        return conflict and self.named is not None and self.named.minted

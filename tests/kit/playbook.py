"""Tests a state machine in one expression: the events it is given (``>>``) and the actions it answers with (``<<``).

    assert Playbook(machine) << line() >> Ticketed() << send(name="web-0") >> answered(201) << returns(201, Created)

In a longer one an event and its action stand together:

    assert (
        Playbook(machine)
        << line()
        >> (Ticketed(), send(name="web-0"))
        >> (answered(201), returns(201, Created))
    )

The idea comes from mitmproxy (``test/mitmproxy/proxy/tutils.py``). A playbook that is never asserted fails, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from backoff_ctrl.k8s.gate.creates.actions import (
    Action,
    Answered,
    Event,
    JoinLine,
    LookUp,
    Pause,
    Raise,
    Return,
    Send,
    Unknown,
    Unsent,
)
from backoff_ctrl.k8s.kube.answers.answer import Answer, status_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backoff_ctrl.engine.facts.outcomes import Outcome


class Machine(Protocol):
    """A state machine that a playbook can test."""

    def start(self) -> Action | None:
        """Return the first action."""

    def handle(self, event: Event) -> Action | None:
        """Return the next action."""


@dataclass(frozen=True)
class Expected:
    """An expected action: ``text`` describes it in a transcript, ``matches`` checks it."""

    text: str
    matches: Callable[[Action | None], bool]


class Playbook:
    """Collects events and expected actions, and plays them when it is asserted."""

    def __init__(self, machine: Machine) -> None:
        """Nothing is played yet."""
        self._machine = machine
        self._entries: list[Event | Expected] = []
        self._asserted = False

    def __lshift__(self, expected: Expected) -> Playbook:
        """Expect this action."""
        self._entries.append(expected)
        return self

    def __rshift__(self, event: Event | tuple[Event, Expected]) -> Playbook:
        """Give the machine this event, and perhaps expect an action."""
        self._entries += event if isinstance(event, tuple) else (event,)
        return self

    def __bool__(self) -> bool:
        """Play it. At the first difference, raise AssertionError with the transcript so far."""
        self._asserted = True
        said: Action | None = self._machine.start()
        transcript: list[str] = []
        for entry in self._entries:
            if isinstance(entry, Expected):
                if not entry.matches(said):
                    lines = "\n".join(transcript)
                    raise AssertionError(f"{lines}\n<< {entry.text}   expected, but the action was\n<< {said}")
                transcript.append(f"<< {entry.text}")
            else:
                transcript.append(f">> {entry}")
                said = self._machine.handle(entry)
        return True

    def __del__(self) -> None:
        """Fail if it was never asserted: it would pass silently."""
        assert self._asserted, "a playbook was not asserted"


# -- events ---------


def answered(
    status: int,
    body: Mapping[str, Any] | str = "{}",
    *,
    at: float = 0.0,
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """An answer of the server, sent and received at the same time."""
    text = body if isinstance(body, str) else json.dumps(body)
    return Answered(Answer(status, headers or {}, text.encode()), at, at)


def status(code: int, reason: str, message: str, *, at: float = 0.0, **details: Any) -> Answered:
    """An answer with a Status."""
    return Answered(status_answer(code, reason, message, details), at, at)


def full(quota: str = "q", *, at: float = 0.0) -> Answered:
    """A quota's refusal of one more pod."""
    text = f'pods "web-0" is forbidden: exceeded quota: {quota}, requested: pods=1, used: pods=2, limited: pods=2'
    return status(403, "Forbidden", text, at=at, name="web-0", kind="pods")


def lost(*, at: float = 0.0) -> Unknown:
    """The connection broke after the request was sent."""
    return Unknown(ConnectionResetError("reset"), at)


def never_sent() -> Unsent:
    """No connection could be made."""
    return Unsent(ConnectionRefusedError("refused"))


# -- actions ---------


def line(outcome: type[Outcome] | None = None, **fields: object) -> Expected:
    """Joins the line, after ending its ticket with such an outcome."""
    return Expected(
        f"JoinLine({_name(outcome)}, {fields})",
        lambda said: isinstance(said, JoinLine) and _is(said.outcome, outcome, fields),
    )


def send(name: str | None = None) -> Expected:
    """Sends the create under that name (None: any)."""
    return Expected(
        f"Send({name})",
        lambda said: isinstance(said, Send) and name in (None, said.body["metadata"].get("name")),
    )


def look_up(name: str | None = None) -> Expected:
    """Looks up that name (None: any)."""
    return Expected(f"LookUp({name})", lambda said: isinstance(said, LookUp) and name in (None, said.name))


def pause(outcome: type[Outcome] | None = None, then: type[Action] | None = None) -> Expected:
    """Pauses for at most 8 s, with or without ending its ticket."""
    return Expected(
        f"Pause({_name(outcome)}, then={_name(then)})",
        lambda said: (
            isinstance(said, Pause)
            and 0 < said.delay <= 8
            and _is(said.outcome, outcome, {})
            and (then is None or isinstance(said.then, then))
        ),
    )


def returns(code: int, outcome: type[Outcome] | None = None, *, holding: str = "", teaches: bool = False) -> Expected:
    """Ends with such an answer, whose body contains ``holding``."""
    return Expected(
        f"Return({code}, {_name(outcome)}, {holding!r})",
        lambda said: (
            isinstance(said, Return)
            and said.answer.status == code
            and _is(said.outcome, outcome, {})
            and holding in said.answer.body.decode()
            and (said.learned is not None) == teaches
        ),
    )


def raises(error: type[BaseException], outcome: type[Outcome] | None = None) -> Expected:
    """Ends with such an error."""
    return Expected(
        f"Raise({error.__name__}, {_name(outcome)})",
        lambda said: isinstance(said, Raise) and isinstance(said.error, error) and _is(said.outcome, outcome, {}),
    )


def says(kind: type[Action]) -> Expected:
    """Answers with an action of that kind."""
    return Expected(kind.__name__, lambda said: isinstance(said, kind))


def nothing() -> Expected:
    """Keeps waiting for the reply to its last action."""
    return Expected("nothing", lambda said: said is None)


def _is(outcome: object, kind: type[Outcome] | None, fields: Mapping[str, object]) -> bool:
    if kind is None:
        return outcome is None
    return isinstance(outcome, kind) and all(getattr(outcome, name) == value for name, value in fields.items())


def _name(kind: type[object] | None) -> str:
    return "-" if kind is None else kind.__name__

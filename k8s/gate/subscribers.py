"""Who learns what happens at a ledger: metrics, events, notifications, spans, the watch of quotas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec

from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.answers.rejections import Rejection

from .unfinished import Unfinished

P = ParamSpec("P")
Verdict = Literal["create", "wait", "refuse"]


class Subscriber:
    """Override what you want to know, and give it to ``Ledger.subscribe``.

    Methods are called from any thread, without the ledger's lock, so they may ask the ledger back; they must not block.
    ``ended`` may come from a finalizer, in a thread that is in one of these methods already: a lock of theirs is an
    ``RLock``. An error of theirs is counted and logged once, and harms no create.
    """

    def begun(self, create: Unfinished) -> None:
        """A create was asked for: in the thread, task and context of its caller."""

    def waits(self, create: Unfinished) -> None:
        """Its ``request`` joined the line and is not admitted at once, perhaps again."""

    def admitted(self, create: Unfinished) -> None:
        """It left the line with a ticket, perhaps at once."""

    def answered(self, create: Unfinished, answer: Answer, rejection: Rejection | None, *, probe: bool) -> None:
        """The server answered it; ``rejection`` is what a refusal says."""

    def declined(self, create: Unfinished, refusal: Refusal) -> None:
        """The engine will not admit it."""

    def ended(self, create: Unfinished) -> None:
        """It has its answer or its error."""

    def shadowed(self, namespace: str, verdict: Verdict) -> None:
        """Shadow mode sends a create; ``verdict`` is what enforce mode would have done with it."""

    def observed(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """A quota is reported as it is now; the engine does not know it yet."""

    def learned(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """The engine knows a quota as it was reported: what it refused before may fit now."""

    def blocked(self, namespace: str) -> None:
        """A quota holds creates up in a namespace, and its changes are not watched yet."""

    def gang_made(self, namespace: str) -> None:
        """Others make pods for a gang of this namespace: watch those that ``Ledger.look_for`` names."""

    def member_over(self, pod: Mapping[str, Any]) -> None:
        """A pod of a gang that keeps its room has ended, and is like this; the gang is about to have its room again."""

    def decided(self, seconds: float) -> None:
        """The engine took so long for one decision or piece of news."""

    def forked(self) -> None:
        """This is a forked child; the creates stay with its parent."""

    def figures(self) -> Iterable[tuple[str, tuple[str, ...], float]]:
        """Return samples of its own for the metrics: name without prefix, labels, value."""
        return ()


Attempt = Callable[..., Any]
"""Calls a function with its arguments, and never raises its errors."""


class Event(Generic[P]):
    """One event of ``Subscriber``: calling it calls each subscriber that overrides its method.

    ``listeners`` is empty while no subscriber does. Where every create passes, look there before you call.
    """

    __slots__ = ("_attempt", "_default", "listeners")

    def __init__(self, attempt: Attempt, default: Callable[Concatenate[Subscriber, P], object]) -> None:
        """``default``: the method of ``Subscriber``, which no listener has."""
        self._attempt = attempt
        self._default = default
        self.listeners: tuple[Callable[P, object], ...] = ()

    def __call__(self, *given: P.args, **more: P.kwargs) -> None:
        for listener in self.listeners:
            self._attempt(listener, *given, **more)

    def set(self, every: tuple[Subscriber, ...]) -> None:
        name = self._default.__name__
        self.listeners = tuple(getattr(each, name) for each in every if getattr(type(each), name) is not self._default)


class Subscribers:
    """The subscribers of one ledger: ``subscribers.waits(create)`` tells those who listen. The ledger's lock guards it.

    ``every`` is all of them; the other attributes are the events, each called as the method of ``Subscriber``.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.every: tuple[Subscriber, ...] = ()
        self.begun = Event(attempt, Subscriber.begun)
        self.waits = Event(attempt, Subscriber.waits)
        self.admitted = Event(attempt, Subscriber.admitted)
        self.answered = Event(attempt, Subscriber.answered)
        self.declined = Event(attempt, Subscriber.declined)
        self.ended = Event(attempt, Subscriber.ended)
        self.shadowed = Event(attempt, Subscriber.shadowed)
        self.observed = Event(attempt, Subscriber.observed)
        self.learned = Event(attempt, Subscriber.learned)
        self.blocked = Event(attempt, Subscriber.blocked)
        self.gang_made = Event(attempt, Subscriber.gang_made)
        self.member_over = Event(attempt, Subscriber.member_over)
        self.decided = Event(attempt, Subscriber.decided)
        self.forked = Event(attempt, Subscriber.forked)

    def add(self, subscriber: Subscriber) -> None:
        self._set((*self.every, subscriber))

    def remove(self, subscriber: Subscriber) -> None:
        self._set(tuple(each for each in self.every if each is not subscriber))

    def _set(self, every: tuple[Subscriber, ...]) -> None:
        self.every = every
        for event in vars(self).values():
            if isinstance(event, Event):
                event.set(every)

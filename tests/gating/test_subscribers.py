"""Subscribers of a ledger: what each hears, what an error of one costs, and that an unheard event costs nothing."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.subscribers import Event, Subscriber, Subscribers
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer

if TYPE_CHECKING:
    from types import FrameType

POD = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}


class Stored:
    """A way to a server that stores everything."""

    def send(self, body: dict[str, Any]) -> Answer:
        """Answer with what was stored."""
        return Answer(201, {}, b"{}" if body else b"")

    def look_up(self, name: str) -> Answer:
        """Fail: no answer gets lost here."""
        raise AssertionError(name)


class Hears(Subscriber):
    """Hears of what was decided about a namespace."""

    def __init__(self) -> None:
        """Begin with nothing heard."""
        self.heard: list[str] = []

    def gang_made(self, namespace: str) -> None:
        """Note it."""
        self.heard.append(namespace)


class Fails(Hears):
    """Hears it, and fails."""

    def gang_made(self, namespace: str) -> None:
        """Note it, and fail."""
        super().gang_made(namespace)
        raise LookupError(namespace)


def create(gate: Gate) -> None:
    gate.create(Creation("http://s", "me", "team", "pods", POD), Stored())


def test_each_method_of_a_subscriber_is_an_event_of_the_same_name() -> None:
    """But for the samples, which are asked for."""
    methods = {name for name in vars(Subscriber) if not name.startswith("_")} - {"figures"}
    events = {name: event for name, event in vars(Subscribers(print)).items() if isinstance(event, Event)}

    assert set(events) == methods
    for name, event in events.items():
        all_of_it = type("Listens", (Subscriber,), {name: lambda *_: None})()
        event.set((all_of_it, Subscriber()))
        assert len(event.listeners) == 1, name
        others = [other for other in events.values() if other is not event]
        for other in others:
            other.set((all_of_it,))
        assert not any(other.listeners for other in others), name


def test_an_error_of_one_subscriber_keeps_no_other_from_hearing() -> None:
    """It is counted, and the caller of the event does not get it."""
    ledger, told = Gate().ledger, (Fails(), Hears())
    for each in told:
        ledger.subscribe(each)

    ledger.subscribers.gang_made("team")

    assert [each.heard for each in told] == [["team"], ["team"]]
    assert ledger.counts.failed_open == 1


def test_a_create_calls_no_event_that_no_subscriber_listens_to() -> None:
    """Not even where others are listened to."""
    gate, calls = Gate(), Counter[str]()
    gate.ledger.subscribe(Hears())
    create(gate)

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(count)
    try:
        create(gate)
    finally:
        sys.setprofile(None)

    assert calls["life"]
    assert not calls["Event.__call__"]
